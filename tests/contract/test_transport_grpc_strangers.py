"""A peer outside the run gets nothing from a gRPC listener, and disturbs no agent."""

import asyncio
import os
import re
import socket
import ssl
from collections.abc import Coroutine
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

import pytest

from sparktrain.base.clock import SystemClock
from sparktrain.protocol.certificates import CertificateKeeper, issue
from sparktrain.protocol.credentials import SERVER_NAME, CertificateBundle
from sparktrain.protocol.gate import STRANGERS_OF_ADDRESS
from sparktrain.protocol.grpc import GrpcDialer, GrpcListener
from sparktrain.protocol.grpc_without_fork_handlers import aio, grpc
from sparktrain.protocol.messages import Heartbeat, UploadDone
from sparktrain.protocol.ticket import AgentTicket
from sparktrain.protocol.transport import Unreachable
from tests.support.transports import HEADER, JOIN, GrpcHarness, Rogue, Stage, beat, chunks_of, stage

CONNECTIONS = 200


async def refused_call(channel: Any) -> grpc.StatusCode:
    async with channel:
        call = channel.stream_stream("/sparktrain.v1.Coordinator/Attend")()
        code: grpc.StatusCode = await call.code()
        return code


async def without_certificate(scene: Stage, bundle: CertificateBundle) -> None:
    options = [("grpc.ssl_target_name_override", SERVER_NAME)]
    credentials = grpc.ssl_channel_credentials(bundle.authority)
    code = await refused_call(aio.secure_channel(f"127.0.0.1:{scene.address[1]}", credentials, options))
    assert code == grpc.StatusCode.UNAVAILABLE


async def certificate_of_another_run(scene: Stage, bundle: CertificateBundle) -> None:
    other = issue("other").agent
    mixed = CertificateBundle(bundle.authority, other.certificate, other.key)
    async with Rogue(scene.address[1], mixed) as rogue:
        call = await rogue.attend()
        assert await call.code() == grpc.StatusCode.UNAVAILABLE


async def plain_text(scene: Stage, _: CertificateBundle) -> None:
    code = await refused_call(aio.insecure_channel(f"127.0.0.1:{scene.address[1]}"))
    assert code == grpc.StatusCode.UNAVAILABLE


async def random_bytes(scene: Stage, _: CertificateBundle) -> None:
    for _attempt in range(20):
        reader, writer = await asyncio.open_connection(*scene.address)
        writer.write(os.urandom(500))
        assert len(await reader.read()) < 16
        writer.close()


async def plain_http(scene: Stage, _: CertificateBundle) -> None:
    reader, writer = await asyncio.open_connection(*scene.address)
    writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert len(await reader.read()) < 16
    writer.close()


@pytest.mark.parametrize(
    "stranger", [without_certificate, certificate_of_another_run, plain_text, random_bytes, plain_http]
)
async def test_stranger_gets_no_link(quick_harness: GrpcHarness, stranger: Any) -> None:
    async with stage(quick_harness) as scene:
        good = await scene.pair()
        intrusion: Coroutine[Any, Any, None] = stranger(scene, quick_harness.certificates.agent)
        await intrusion
        assert scene.accepted.empty()
        await beat(*good)


async def test_silent_connections_block_nobody_and_are_closed(quick_harness: GrpcHarness) -> None:
    async with stage(quick_harness) as scene:
        good = await scene.pair()
        streams = await asyncio.gather(*(asyncio.open_connection(*scene.address) for _ in range(CONNECTIONS)))
        async with asyncio.timeout(1):
            await beat(*good)
            await beat(*await scene.pair())
        async with asyncio.timeout(5):
            assert set(await asyncio.gather(*(reader.read() for reader, _ in streams))) == {b""}
        for _, writer in streams:
            writer.close()
        assert scene.accepted.empty()
        await beat(*good)


async def test_of_many_strangers_all_but_a_few_are_closed_at_once() -> None:
    async with stage(GrpcHarness(handshake_s=60)) as scene:
        _, here = await scene.pair()
        assert re.fullmatch(r"127\.0\.0\.1:\d+", here.peer), "an agent is known by its own address"
        streams = await asyncio.gather(*(asyncio.open_connection(*scene.address) for _ in range(CONNECTIONS)))
        pending = {asyncio.ensure_future(reader.read()) for reader, _ in streams}
        async with asyncio.timeout(10):
            while len(pending) > STRANGERS_OF_ADDRESS:
                _, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
        for task in pending:
            task.cancel()
        for _, writer in streams:
            writer.close()


async def test_agent_that_opens_no_stream_is_a_stranger(quick_harness: GrpcHarness) -> None:
    async with stage(quick_harness) as scene:
        bundle = quick_harness.certificates.agent
        context = ssl.create_default_context(cadata=bundle.authority.decode())
        with NamedTemporaryFile() as file:
            file.write(bundle.certificate + bundle.key)
            file.flush()
            context.load_cert_chain(file.name)
        context.set_alpn_protocols(["h2"])
        reader, writer = await asyncio.open_connection(*scene.address, ssl=context, server_hostname=SERVER_NAME)
        async with asyncio.timeout(5):
            while await reader.read(2**16):
                pass
        writer.close()


async def test_half_a_handshake_is_closed(quick_harness: GrpcHarness) -> None:
    async with stage(quick_harness) as scene:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        with pytest.raises(ssl.SSLWantReadError):
            context.wrap_bio(incoming, outgoing).do_handshake()
        reader, writer = await asyncio.open_connection(*scene.address)
        writer.write(outgoing.read()[:100])
        async with asyncio.timeout(5):
            assert await reader.read() == b""
        writer.close()


async def test_server_shows_strangers_no_name_of_the_run(quick_harness: GrpcHarness) -> None:
    quick_harness.certificates = issue("secret-project")
    async with stage(quick_harness) as scene:
        shown = await asyncio.to_thread(ssl.get_server_certificate, scene.address)
        assert b"secret" not in ssl.PEM_cert_to_DER_cert(shown)
        for bundle in (quick_harness.certificates.server, quick_harness.certificates.agent):
            assert b"secret" not in ssl.PEM_cert_to_DER_cert(bundle.certificate.decode())


@pytest.mark.parametrize("impostor", [issue("other").server, None], ids=["another run", "an agent of this run"])
async def test_dialer_refuses_an_impostor(grpc_harness: GrpcHarness, impostor: CertificateBundle | None) -> None:
    listener = GrpcListener("127.0.0.1", (0,), impostor or grpc_harness.certificates.agent)
    scene = Stage(grpc_harness)
    address = await listener.start(scene.on_link, scene.take)
    with pytest.raises(Unreachable, match=r"127\.0\.0\.1: TLS refused"):
        await GrpcDialer(grpc_harness.ticket(address)).attend(10)
    assert scene.accepted.empty()
    await listener.close(0)


async def test_expired_certificates_are_refused(grpc_harness: GrpcHarness) -> None:
    grpc_harness.certificates = issue("old", valid_days=-0.5)
    async with stage(grpc_harness) as scene:
        with pytest.raises(Unreachable, match="TLS refused"):
            await scene.dialer().attend(10)


class WallClock(SystemClock):
    """The machine's time, and days that a test adds."""

    days = 0.0

    def wall(self) -> float:
        return super().wall() + self.days * 86_400


async def test_new_certificates_are_taken_over_without_a_break(grpc_harness: GrpcHarness) -> None:
    clock = WallClock()
    clock.days = -19.0
    keeper = CertificateKeeper("run", valid_days=20, clock=clock)
    listener = GrpcListener("127.0.0.1", (0,), keeper.server)
    scene = Stage(grpc_harness)
    address = await listener.start(scene.on_link, scene.take)

    def dialer() -> GrpcDialer:
        return GrpcDialer(AgentTicket("p", ("127.0.0.1",), address[1], keeper.agent))

    old, stays = dialer(), dialer()
    agent = await stays.attend(10)
    here = await scene.accepted.get()
    agent.post(JOIN)
    await here.receive()
    for days in (-9.9, -0.5):
        clock.days = days
        assert keeper.renew()
        listener.renew(keeper.server)
        assert await stays.upload(HEADER, chunks_of(b"x")) == UploadDone(1)
        agent.post(Heartbeat())
        assert await here.receive() == Heartbeat(), "a link that is open stays"
        fresh = dialer()
        await fresh.attend(10)
        if days == -9.9:
            await old.attend(10)
            await old.close()
            stays.renew(keeper.agent)
        await fresh.close()
    with pytest.raises(Unreachable, match="TLS refused"):
        await old.attend(10)
    await stays.attend(10)
    await stays.close()
    scene._over.set()
    await listener.close(1)


def listening(port: int) -> set[str]:
    """Local addresses, in the kernel's hexadecimal, of listening sockets with `port`."""
    lines = [
        line.split() for name in ("tcp", "tcp6") for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]
    ]
    return {line[1].rpartition(":")[0] for line in lines if line[3] == "0A" and int(line[1][-4:], 16) == port}


async def test_binds_exactly_the_given_address(grpc_harness: GrpcHarness) -> None:
    async with stage(grpc_harness) as scene:
        # gRPC takes an IPv6 socket where it can, bound to the same address: ::ffff:127.0.0.1.
        assert listening(scene.address[1]) <= {"0100007F", "0000000000000000FFFF00000100007F"}
        with socket.socket() as other:
            # Without SO_REUSEPORT no other process can take a share of the agents' connections.
            other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            with pytest.raises(OSError, match="in use"):
                other.bind(scene.address)


async def test_proxy_settings_are_ignored(grpc_harness: GrpcHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "grpc_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    async with stage(grpc_harness) as scene:
        await beat(*await scene.pair())


def test_nothing_secret_is_printed() -> None:
    ticket = AgentTicket("p", ("h",), 1, issue("p").agent)
    for text in (repr(ticket), str(ticket), f"{ticket.certificates}", repr(issue("p"))):
        assert "PRIVATE" not in text
        assert "CERTIFICATE" not in text
