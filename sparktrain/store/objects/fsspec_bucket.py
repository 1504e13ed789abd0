"""A bucket that a file system of fsspec reaches."""

import asyncio
from abc import abstractmethod
from typing import ClassVar, Generic, TypeVar

from sparktrain.store.objects.bucket import Bucket

F = TypeVar("F")


class FsspecBucket(Bucket, Generic[F]):
    """The base of buckets behind a file system of fsspec, which the first request opens."""

    scheme: ClassVar[str]
    """Of URLs."""

    def __init__(self, name: str, settings: dict[str, str]) -> None:
        self._name = name
        self._settings = settings
        self._opening = asyncio.Lock()
        self._files: F | None = None

    @property
    def url(self) -> str:
        """See base class."""
        return f"{self.scheme}://{self._name}"

    @abstractmethod
    def _open(self) -> F:
        """The file system, by `settings` and what the service's own tools find on this host. Blocks."""

    async def _connect(self) -> F:
        async with self._opening:
            if self._files is None:
                # In a thread: it looks for credentials, possibly over the network, before it returns.
                self._files = await asyncio.to_thread(self._open)
            return self._files
