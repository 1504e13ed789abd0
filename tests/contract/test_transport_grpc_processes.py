"""Two processes with a gRPC link between them, and one of them killed or stopped."""

import asyncio
import os
import pickle
import signal
import socket
import sys
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from sparktrain.protocol.grpc import GrpcDialer
from sparktrain.protocol.messages import UploadDone, UploadHeader
from sparktrain.protocol.transport import Link, LinkClosedError
from tests.support.transports import HEADER, JOIN, WELCOME, GrpcHarness, Stage, beat, chunks_of, endless, stage

PEERS = Path(__file__).with_name("peers.py")


@asynccontextmanager
async def peer(
    subject: Any, what: str = "", before: tuple[str, ...] = (), **env: str
) -> AsyncIterator[asyncio.subprocess.Process]:
    """The other side, in a process that is gone at the end; its command starts with `before`."""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        *before,
        sys.executable,
        str(PEERS),
        stdin=pipe,
        stdout=pipe,
        stderr=pipe,
        env={**os.environ, "PYTHONPATH": ".", **env},
    )
    assert process.stdin
    process.stdin.write(pickle.dumps((subject, what)))
    process.stdin.close()
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def line(process: asyncio.subprocess.Process) -> str:
    """The next line of the process."""
    assert process.stdout
    text = (await process.stdout.readline()).decode().strip()
    assert text, (await process.communicate())[1].decode()
    return text


async def greeted(scene: Stage, process: asyncio.subprocess.Process) -> Link:
    """The coordinator's side of the link to the agent in `process`."""
    link = await scene.accepted.get()
    assert await link.receive() == JOIN
    link.post(WELCOME)
    assert await line(process) == "ready"
    return link


async def ended(receiving: Awaitable[object], within_s: float) -> str:
    """Why a link has ended, in time."""
    async with asyncio.timeout(within_s):
        with pytest.raises(LinkClosedError) as caught:
            await receiving
    return str(caught.value)


async def receive_to_the_end(link: Link) -> None:
    while True:
        await link.receive()


@pytest.mark.parametrize("what", ["stay", "heartbeat"])
async def test_killed_agent_is_noticed_within_a_second(grpc_harness: GrpcHarness, what: str) -> None:
    async with stage(grpc_harness) as scene, peer(grpc_harness.ticket(scene.address), what) as process:
        good = await scene.pair()
        link = await greeted(scene, process)
        process.kill()
        assert "lost" in await ended(receive_to_the_end(link), 1)
        with pytest.raises(LinkClosedError):
            link.post(WELCOME)
        await beat(*good)


async def test_upload_of_a_killed_agent_is_no_complete_file(grpc_harness: GrpcHarness) -> None:
    async with stage(grpc_harness) as scene, peer(grpc_harness.ticket(scene.address), "upload") as process:
        began = asyncio.Event()
        ends: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()

        async def watch(header: UploadHeader, chunks: AsyncIterator[bytes]) -> UploadDone:
            try:
                async for _ in chunks:
                    began.set()
            except BaseException as error:
                ends.set_result(error)
                raise
            return UploadDone(0)

        scene.on_upload = watch
        await greeted(scene, process)
        await began.wait()
        process.kill()
        async with asyncio.timeout(1):
            assert isinstance(await ends, LinkClosedError)


async def test_killed_coordinator_is_noticed_within_a_second(grpc_harness: GrpcHarness) -> None:
    async with peer(grpc_harness.certificates.server) as process:
        dialer = GrpcDialer(grpc_harness.ticket(("127.0.0.1", int(await line(process)))))
        link = await dialer.attend(10)
        link.post(JOIN)
        upload = asyncio.ensure_future(dialer.upload(HEADER, endless()))
        await asyncio.sleep(0)
        process.kill()
        assert "lost" in await ended(link.receive(), 1)
        assert await ended(upload, 1)
        await dialer.close()


async def test_stopped_agent_is_noticed_by_pings(quick_harness: GrpcHarness) -> None:
    async with stage(quick_harness) as scene, peer(quick_harness.ticket(scene.address)) as process:
        good = await scene.pair()
        link = await greeted(scene, process)
        process.send_signal(signal.SIGSTOP)
        assert "lost" in await ended(link.receive(), quick_harness.dead_after_s + 2)
        await beat(*good)


async def test_stopped_coordinator_is_noticed_by_pings(quick_harness: GrpcHarness) -> None:
    async with peer(quick_harness.certificates.server) as process:
        port = int(await line(process))
        dialer = quick_harness.dialer(("127.0.0.1", port), Stage(quick_harness).limits)
        link = await dialer.attend(10)
        process.send_signal(signal.SIGSTOP)
        assert "lost" in await ended(link.receive(), quick_harness.dead_after_s + 2)
        process.send_signal(signal.SIGCONT)
        await dialer.close()


async def test_orderly_agent_prints_nothing(grpc_harness: GrpcHarness) -> None:
    async with stage(grpc_harness) as scene:
        process_made = peer(grpc_harness.ticket(scene.address), "leave", PYTHONWARNINGS="error")
        async with process_made as process:
            link = await greeted(scene, process)
            await ended(link.receive(), 5)
            _, stderr = await process.communicate()
            assert stderr == b""
            assert process.returncode == 0


async def test_children_inherit_no_socket(grpc_harness: GrpcHarness) -> None:
    async with stage(grpc_harness) as scene:
        await scene.pair()
        listing = "import os; print([os.path.realpath(entry) for entry in os.scandir('/proc/self/fd')])"
        child = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            listing,
            stdout=asyncio.subprocess.PIPE,
            close_fds=False,
        )
        assert b"socket" not in (await child.communicate())[0]


async def test_idle_connections_leave_a_coordinator_its_descriptors(grpc_harness: GrpcHarness) -> None:
    limited = ("sh", "-c", 'ulimit -n 400; exec "$@"', "sh")
    async with peer(grpc_harness.certificates.server, before=limited) as process:
        address = ("127.0.0.1", int(await line(process)))
        dialer = GrpcDialer(grpc_harness.ticket(address))
        await dialer.attend(10)
        hosts = [f"127.0.1.{number}" for number in range(1, 101)]
        idle = [socket.create_connection(address, 10, (host, 0)) for host in hosts for _ in range(12)]
        late = GrpcDialer(grpc_harness.ticket(address))
        await late.attend(10)
        for each in (dialer, late):
            assert await each.upload(HEADER, chunks_of(b"a record")) == UploadDone(8)
            await each.close()
        for connection in idle:
            connection.close()
