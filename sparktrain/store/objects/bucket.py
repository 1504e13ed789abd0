"""What an object store is made of: the few requests that a service which keeps objects must answer."""

import asyncio
from collections.abc import Sequence
from enum import Enum
from typing import ClassVar, Protocol

from msgspec import Struct

WRITER = "sparktrainwriter"
"""The entry of an object's metadata that says which call wrote it: letters alone, which every service takes."""

PART_BYTES = 16 * 2**20
"""Of a large object, sent at once; all but the last part have this size. Services take at most 10,000 parts."""

CONNECT_S, ANSWER_S = 4.0, 30.0
"""How long a client waits for a connection, and for the next bytes on it."""


class RequestErrorKind(Enum):
    """What an error of a request means for the call that made it."""

    TAKEN = "taken"
    """There is an object of that name, and the request was not to replace any."""
    MISSING = "missing"
    """There is no such object, or no such upload."""
    REFUSED = "refused"
    """The same request would be refused until somebody acts."""
    FAILED = "failed"
    """The same request would fail again."""
    AGAIN = "again"
    """The same request may be answered later. This one may have taken effect."""


class RequestFailure(Struct, frozen=True):
    """An error of a request, explained."""

    kind: RequestErrorKind
    cause: str = ""
    step: str = ""
    """What to do about it."""


class ObjectInfo(Struct, frozen=True):
    """An object."""

    size: int
    """In bytes."""
    modified: float
    """Seconds since 1970, by the service's clock."""
    writer: str | None
    """Which call wrote it; None when the service does not say."""


class Page(Struct, frozen=True):
    """A part of a listing."""

    keys: list[str]
    next: str | None
    """What to ask for the next page with; None after the last one."""


class Upload(Protocol):
    """A large object that nobody sees yet. Its requests come one after another."""

    async def add(self, part: bytes) -> None:
        """Send the next part; all have the same size. When it fails, the same part may be sent again."""
        ...

    async def publish(self, last: bytes) -> None:
        """Send the last part, which may be smaller or empty, and make the object visible unless its name is taken.

        TAKEN then. When it fails otherwise, the same may be asked again.
        """
        ...

    async def abort(self) -> None:
        """Let the service forget the parts."""
        ...


class Bucket(Protocol):
    """The objects of one bucket, named by keys.

    Each coroutine makes one request, and no second one where the first fails: it may be cancelled, and asked again. It
    raises whatever the service's client raises: `explain` knows what that means. Runs in fsspec's own event loop.
    """

    deleted_at_once: ClassVar[int] = 32
    """How many objects `delete_many` may be asked for."""

    @property
    def url(self) -> str:
        """Of the bucket, for people and for `open_store`: `s3://name`."""
        ...

    async def settings(self) -> dict[str, str]:
        """What another process must know to reach the same bucket. No secrets. Makes no request."""
        ...

    async def put(self, key: str, data: bytes, writer: str) -> None:
        """Create an object with its writer's mark in its metadata, atomically; TAKEN when there is one already."""
        ...

    async def upload(self, key: str, writer: str) -> Upload:
        """Begin a large object."""
        ...

    async def head(self, key: str) -> ObjectInfo:
        """What is known about an object; MISSING when there is none."""
        ...

    async def get(self, key: str, start: int, length: int) -> bytes:
        """At most `length` bytes, at least 1, from byte `start` on; none where the object ends before it. MISSING."""
        ...

    async def page(self, prefix: str, token: str | None) -> Page:
        """The keys that begin with `prefix`, in any order; `token` is the `next` of the page before."""
        ...

    async def delete(self, key: str) -> None:
        """Delete an object; none, or MISSING, when there is none."""
        ...

    async def delete_many(self, keys: Sequence[str]) -> None:
        """Delete at most `deleted_at_once` objects, those that are there; here by as many requests at the same time.

        A bucket overrides this where one request does it.
        """
        await asyncio.gather(*(self._delete_if_there(key) for key in keys))

    async def _delete_if_there(self, key: str) -> None:
        try:
            await self.delete(key)
        except Exception as error:
            if self.explain(error).kind is not RequestErrorKind.MISSING:
                raise

    def explain(self, error: Exception) -> RequestFailure:
        """What an error that a request raised means."""
        ...
