"""The interface of an HDFS client, as a store needs it. Thin: each method makes one or two requests."""

from typing import Protocol

from msgspec import Struct


class HdfsEntry(Struct, frozen=True):
    """Metadata of a file or folder."""

    name: str
    """The last part of the path."""
    is_file: bool
    size: int
    """In bytes; 0 for a folder."""
    modified_ms: int
    """Milliseconds since 1970, by the NameNode's clock; a rename does not change it."""


class Writer(Protocol):
    """A file that is being written. Only `close` may close it: closing publishes what has been written."""

    def write(self, data: memoryview) -> None:
        """Append at most 4 MiB."""
        ...

    def close(self) -> None:
        """Close the file, as durably as the protocol allows."""
        ...

    def abandon(self) -> None:
        """Release a file that has been deleted. Never raises."""
        ...


class Reader(Protocol):
    """A file that is being read."""

    @property
    def size(self) -> int:
        """Size in bytes when the file was opened."""
        ...

    def read(self, start: int, length: int) -> bytes:
        """The `length` bytes from `start`, all within `size`."""
        ...


class HadoopClient(Protocol):
    """A connection to HDFS. Used by any thread; not across a fork.

    Each method blocks, possibly forever. The store that creates a client maps the client's errors to those named
    below, or to HadoopCallError. Paths are absolute.
    """

    def status(self, path: str) -> HdfsEntry:
        """The entry at `path`. Raises FileNotFoundError."""
        ...

    def folder(self, path: str) -> list[HdfsEntry]:
        """The entries of a folder, in no order. Raises FileNotFoundError, and NotADirectoryError for a file."""
        ...

    def create(self, path: str) -> Writer:
        """Create a file and its missing folders. Raises FileExistsError, here or on the first write."""
        ...

    def append(self, path: str) -> Writer:
        """Append to a file. Raises FileNotFoundError, and FileExistsError while another writer has it open."""
        ...

    def recover_lease(self, path: str) -> bool:
        """Take the file's lease from any writer: True when its size is final, False to call again."""
        ...

    def rename(self, source: str, target: str) -> None:
        """Rename a file. Raises FileExistsError when `target` exists, FileNotFoundError when `source` does not."""
        ...

    def delete(self, path: str) -> None:
        """Delete the file, if it exists."""
        ...

    def delete_folder(self, path: str) -> None:
        """Delete the folder and all that is in it, if it exists."""
        ...

    def open(self, path: str) -> Reader:
        """Open a file for reading. Raises FileNotFoundError, also for a folder."""
        ...
