"""A transport within one process and one event loop, for tests and simulations.

Messages are encoded, decoded and checked as on the network, and nothing depends on time: what one side posts, the
other can receive in the same turn of the loop.
"""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from typing import Any, TypeVar

from sparktrain.protocol import codec
from sparktrain.protocol.credentials import CertificateBundle
from sparktrain.protocol.link_rules import AGENT_SPEECH, COORDINATOR_SPEECH
from sparktrain.protocol.messages import UploadDone, UploadHeader
from sparktrain.protocol.transport import (
    Dialer,
    IncomingUpload,
    Limits,
    Link,
    Listener,
    OnLink,
    OnUpload,
    QueuedLink,
    Unreachable,
    closed,
    forget,
    outcome,
    pieces,
    race,
    serve,
)

T = TypeVar("T")

_VANISHED = "the connection was lost"


class MemoryTransport:
    """One coordinator and any number of agents."""

    def __init__(self, limits: Limits | None = None) -> None:
        self.limits = limits or Limits()
        self.listener = MemoryListener(self)

    def dialer(self, name: str = "agent") -> "MemoryDialer":
        """A new agent's side; the coordinator sees `name` as `Link.peer`."""
        return MemoryDialer(self, name)


class MemoryLink(QueuedLink):
    """One side of a link; hands each message to the other side at once."""

    opposite: "MemoryLink"

    def _send(self, data: bytes) -> bool:
        if not self.opposite._inbox.fits(len(data)):
            return False
        self.opposite.hear(data)
        return True

    def _finish(self, goodbye: bytes | None) -> None:
        if goodbye is not None:
            self.opposite.hear(goodbye)
        else:
            self.opposite.lose(self.why or _VANISHED)

    async def _finished(self) -> None:
        # Lets the other side run, as every close over a network does.
        await asyncio.sleep(0)


class MemoryListener(Listener):
    """See base class."""

    def __init__(self, transport: MemoryTransport) -> None:
        self._limits = transport.limits
        self._on_link: OnLink | None = None
        self._on_upload: OnUpload | None = None
        self._links: set[MemoryLink] = set()
        self._tasks: set[asyncio.Task[Any]] = set()

    async def start(self, on_link: OnLink, on_upload: OnUpload) -> tuple[str, int]:
        """See base class; the address is only a name."""
        self._on_link = on_link
        self._on_upload = on_upload
        return "memory", 0

    def renew(self, certificates: CertificateBundle) -> None:
        """See base class; this transport has no certificates."""

    async def close(self, grace_s: float) -> None:
        """See base class."""
        self._on_link = self._on_upload = None
        for link in tuple(self._links):
            await link.close("the coordinator is closing")
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=grace_s)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)

    def accept(self, name: str) -> MemoryLink:
        """The agent's side of a new link. Raises Unreachable when not started."""
        if self._on_link is None:
            raise Unreachable("the coordinator is not listening in this process")
        server_link = MemoryLink(name, AGENT_SPEECH, self._limits)
        agent_link = MemoryLink("coordinator", COORDINATOR_SPEECH, self._limits)
        server_link.opposite = agent_link
        agent_link.opposite = server_link
        self._links.add(server_link)
        self._spawn(serve(server_link, self._on_link)).add_done_callback(lambda _: self._links.discard(server_link))
        return agent_link

    def take(self, incoming: IncomingUpload, header: UploadHeader) -> asyncio.Task[UploadDone]:
        """Start to store an upload. Raises LinkClosedError when not started."""
        if self._on_upload is None:
            raise closed("coordinator", "it is not listening")
        return self._spawn(incoming.store(header, self._on_upload))

    def _spawn(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


class MemoryDialer(Dialer):
    """See base class."""

    def __init__(self, transport: MemoryTransport, name: str) -> None:
        self._listener = transport.listener
        self._name = name
        self._link: MemoryLink | None = None
        self._uploads: set[asyncio.Task[UploadDone]] = set()

    async def attend(self, deadline_s: float) -> Link:
        """See base class; never waits."""
        self._link = self._listener.accept(self._name)
        return self._link

    def renew(self, certificates: CertificateBundle) -> None:
        """See base class; this transport has no certificates."""

    async def upload(self, header: UploadHeader, chunks: AsyncIterator[bytes]) -> UploadDone:
        """See base class."""
        if self._link is None:
            raise closed("coordinator", "it was never attended")
        task = asyncio.ensure_future(self._upload(header, chunks))
        self._uploads.add(task)
        task.add_done_callback(self._uploads.discard)
        return await outcome(task, closed("coordinator", "closed here"))

    async def close(self) -> None:
        """See base class."""
        for task in tuple(self._uploads):
            task.cancel()
        if self._link is not None:
            await self._link.close()

    def vanish(self) -> None:
        """End without a message, as a killed process does."""
        for task in tuple(self._uploads):
            task.cancel()
        if self._link is not None:
            self._link.lose(_VANISHED)

    async def _upload(self, header: UploadHeader, chunks: AsyncIterator[bytes]) -> UploadDone:
        incoming = IncomingUpload(self._name)
        stored = self._listener.take(incoming, codec.decode(codec.encode(header), UploadHeader))
        stored.add_done_callback(forget)
        try:
            # Shielded: when this side ends, `on_upload` must end by the error that its chunks raise.
            return await race(_feed(incoming, chunks), asyncio.shield(stored), closed("coordinator", "it is closing"))
        finally:
            incoming.lose(_VANISHED)


async def _feed(incoming: IncomingUpload, chunks: AsyncIterator[bytes]) -> None:
    async for chunk in chunks:
        for piece in pieces(chunk):
            await incoming.add(piece)
    await incoming.add(b"")
