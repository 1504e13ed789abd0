"""The interface of an HDFS client, as a store needs it. Thin: each method makes one or two requests."""

from abc import ABC, abstractmethod

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


class Writer(ABC):
    """A file that is being written. Only `close` may close it: closing publishes what has been written."""

    @abstractmethod
    def write(self, data: memoryview) -> None:
        """Append at most 4 MiB."""

    @abstractmethod
    def close(self) -> None:
        """Close the file, as durably as the protocol allows."""

    @abstractmethod
    def abandon(self) -> None:
        """Release a file that has been deleted. Never raises."""


class Reader(ABC):
    """A file that is being read."""

    @property
    @abstractmethod
    def size(self) -> int:
        """Size in bytes when the file was opened."""

    @abstractmethod
    def read(self, start: int, length: int) -> bytes:
        """The `length` bytes from `start`, all within `size`."""


class HadoopClient(ABC):
    """A connection to HDFS. Used by any thread; not across a fork.

    Each method blocks, possibly forever. The store that creates a client maps the client's errors to those named
    below, or to HadoopCallError. Paths are absolute.
    """

    @abstractmethod
    def status(self, path: str) -> HdfsEntry:
        """The entry at `path`. Raises FileNotFoundError."""

    @abstractmethod
    def folder(self, path: str) -> list[HdfsEntry]:
        """The entries of a folder, in no order. Raises FileNotFoundError, and NotADirectoryError for a file."""

    @abstractmethod
    def create(self, path: str) -> Writer:
        """Create a file and its missing folders. Raises FileExistsError, here or on the first write."""

    @abstractmethod
    def append(self, path: str) -> Writer:
        """Append to a file. Raises FileNotFoundError, and FileExistsError while another writer has it open."""

    @abstractmethod
    def recover_lease(self, path: str) -> bool:
        """Take the file's lease from any writer: True when its size is final, False to call again."""

    @abstractmethod
    def rename(self, source: str, target: str) -> None:
        """Rename a file. Raises FileExistsError when `target` exists, FileNotFoundError when `source` does not."""

    @abstractmethod
    def delete(self, path: str) -> None:
        """Delete the file, if it exists."""

    @abstractmethod
    def delete_folder(self, path: str) -> None:
        """Delete the folder and all that is in it, if it exists."""

    @abstractmethod
    def open(self, path: str) -> Reader:
        """Open a file for reading. Raises FileNotFoundError, also for a folder."""
