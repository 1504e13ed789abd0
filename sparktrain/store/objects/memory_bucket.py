"""Objects in the memory of one process: for tests that must leave no files."""

import threading
from typing import TYPE_CHECKING

from sparktrain.store.objects.bucket import Bucket, ObjectInfo, Page, RequestErrorKind, RequestFailure, Upload

if TYPE_CHECKING:
    from fsspec.implementations.memory import MemoryFileSystem

_condition = threading.Lock()
_writers: dict[str, str] = {}
"""The writer of each object by path, for all buckets of the process."""


class MemoryBucket(Bucket):
    """A folder of fsspec's file system in memory, which all stores of the process share."""

    def __init__(self, name: str) -> None:
        self._name = name

    @property
    def url(self) -> str:
        """See base class."""
        return f"memory://{self._name}"

    async def settings(self) -> dict[str, str]:
        """See base class."""
        return {}

    async def put(self, key: str, data: bytes, writer: str) -> None:
        """See base class."""
        from fsspec.implementations.memory import MemoryFile

        with _condition:
            if self._path(key) in _files().store:
                raise FileExistsError(key)
            _writers[self._path(key)] = writer
            MemoryFile(_files(), self._path(key), data).commit()

    async def upload(self, key: str, writer: str) -> Upload:
        """See base class."""
        return MemoryUpload(self, key, writer)

    async def head(self, key: str) -> ObjectInfo:
        """See base class."""
        with _condition:
            modified = _files().modified(self._path(key))
            writer = _writers.get(self._path(key))
            size = _files().store[self._path(key)].size
            return ObjectInfo(size, modified.timestamp(), writer, f"{modified.isoformat()} {writer}")

    async def get(self, key: str, start: int, length: int) -> bytes:
        """See base class."""
        data: bytes = _files().cat_file(self._path(key), start, start + length)
        return data

    async def page(self, prefix: str, token: str | None) -> Page:
        """See base class."""
        top = self._path("")
        with _condition:
            sizes = {path[len(top) :]: file.size for path, file in _files().store.items() if path.startswith(top)}
        return Page({key: size for key, size in sizes.items() if key.startswith(prefix)}, None)

    async def delete(self, key: str) -> None:
        """See base class."""
        with _condition:
            _files().rm_file(self._path(key))
            del _writers[self._path(key)]

    def explain(self, error: Exception) -> RequestFailure:
        """See base class."""
        if isinstance(error, FileExistsError):
            return RequestFailure(RequestErrorKind.TAKEN)
        if isinstance(error, FileNotFoundError):
            return RequestFailure(RequestErrorKind.MISSING)
        return RequestFailure(RequestErrorKind.FAILED, f"{type(error).__name__}: {error}", "please report it")

    def _path(self, key: str) -> str:
        return f"/{self._name}/{key}"


class MemoryUpload(Upload):
    """The parts of an object that is not published yet."""

    def __init__(self, bucket: MemoryBucket, key: str, writer: str) -> None:
        self._bucket = bucket
        self._key = key
        self._writer = writer
        self._parts: list[bytes] = []

    async def add(self, part: bytes) -> None:
        """See base class."""
        self._parts.append(part)

    async def publish(self, last: bytes) -> None:
        """See base class."""
        await self._bucket.put(self._key, b"".join([*self._parts, last]), self._writer)

    async def abort(self) -> None:
        """See base class."""
        self._parts.clear()


def _files() -> "MemoryFileSystem":
    from fsspec.implementations.memory import MemoryFileSystem

    return MemoryFileSystem()
