"""A store in memory, and one that passes each operation of another through a gate, to inject crashes and faults."""

import errno
import hashlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

from sparktrain.config.store_address import StoreAddress
from sparktrain.store.base import FileInfo, FolderSurvey, NewFile, OwnsPath, Store, WriteStream, Written, check_path
from sparktrain.store.localfs import LocalNewFile, LocalStream

Gate = Callable[[str, Callable[[], Any]], Any]
"""Takes the name of an operation and its function; returns the result, or raises before or after it."""


class Crash(BaseException):
    """The process has died: no error handler runs."""


class MemoryStore(Store):
    """Files in a dict. With `torn`, the next write of a file silently loses the end of its data."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.torn = False

    @property
    def address(self) -> StoreAddress:
        return StoreAddress("memory:/")

    def where(self, path: str = "") -> str:
        return f"memory:/{path}"

    def probe(self) -> None:
        return

    def put_if_absent(self, path: str, data: bytes) -> bool:
        return self.files.setdefault(check_path(path), data) is data

    def read(self, path: str) -> bytes:
        if check_path(path) not in self.files:
            raise FileNotFoundError(path)
        return self.files[path]

    def read_range(self, path: str, start: int, length: int) -> bytes:
        return self.read(path)[start : start + length]

    def stat(self, path: str) -> FileInfo:
        return FileInfo(len(self.read(path)), 0.0)

    def pieces(self, path: str) -> Iterator[bytes]:
        if content := self.read(path):
            yield content

    def exists(self, path: str) -> bool:
        return check_path(path) in self.files

    def list(self, prefix: str = "") -> list[str]:
        folder = f"{check_path(prefix)}/" if prefix else ""
        return sorted(path for path in self.files if path.startswith(folder))

    def create(self, path: str) -> NewFile:
        if check_path(path) in self.files:
            raise FileExistsError(path)
        return MemoryNewFile(self, path)

    def open_stream(self, path: str) -> WriteStream:
        if check_path(path) in self.files:
            raise FileExistsError(path)
        self.files[path] = b""
        return MemoryStream(self, path)

    def delete(self, path: str) -> None:
        self.files.pop(check_path(path), None)


class MemoryStream(WriteStream):
    def __init__(self, store: MemoryStore, path: str) -> None:
        self._store = store
        self._path = path
        self._closed = False

    def write(self, data: bytes) -> None:
        if self._closed:
            raise ValueError("closed")
        if self._store.torn:
            data, self._store.torn = data[: len(data) // 2], False
        self._store.files[self._path] = self._store.files.get(self._path, b"") + data

    def close(self) -> None:
        self._closed = True


class MemoryNewFile(NewFile):
    def __init__(self, store: MemoryStore, path: str) -> None:
        self._store = store
        self._path = path
        self._given, self._kept = b"", b""

    def write(self, data: bytes | memoryview) -> None:
        self._given += data
        if self._store.torn:
            data, self._store.torn = data[: len(data) // 2], False
        self._kept += data

    def publish(self) -> Written:
        if not self._store.put_if_absent(self._path, self._kept):
            raise FileExistsError(self._path)
        return Written(len(self._given), hashlib.sha256(self._given).hexdigest())

    def discard(self) -> None:
        return


class GatedStore(Store):
    """A store that passes each operation of another through a gate."""

    def __init__(self, store: Store, gate: Gate) -> None:
        self.store = store
        self._gate = gate

    @property
    def address(self) -> StoreAddress:
        return self.store.address

    def where(self, path: str = "") -> str:
        return self.store.where(path)

    def probe(self) -> None:
        self._gate("probe", self.store.probe)

    def put_if_absent(self, path: str, data: bytes) -> bool:
        return self._gate("put", lambda: self.store.put_if_absent(path, data))

    def read(self, path: str) -> bytes:
        return self._gate("read", lambda: self.store.read(path))

    def read_range(self, path: str, start: int, length: int) -> bytes:
        return self._gate("read", lambda: self.store.read_range(path, start, length))

    def stat(self, path: str) -> FileInfo:
        return self._gate("stat", lambda: self.store.stat(path))

    def pieces(self, path: str) -> Iterator[bytes]:
        yield from self._gate("pieces", lambda: list(self.store.pieces(path)))

    def exists(self, path: str) -> bool:
        return self._gate("exists", lambda: self.store.exists(path))

    def list(self, prefix: str = "") -> list[str]:
        return self._gate("list", lambda: self.store.list(prefix))

    def create(self, path: str) -> NewFile:
        return GatedNewFile(self._gate("create", lambda: self.store.create(path)), self._gate)

    def open_stream(self, path: str) -> WriteStream:
        return GatedStream(self._gate("open", lambda: self.store.open_stream(path)), self._gate)

    def delete(self, path: str) -> None:
        self._gate("delete", lambda: self.store.delete(path))

    def way_out(self, path: str, folder: str = "") -> str | None:
        return self._gate("stat", lambda: self.store.way_out(path, folder))

    def survey(self, path: str, owns: OwnsPath) -> FolderSurvey:
        return self._gate("list", lambda: self.store.survey(path, owns))

    def delete_folder(self, path: str, owns: OwnsPath) -> None:
        self._gate("delete", lambda: self.store.delete_folder(path, owns))


class GatedStream(WriteStream):
    def __init__(self, stream: WriteStream, gate: Gate) -> None:
        self._stream = stream
        self._gate = gate

    def write(self, data: bytes) -> None:
        self._gate("write", lambda: self._stream.write(data))

    def close(self) -> None:
        self._gate("close", self._stream.close)


class GatedNewFile(NewFile):
    def __init__(self, new: NewFile, gate: Gate) -> None:
        self._new = new
        self._gate = gate

    def write(self, data: bytes | memoryview) -> None:
        self._gate("write", lambda: self._new.write(data))

    def publish(self) -> Written:
        return self._gate("publish", self._new.publish)

    def discard(self) -> None:
        self._new.discard()


class FailAt:
    """A gate that breaks operation `index`, before or after it takes effect; a crash breaks all that follow too."""

    def __init__(self, index: int, when: str, error: BaseException) -> None:
        self._index = index
        self._when = when
        self._error = error
        self._counting = threading.Lock()
        self.broke = False
        self.seen = 0
        """Operations so far."""

    def __call__(self, name: str, effect: Callable[[], Any]) -> Any:
        with self._counting:
            mine = self.seen == self._index
            self.seen += 1
            if self.broke and isinstance(self._error, Crash):
                raise self._error
            self.broke = self.broke or mine
        if not mine:
            return effect()
        if self._when == "after":
            drop(effect())
        raise self._error


def drop(result: Any) -> None:
    """Close a result that its caller never gets: a file handle does not outlive its process."""
    if isinstance(result, LocalStream | MemoryStream):
        result.close()
    elif isinstance(result, LocalNewFile):
        result.discard()


def fault() -> OSError:
    return OSError(errno.EIO, "the store failed")
