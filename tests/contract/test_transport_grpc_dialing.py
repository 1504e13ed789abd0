"""How an agent finds its coordinator, and its error when it does not."""

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import pytest

from sparktrain.base.clock import SystemClock
from sparktrain.errors import DriverUnreachableError
from sparktrain.protocol.grpc import GrpcDialer, GrpcListener
from sparktrain.protocol.grpc_without_fork_handlers import aio, grpc
from sparktrain.protocol.transport import LinkClosedError, ListenError, Unreachable
from tests.support.transports import JOIN, GrpcHarness, stage

NOBODY = ("127.0.0.1", 1)


@contextmanager
def free_port() -> Iterator[int]:
    """A port that is bound and not listened on, so that connections to it are refused."""
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        yield holder.getsockname()[1]


@asynccontextmanager
async def mute_server() -> AsyncIterator[int]:
    """The port of a server that accepts connections and sends nothing."""
    held: list[asyncio.StreamWriter] = []
    server = await asyncio.start_server(lambda _, writer: held.append(writer), "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        for writer in held:
            writer.close()
        server.close()


class CountingClock(SystemClock):
    """Does not sleep, and reports when it should have three times."""

    def __init__(self) -> None:
        self.sleeps = 0
        self.third = asyncio.Event()

    async def sleep(self, seconds: float) -> None:
        self.sleeps += 1
        if self.sleeps == 3:
            self.third.set()
        await asyncio.sleep(0)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::ffff:127.0.0.1", "127.0.1.1"])
async def test_any_address_of_the_driver_will_do(grpc_harness: GrpcHarness, host: str) -> None:
    listener = GrpcListener("0.0.0.0", (0,), grpc_harness.certificates.server)
    accepted = asyncio.Event()

    async def on_link(_: object) -> None:
        accepted.set()

    _, port = await listener.start(on_link, None)  # type: ignore[arg-type]
    dialer = GrpcDialer(grpc_harness.ticket(("", port), host))
    link = await dialer.attend(10)
    assert link.peer.endswith(f":{port}")
    await accepted.wait()
    await dialer.close()
    await listener.close(1)


async def test_tries_the_hosts_in_turn(grpc_harness: GrpcHarness) -> None:
    async with stage(grpc_harness) as scene:
        ticket = grpc_harness.ticket(scene.address, "no-such-host.invalid", "127.0.0.2", "127.0.0.1")
        dialer = GrpcDialer(ticket)
        link = await dialer.attend(10)
        assert link.peer == f"127.0.0.1:{scene.address[1]}"
        await dialer.close()


async def test_tries_again_until_the_coordinator_is_there(grpc_harness: GrpcHarness) -> None:
    clock = CountingClock()
    with free_port() as port:
        attending = asyncio.ensure_future(GrpcDialer(grpc_harness.ticket(("127.0.0.1", port)), clock=clock).attend(30))
        await clock.third.wait()
    listener = GrpcListener("127.0.0.1", (port,), grpc_harness.certificates.server)
    accepted = asyncio.Event()

    async def on_link(_: object) -> None:
        accepted.set()

    await listener.start(on_link, None)  # type: ignore[arg-type]
    await attending
    await accepted.wait()
    await listener.close(1)


async def test_unreachable_names_each_address_with_its_cause(grpc_harness: GrpcHarness) -> None:
    with free_port() as port:
        ticket = grpc_harness.ticket(("", port), "no-such-host.invalid", "127.0.0.1")
        with pytest.raises(Unreachable) as caught:
            async with asyncio.timeout(5):
                await GrpcDialer(ticket).attend(1.0)
    text = str(caught.value)
    assert isinstance(caught.value, DriverUnreachableError)
    assert "no-such-host.invalid: name not resolved" in text
    assert "127.0.0.1: connection refused" in text
    assert f"port {port} within 1 s" in text


async def test_mute_server_costs_its_share_of_the_deadline(grpc_harness: GrpcHarness) -> None:
    async with mute_server() as port:
        ticket = grpc_harness.ticket(("", port), "127.0.0.1", "127.0.0.2")
        with pytest.raises(Unreachable, match=r"127\.0\.0\.1: no answer within 0\.5 s.*127\.0\.0\.2: connection refu"):
            async with asyncio.timeout(3):
                await GrpcDialer(ticket).attend(1.0)


async def test_no_host_at_all(grpc_harness: GrpcHarness) -> None:
    ticket = grpc_harness.ticket(NOBODY)
    with pytest.raises(Unreachable):
        await GrpcDialer(type(ticket)("p", (), 1, ticket.certificates)).attend(0.2)


async def test_another_version_of_the_protocol_is_told_at_once(grpc_harness: GrpcHarness) -> None:
    server = aio.server()
    bundle = grpc_harness.certificates.server
    pair = [(bundle.key, bundle.certificate)]
    port = server.add_secure_port("127.0.0.1:0", grpc.ssl_server_credentials(pair, bundle.authority, True))
    await server.start()
    async with asyncio.timeout(5):
        with pytest.raises(Unreachable, match="speaks another version of the protocol"):
            await GrpcDialer(grpc_harness.ticket(("127.0.0.1", port))).attend(60)
    await server.stop(None)


async def test_cancelled_attend_leaves_nothing_behind(grpc_harness: GrpcHarness) -> None:
    async with mute_server() as port:
        dialer = GrpcDialer(grpc_harness.ticket(("127.0.0.1", port)))
        attending = asyncio.ensure_future(dialer.attend(60))
        await asyncio.sleep(0)
        attending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await attending
        await dialer.close()


async def test_attend_again_closes_the_link_before(grpc_harness: GrpcHarness) -> None:
    async with stage(grpc_harness) as scene:
        dialer = scene.dialer()
        first = await dialer.attend(10)
        second = await dialer.attend(10)
        with pytest.raises(LinkClosedError, match="closed here"):
            await first.receive()
        second.post(JOIN)
        await scene.accepted.get()
        assert await (await scene.accepted.get()).receive() == JOIN


async def test_takes_the_first_free_port_of_a_range(grpc_harness: GrpcHarness) -> None:
    async with stage(grpc_harness) as scene:
        taken = scene.address[1]
        with free_port() as free:
            pass
        listener = GrpcListener("127.0.0.1", (taken, free), grpc_harness.certificates.server)
        assert await listener.start(scene.on_link, scene.take) == ("127.0.0.1", free)
        await listener.close(1)
        # A coordinator that starts again gets its port at once.
        again = GrpcListener("127.0.0.1", (free,), grpc_harness.certificates.server)
        assert await again.start(scene.on_link, scene.take) == ("127.0.0.1", free)
        await again.close(1)


async def test_address_that_cannot_be_bound_is_an_error(grpc_harness: GrpcHarness) -> None:
    async with stage(grpc_harness) as scene:
        taken = GrpcListener("127.0.0.1", (scene.address[1],), grpc_harness.certificates.server)
        with pytest.raises(ListenError, match=f"port {scene.address[1]}: .*in use"):
            await taken.start(scene.on_link, scene.take)
        await taken.close(1)
        foreign = GrpcListener("192.0.2.7", (0,), grpc_harness.certificates.server)
        with pytest.raises(ListenError, match=r"cannot listen on 192\.0\.2\.7: port 0: .*Cannot assign"):
            await foreign.start(scene.on_link, scene.take)
        await foreign.close(1)
