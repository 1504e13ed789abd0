"""What a client of HDFS must do for a store. Thin: each method is one or two requests."""

from typing import Protocol

from msgspec import Struct


class HdfsEntry(Struct, frozen=True):
    """A file or a folder."""

    name: str
    """The last part of its path."""
    is_file: bool
    size: int
    """In bytes; 0 for a folder."""
    modified_ms: int
    """Milliseconds since 1970, of the NameNode; a rename does not change it."""


class Writer(Protocol):
    """A file that is being written. Never closed but by `close`: closing it publishes what it has."""

    def write(self, data: memoryview) -> None:
        """Add at most 4 MiB to the end."""
        ...

    def close(self) -> None:
        """End the file. Durable, as far as the protocol can make it so."""
        ...

    def abandon(self) -> None:
        """Let go of a file that has been deleted. Never raises."""
        ...


class Reader(Protocol):
    """A file that is being read."""

    @property
    def size(self) -> int:
        """In bytes, when it was opened."""
        ...

    def read(self, start: int, length: int) -> bytes:
        """The `length` bytes from `start` on, all of them within `size`."""
        ...


class HadoopClient(Protocol):
    """A connection to an HDFS. Used by any thread; not across a fork.

    Each method blocks, perhaps for ever. Whoever makes a client says what its errors mean: below is what they must
    mean, beside TroubleError. Paths are absolute.
    """

    def status(self, path: str) -> HdfsEntry:
        """Raises FileNotFoundError."""
        ...

    def folder(self, path: str) -> list[HdfsEntry]:
        """What is in the folder, in no order. Raises FileNotFoundError, and NotADirectoryError for a file."""
        ...

    def create(self, path: str) -> Writer:
        """A new file, and its folders where they are missing. Raises FileExistsError, here or when it is written."""
        ...

    def append(self, path: str) -> Writer:
        """Write on at the end of a file. Raises FileNotFoundError, and FileExistsError while somebody writes it."""
        ...

    def settle(self, path: str) -> bool:
        """End whoever may still write the file: True when its size is final, False to ask again."""
        ...

    def rename(self, source: str, target: str) -> None:
        """Raises FileExistsError when there is a file `target`, FileNotFoundError when there is no `source`."""
        ...

    def delete(self, path: str) -> None:
        """Delete the file, if it is there."""
        ...

    def open(self, path: str) -> Reader:
        """Raises FileNotFoundError, also for a folder."""
        ...
