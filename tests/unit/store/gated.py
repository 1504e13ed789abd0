"""A store in memory, and one that asks before each operation of another: for crashes and faults at any point."""

import errno
from collections.abc import Callable, Iterator
from typing import Any

from sparktrain.store.base import Store, WriteStream, check_path
from sparktrain.store.localfs import LocalStream

Gate = Callable[[str, Callable[[], Any]], Any]
"""Gets the name of an operation and what does it; returns its result, or raises before or after."""


class Crash(BaseException):
    """The process is gone: nothing that it would do on an error happens."""


class MemoryStore(Store):
    """Files in a dict. `torn` makes the next write of a stream lose the end of its data, and say nothing."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.torn = False

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

    def pieces(self, path: str) -> Iterator[bytes]:
        if content := self.read(path):
            yield content

    def exists(self, path: str) -> bool:
        return check_path(path) in self.files

    def list(self, prefix: str = "") -> list[str]:
        return sorted(path for path in self.files if not prefix or path.startswith(f"{check_path(prefix)}/"))

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


class GatedStore(Store):
    """Passes each operation of a store through a gate."""

    def __init__(self, store: Store, gate: Gate) -> None:
        self.store = store
        self._gate = gate

    def where(self, path: str = "") -> str:
        return self.store.where(path)

    def probe(self) -> None:
        self._gate("probe", self.store.probe)

    def put_if_absent(self, path: str, data: bytes) -> bool:
        return self._gate("put", lambda: self.store.put_if_absent(path, data))

    def read(self, path: str) -> bytes:
        return self._gate("read", lambda: self.store.read(path))

    def pieces(self, path: str) -> Iterator[bytes]:
        yield from self._gate("pieces", lambda: list(self.store.pieces(path)))

    def exists(self, path: str) -> bool:
        return self._gate("exists", lambda: self.store.exists(path))

    def list(self, prefix: str = "") -> list[str]:
        return self._gate("list", lambda: self.store.list(prefix))

    def open_stream(self, path: str) -> WriteStream:
        return GatedStream(self._gate("open", lambda: self.store.open_stream(path)), self._gate)

    def delete(self, path: str) -> None:
        self._gate("delete", lambda: self.store.delete(path))


class GatedStream(WriteStream):
    def __init__(self, stream: WriteStream, gate: Gate) -> None:
        self._stream = stream
        self._gate = gate

    def write(self, data: bytes) -> None:
        self._gate("write", lambda: self._stream.write(data))

    def close(self) -> None:
        self._gate("close", self._stream.close)


class FailAt:
    """A gate that breaks operation `index`, before or after it takes effect; a crash breaks all that follow too."""

    def __init__(self, index: int, when: str, error: BaseException) -> None:
        self._left = index
        self._when = when
        self._error = error
        self.broke = False

    def __call__(self, name: str, effect: Callable[[], Any]) -> Any:
        self._left -= 1
        if self.broke and isinstance(self._error, Crash):
            raise self._error
        if self._left != -1:
            return effect()
        self.broke = True
        if self._when == "after":
            drop(effect())
        raise self._error


def drop(result: Any) -> None:
    """Let go of a result that its caller never gets: a file handle does not outlive its process."""
    if isinstance(result, LocalStream | MemoryStream):
        result.close()


def fault() -> OSError:
    return OSError(errno.EIO, "the store failed")
