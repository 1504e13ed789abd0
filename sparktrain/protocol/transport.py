"""How messages get from the coordinator to its agents and back: the contracts, and what every transport shares.

    coordinator                                            agent
    Listener.start(on_link, on_upload)                     Dialer.attend() -> Link
        on_link(Link)      receive  <---- FromAgent ----   post
                           post     -----  ToAgent ---->   receive
        on_upload(header, chunks)   <----   bytes   ----   Dialer.upload(header, chunks)

A link carries whole messages in their order, both ways. It ends with a reason, which both sides get where the network
allows. Uploads have streams of their own, so that heartbeats never wait behind a file. All calls of a listener, a
dialer and their links belong to the one event loop that started them.
"""

import asyncio
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from typing import Any, Generic, TypeVar

from msgspec import Struct

from sparktrain.errors import DriverUnreachableError, InfraError, ProtocolError, SparktrainError, UserError
from sparktrain.protocol import codec
from sparktrain.protocol.credentials import CertificateBundle
from sparktrain.protocol.link_rules import Closing, Speech
from sparktrain.protocol.messages import (
    Message,
    UploadDone,
    UploadHeader,
)

T = TypeVar("T")

CHUNK_BYTES = 2**20
"""Largest chunk of an upload; larger ones are cut."""

FLUSH_S = 1.0
"""How long a closing link waits for the other side to take one more posted message."""

FLUSH_AT_MOST_S = 10.0
"""How long a closing link waits in all."""

_MAX_REASON = 2_000


class LinkClosedError(InfraError, ConnectionError):
    """The link, or the connection of an upload, has ended; the message names the peer and the cause."""


class UploadRefusedError(InfraError, RuntimeError):
    """The coordinator refused an upload or failed to store it; the message is its own."""


class Unreachable(DriverUnreachableError):  # noqa: N818 - it names what the coordinator is
    """No address of the coordinator answered; the message lists each one with its cause."""

    def __init__(self, message: str, refused: bool = False) -> None:
        super().__init__(message)
        self.refused = refused
        """Each address was reached, and no coordinator of this pool listens there."""


class ListenError(UserError, OSError):
    """The coordinator cannot listen on the given address or ports."""


class Limits(Struct, frozen=True):
    """How much may wait in one direction of a link before the link is given up."""

    messages: int = 10_000
    bytes: int = 256 * 2**20
    """Encoded size. One message may wait regardless of its size."""


# ---- contracts


class Link(ABC):
    """One side of one agent's stream of messages."""

    peer: str
    """Address of the other side, for display."""

    @abstractmethod
    def post(self, message: Message) -> None:
        """Send `message` after all that was posted before; returns at once.

        Raises LinkClosedError when the link has ended. A message above the limit of its kind ends the link after
        what was posted before it; more waiting messages than the limits allow end it at once. Both raise.
        """

    @abstractmethod
    async def receive(self) -> Message:
        """Wait for the next message.

        Raises LinkClosedError at the end of the link: after the last message when the other side closed it, at once
        when it was closed here. May be cancelled without losing a message.
        """

    @abstractmethod
    async def close(self, reason: str = "") -> None:
        """End the link; `reason` reaches the other side. May be called again.

        Returns when the other side has taken all that was posted, or `FLUSH_S` after it took the last message that it
        takes, or after `FLUSH_AT_MOST_S`.
        """


OnLink = Callable[[Link], Awaitable[None]]
OnUpload = Callable[[UploadHeader, AsyncIterator[bytes]], Awaitable[UploadDone]]


class Listener(ABC):
    """The coordinator's side: accepts only agents that hold the certificate of this run."""

    @abstractmethod
    async def start(self, on_link: OnLink, on_upload: OnUpload) -> tuple[str, int]:
        """Accept agents from now on; the address that was bound. Raises ListenError.

        `on_link` runs in a task of its own for each link; the link is closed when it returns. What it raises, other
        than LinkClosedError, goes to the loop's exception handler and ends that link only.

        `on_upload` runs in a task of its own for each upload. Its chunks hold at most `CHUNK_BYTES` and end with
        LinkClosedError when the sender is lost before the end of the file. What it raises reaches the sender as text.
        """

    @abstractmethod
    def renew(self, certificates: CertificateBundle) -> None:
        """Use these from now on, and accept peers with a certificate of their authorities. Open links stay."""

    @abstractmethod
    async def close(self, grace_s: float) -> None:
        """Close all links and refuse new ones; after `grace_s`, cancel what still runs of `on_link` and `on_upload`.

        May be called again, and without `start`.
        """


class Dialer(ABC):
    """An agent's side."""

    @abstractmethod
    async def attend(self, deadline_s: float) -> Link:
        """Connect to the coordinator: try all its addresses until one answers.

        Raises Unreachable after `deadline_s`, or as soon as no address is worth another attempt.
        """

    @abstractmethod
    def renew(self, certificates: CertificateBundle) -> None:
        """Use these from the next `attend`."""

    @abstractmethod
    async def upload(self, header: UploadHeader, chunks: AsyncIterator[bytes]) -> UploadDone:
        """Send one file; returns when the coordinator has stored it. `attend` must have connected before.

        Takes from `chunks` only as fast as the coordinator stores. What `chunks` raises ends the upload at the other
        side too. Raises UploadRefusedError or LinkClosedError.
        """

    @abstractmethod
    async def close(self) -> None:
        """Close the link and end all uploads. May be called again, and without `attend`."""


# ---- what transports share


class Mailbox(Generic[T]):
    """A bounded queue that ends with a reason. Not a contract: for transports."""

    def __init__(self, peer: str, limits: Limits) -> None:
        self._peer = peer
        self._limits = limits
        self._items: deque[tuple[T, int]] = deque()
        self._bytes = 0
        self._why: str | None = None
        self._filled = asyncio.Event()
        self._drained = asyncio.Event()

    def fits(self, size: int) -> bool:
        """Whether an item of `size` bytes keeps within the limits."""
        # One message may wait whatever its size, or one near the limit could never be sent.
        if not self._items:
            return True
        return len(self._items) < self._limits.messages and self._bytes + size <= self._limits.bytes

    def put(self, item: T, size: int) -> None:
        """Append `item` regardless of the limits; after `end` it is dropped."""
        if self._why is None:
            self._items.append((item, size))
            self._bytes += size
            self._filled.set()

    def end(self, why: str, keep: bool = True) -> None:
        """Accept no more; what waits can still be taken if `keep`. The first reason stays."""
        if self._why is None:
            self._why = why
        if not keep:
            self._items.clear()
            self._bytes = 0
        self._filled.set()
        self._drained.set()

    async def take(self) -> T:
        """Wait for the first item. Raises LinkClosedError after the last."""
        while not self._items:
            if self._why is not None:
                raise closed(self._peer, self._why)
            self._filled.clear()
            await self._filled.wait()
        item, size = self._items.popleft()
        self._bytes -= size
        self._drained.set()
        return item

    async def room(self) -> None:
        """Wait until one more item fits, or the queue has ended."""
        while not self.fits(1) and self._why is None:
            self._drained.clear()
            await self._drained.wait()


def closed(peer: str, why: str) -> LinkClosedError:
    """The error of a link to `peer` that ended because of `why`."""
    return LinkClosedError(f"the link to {peer} has ended: {why}")


class QueuedLink(Link):
    """A link that decodes, checks and queues what it receives; a transport adds the sending."""

    def __init__(self, peer: str, hears: Speech, limits: Limits) -> None:
        self.peer = peer
        self.why: str | None = None
        """Why the link ended; None while it lives."""
        self._hears = hears
        self._previous: type[Message] | None = None
        self._inbox = Mailbox[Message](peer, limits)

    @abstractmethod
    def _send(self, data: bytes) -> bool:
        """Send `data` after everything before it; False when too much waits already."""

    @abstractmethod
    def _finish(self, goodbye: bytes | None) -> None:
        """Send `goodbye` as the last message; without it, drop what waits."""

    @abstractmethod
    async def _finished(self) -> None:
        """Wait until `_finish` is done, for a bounded time."""

    def post(self, message: Message) -> None:
        """See base class."""
        if self.why is not None:
            raise closed(self.peer, self.why)
        data = codec.encode(message)
        if len(data) > message.most_bytes:
            self._end(too_large(type(message).__name__, len(data), message.most_bytes), notify=True)
        elif not self._send(data):
            self._end(f"too much is waiting to be sent; the other side takes no further {type(message).__name__}")
        if self.why is not None:
            raise closed(self.peer, self.why)

    async def receive(self) -> Message:
        """See base class."""
        return await self._inbox.take()

    async def close(self, reason: str = "") -> None:
        """See base class."""
        if self.why is None:
            self._inbox.end(f"closed here: {reason}" if reason else "closed here", keep=False)
            self._end(reason or "closed by the other side", notify=True)
        await self._finished()

    def hear(self, data: bytes) -> None:
        """Handle bytes from the other side; for transports."""
        if self.why is not None:
            return
        try:
            message = self._understand(data)
        # Whatever decoding raises, such as RecursionError for a message nested too deeply, is the sender's fault.
        except Exception as error:
            name = "" if isinstance(error, ProtocolError) else f"{type(error).__name__}: "
            self._end(f"ProtocolError: {name}{error}", notify=True)
            return
        if isinstance(message, Closing):
            self._end(message.reason)
        else:
            self._inbox.put(message, len(data))

    def lose(self, why: str) -> None:
        """The other side is gone; for transports."""
        self._end(why)

    def _understand(self, data: bytes) -> Message:
        if len(data) > self._hears.most_bytes:
            raise ProtocolError(too_large("message", len(data), self._hears.most_bytes))
        message: Message = codec.decode(data, self._hears.kind)
        if len(data) > message.most_bytes:
            raise ProtocolError(too_large(type(message).__name__, len(data), message.most_bytes))
        if not isinstance(message, Closing):
            self._hears.check(self._previous, message)
            self._previous = type(message)
        return message

    def _end(self, why: str, notify: bool = False) -> None:
        if self.why is None:
            self.why = why[:_MAX_REASON]
            self._inbox.end(self.why)
            self._finish(codec.encode(Closing(self.why)) if notify else None)


async def serve(link: Link, on_link: OnLink) -> None:
    """Run `on_link` as `Listener.start` promises it."""
    reason = ""
    try:
        await on_link(link)
    except LinkClosedError as error:
        reason = str(error)
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        story = {"message": f"the link to {link.peer} was closed by an error", "exception": error}
        asyncio.get_running_loop().call_exception_handler(story)
    finally:
        await link.close(reason)


def too_large(name: str, size: int, most: int) -> str:
    """Text of the error for a message above the limit."""
    return f"{name} of {size:,} bytes is larger than the limit of {most:,} bytes"


async def outcome(task: "asyncio.Future[T]", cancelled: Exception) -> T:
    """Wait for `task`; raises `cancelled` when another task cancelled it. Cancelled with its caller."""
    try:
        await asyncio.wait({task})
    except asyncio.CancelledError:
        task.cancel()
        raise
    if task.cancelled():
        raise cancelled
    return task.result()


async def race(feed: Coroutine[Any, Any, None], answer: "asyncio.Future[T]", cancelled: Exception) -> T:
    """Run `feed` until `answer` is there; raises what either raises, and `cancelled` as `outcome` does.

    `feed` never outlives the call, so that a sender without data still gets a refusal.
    """
    feeder = asyncio.create_task(feed)
    try:
        futures: set[asyncio.Future[Any]] = {feeder, answer}
        await asyncio.wait(futures, return_when=asyncio.FIRST_COMPLETED)
        if feeder.done() and not feeder.cancelled() and not answer.done():
            feeder.result()
        return await outcome(answer, cancelled)
    finally:
        answer.cancel()
        feeder.cancel()
        await asyncio.wait({feeder})
        forget(feeder)


def forget(task: "asyncio.Future[Any]") -> None:
    """Done callback: keep the loop from reporting an error that no caller awaits."""
    if not task.cancelled():
        task.exception()


def pieces(chunk: bytes) -> Iterator[bytes]:
    """`chunk` cut to `CHUNK_BYTES`; nothing for an empty one, which would mean the end of the file."""
    if len(chunk) <= CHUNK_BYTES:
        if chunk:
            yield chunk
        return
    for start in range(0, len(chunk), CHUNK_BYTES):
        yield chunk[start : start + CHUNK_BYTES]


class IncomingUpload:
    """One upload at the coordinator: a short queue between the sender's stream and the task of `on_upload`."""

    def __init__(self, sender: str) -> None:
        self._box = Mailbox[bytes](sender, Limits(messages=4, bytes=4 * CHUNK_BYTES))

    async def store(self, header: UploadHeader, on_upload: OnUpload) -> UploadDone:
        """Run `on_upload`. Raises UploadRefusedError with the text of what it raises."""
        try:
            return await on_upload(header, self._chunks())
        except Exception as error:
            text = str(error) if isinstance(error, SparktrainError) else f"{type(error).__name__}: {error}"
            raise UploadRefusedError(text[:_MAX_REASON]) from error
        finally:
            self._box.end("stored", keep=False)

    async def add(self, chunk: bytes) -> None:
        """Append `chunk`; an empty one ends the file. Waits while too much is waiting."""
        await self._box.room()
        self._box.put(chunk, len(chunk))

    def lose(self, why: str) -> None:
        """The sender is gone before the end of the file."""
        self._box.end(why)

    async def _chunks(self) -> AsyncIterator[bytes]:
        while chunk := await self._box.take():
            yield chunk
