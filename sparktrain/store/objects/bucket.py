"""The interface of a bucket: the few requests that an object service must answer."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Sequence
from enum import Enum
from typing import ClassVar

from msgspec import Struct

WRITER = "sparktrainwriter"
"""The key of an object's metadata that names the call which wrote it: only letters, which every service accepts."""

PART_BYTES = 16 * 2**20
"""Size of a part of a large object; only the last part may be smaller. Services accept at most 10,000 parts."""

CONNECT_S = 4.0
ANSWER_S = 30.0
"""Timeouts of a client for a connection, and for the next bytes on it."""


class RequestErrorKind(Enum):
    """What an error of a request means for the call that made it."""

    TAKEN = "taken"
    """The object exists, and the request forbids replacing it."""
    MISSING = "missing"
    """There is no such object, or no such upload."""
    REFUSED = "refused"
    """The service refuses the same request until a person acts."""
    FAILED = "failed"
    """The same request would fail again."""
    AGAIN = "again"
    """A retry may succeed. This request may have taken effect."""


class RequestFailure(Struct, frozen=True):
    """What an error of a request means, and what to do about it."""

    kind: RequestErrorKind
    cause: str = ""
    step: str = ""
    """The next step for a person."""


class ObjectInfo(Struct, frozen=True):
    """Metadata of an object."""

    size: int
    """In bytes."""
    modified: float
    """Seconds since 1970, by the service's clock."""
    writer: str | None
    """The call that wrote it; None when the service does not store that."""
    version: str = ""
    """The ETag, or generation: another after each write, of other content at least."""


class Page(Struct, frozen=True):
    """One page of a listing."""

    sizes: dict[str, int]
    """The size of each object in bytes, by its key."""
    next: str | None
    """The token for the next page; None after the last one."""


class Upload(ABC):
    """A large object that is not visible yet. Its requests come one after another."""

    @abstractmethod
    async def add(self, part: bytes) -> None:
        """Send the next part; all have the same size. When it fails, the same part may be sent again."""

    @abstractmethod
    async def publish(self, last: bytes) -> None:
        """Send the last part, which may be smaller or empty, and make the object visible unless its name is taken.

        Fails as TAKEN then. After any other failure it may be called again with the same bytes.
        """

    @abstractmethod
    async def abort(self) -> None:
        """Have the service delete the parts."""


class Bucket(ABC):
    """The objects of one bucket, named by keys.

    Each coroutine makes one request and does not retry it; it may be cancelled and called again. It raises whatever the
    service's client raises, which `explain` classifies. Runs in fsspec's own event loop.
    """

    deleted_at_once: ClassVar[int] = 32
    """The most objects that one `delete_many` accepts."""

    @property
    @abstractmethod
    def url(self) -> str:
        """The bucket's URL, for people and for `open_store`: `s3://name`."""

    @abstractmethod
    async def settings(self) -> dict[str, str]:
        """What another process must know to reach the same bucket. No secrets. Makes no request."""

    @abstractmethod
    async def put(self, key: str, data: bytes, writer: str) -> None:
        """Create an object atomically, with `writer` in its metadata; TAKEN when it exists already."""

    @abstractmethod
    async def upload(self, key: str, writer: str) -> Upload:
        """Start a large object."""

    @abstractmethod
    async def head(self, key: str) -> ObjectInfo:
        """The metadata of an object; MISSING when there is none."""

    @abstractmethod
    async def get(self, key: str, start: int, length: int) -> bytes:
        """Up to `length` bytes (at least 1) from byte `start`; empty where the object ends earlier. MISSING."""

    @abstractmethod
    async def page(self, prefix: str, token: str | None) -> Page:
        """The objects with keys that start with `prefix`, in any order; `token` is the `next` of the previous page."""

    @abstractmethod
    async def delete(self, key: str) -> None:
        """Delete an object; when there is none, does nothing or fails as MISSING."""

    async def delete_many(self, keys: Sequence[str]) -> None:
        """Delete those of at most `deleted_at_once` objects that exist; here by concurrent requests.

        A bucket overrides this where one request can do it.
        """
        await asyncio.gather(*(self._delete_if_there(key) for key in keys))

    async def _delete_if_there(self, key: str) -> None:
        try:
            await self.delete(key)
        except Exception as error:
            if self.explain(error).kind is not RequestErrorKind.MISSING:
                raise

    @abstractmethod
    def explain(self, error: Exception) -> RequestFailure:
        """Classify an error that a request raised."""
