"""What both sides of a gRPC connection share: the link over one call, and the options of the connection."""

import asyncio
from contextlib import suppress
from typing import Any

from sparktrain.protocol.grpc_without_fork_handlers import aio, grpc
from sparktrain.protocol.link_rules import Speech
from sparktrain.protocol.transport import FLUSH_AT_MOST_S, FLUSH_S, Limits, LinkClosedError, Mailbox, QueuedLink

LOST = "the connection was lost: the other process or its host ended, or the network failed"

FAILURES = (aio.AioRpcError, aio.BaseError, asyncio.InvalidStateError)
"""What gRPC raises when a call has ended."""

_SLACK_BYTES = 2**20
"""Room so that sparktrain, not gRPC, refuses a message just above the limit, with both sizes in the text."""

Options = list[tuple[str, int | str]]


def common_options(dead_after_s: float, hears: Speech, speaks: Speech) -> Options:
    """Limits of sizes, and pings that detect a dead peer `dead_after_s` after its last message."""
    ping_ms = int(dead_after_s * 500)
    return [
        ("grpc.max_receive_message_length", hears.most_bytes + _SLACK_BYTES),
        ("grpc.max_send_message_length", speaks.most_bytes + _SLACK_BYTES),
        ("grpc.keepalive_time_ms", ping_ms),
        ("grpc.keepalive_timeout_ms", ping_ms),
        # Without this option gRPC 1.85 waits 60 s for the answer to a ping, despite the line above.
        ("grpc.http2.ping_timeout_ms", ping_ms),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),
    ]


class GrpcLink(QueuedLink):
    """A link over one call: a queue, a task that writes and a task that reads."""

    def __init__(self, peer: str, hears: Speech, limits: Limits, stream: Any) -> None:
        super().__init__(peer, hears, limits)
        self.cut = False
        """This side dropped what waited, on purpose."""
        self._stream = stream
        self._written = 0
        self._outbox = Mailbox[bytes](peer, limits)
        self._ending = asyncio.Event()
        self._over = asyncio.Event()

    def _send(self, data: bytes) -> bool:
        if not self._outbox.fits(len(data)):
            self.cut = True
            return False
        self._outbox.put(data, len(data))
        return True

    def _finish(self, goodbye: bytes | None) -> None:
        if goodbye is not None:
            self._outbox.put(goodbye, len(goodbye))
        self._outbox.end("closed", keep=goodbye is not None)
        self._ending.set()

    async def _finished(self) -> None:
        await self._over.wait()

    async def run(self) -> None:
        """Carry messages until both directions have ended, or the end took too long."""
        # A task that waits in gRPC is never cancelled: gRPC still writes to what it waits for. The call's end frees it.
        reader = asyncio.create_task(self._read(), name=f"read {self.peer}")
        writer = asyncio.create_task(self._write(), name=f"write {self.peer}")
        try:
            await self._ending.wait()
            await self._flush({reader, writer})
        except asyncio.CancelledError:
            # So gRPC reports to the coordinator's side that the agent is gone; it can still read earlier messages.
            await asyncio.wait({reader}, timeout=FLUSH_S)
            self.lose(LOST)
            raise
        finally:
            self._over.set()

    async def _flush(self, tasks: set[asyncio.Task[None]]) -> None:
        if self.cut:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(FLUSH_AT_MOST_S):
                last_written = -1
                while tasks and last_written != self._written:
                    last_written = self._written
                    _, tasks = await asyncio.wait(tasks, timeout=FLUSH_S)

    async def _read(self) -> None:
        why = LOST
        try:
            while (data := await self._stream.read()) is not aio.EOF:
                self.hear(data)
                await self._inbox.room()
        except (*FAILURES, asyncio.CancelledError) as error:
            why = _story(error)
        self.lose(why)

    async def _write(self) -> None:
        try:
            while True:
                await self._stream.write(await self._outbox.take())
                self._written += 1
        except LinkClosedError:
            await self._half_close()
        except (*FAILURES, asyncio.CancelledError):
            pass  # The reader learns the reason.

    async def _half_close(self) -> None:
        try:
            if hasattr(self._stream, "done_writing"):
                await self._stream.done_writing()
        except (*FAILURES, asyncio.CancelledError):
            pass  # The reader learns the reason.


def _story(error: BaseException) -> str:
    if not isinstance(error, aio.AioRpcError) or error.code() == grpc.StatusCode.INTERNAL:
        return LOST
    if error.code() == grpc.StatusCode.ABORTED:
        return str(error.details())
    return f"{LOST} ({error.details()})"


class ServerStream:
    """A call at the coordinator's side; gRPC forbids to use a call after its handler has returned."""

    def __init__(self, context: Any) -> None:
        self._context = context

    def end(self) -> None:
        """The handler returns. Drops the call, for gRPC counts it as open as long as an object refers to it."""
        self._context = None

    async def read(self) -> Any:
        """The next message or EOF."""
        return aio.EOF if self._context is None else await self._context.read()

    async def write(self, data: bytes) -> None:
        """Send one message."""
        if self._context is None:
            raise LinkClosedError(LOST)
        await self._context.write(data)
