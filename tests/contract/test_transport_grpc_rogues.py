"""What a peer with the right certificate can do: end its own link, and nothing else."""

import asyncio
import logging
import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from sparktrain.protocol import codec
from sparktrain.protocol import messages as m
from sparktrain.protocol.grpc_link import ServerStream
from sparktrain.protocol.grpc_without_fork_handlers import aio
from sparktrain.protocol.link_rules import Closing, Refusal
from sparktrain.protocol.transport import CHUNK_BYTES, FLUSH_S, Link, LinkClosedError
from sparktrain.state.message import LARGEST_OF_AGENT_BYTES, Message
from tests.support.transports import (
    FROM_AGENT,
    HEADER,
    JOIN,
    MEMBER,
    TO_AGENT,
    GrpcHarness,
    Rogue,
    Stage,
    beat,
    many,
    stage,
)

MALFORMED = 2_000
SEED = 20_260_714

DEEP = codec.encode(JOIN).replace(b"\xa7devices\x92\xa10\xa11", b"\xa7devices" + b"\x91" * 60_000 + b"\xc0")
"""A message that is nested more deeply than Python's stack."""
assert len(DEEP) > 60_000, "the field of JOIN has another name now"

BAD_FRAMES = (
    b"",
    b"\xc1",
    b"\xdd\xff\xff\xff\xff",
    b"\xdf\xff\xff\xff\xff",
    b"\xc6\xff\xff\xff\xff",
    b"\x80",
    codec.encode(JOIN)[:-1],
    codec.encode(JOIN) + b"\x00",
    codec.encode(TO_AGENT[0]),
    codec.encode(HEADER),
    bytes(100_000),
    DEEP,
)


def mutated(dice: random.Random) -> bytes:
    """A message of an agent, cut, flipped, doubled or mixed with another."""
    data = bytearray(codec.encode(dice.choice(FROM_AGENT + TO_AGENT)))
    for _ in range(dice.randint(1, 4)):
        at = dice.randrange(len(data) + 1)
        match dice.randrange(4):
            case 0:
                data[at : at + 1] = dice.randbytes(dice.randint(0, 3))
            case 1:
                del data[at:]
            case 2:
                data += data[:at]
            case 3:
                data[at:at] = dice.choice((b"\xdf\xff\xff\xff\xff", b"\x91" * 50, b"\xcf" + b"\xff" * 8))
    return bytes(data)


async def drain(scene: Stage) -> str:
    """Why the rogue's link ended, at the coordinator's side."""
    link: Link = await scene.accepted.get()
    try:
        while True:
            await link.receive()
    except LinkClosedError as error:
        return str(error)


async def farewell(call: Any) -> str:
    """The last message that the coordinator sent to the rogue."""
    last = b""
    try:
        while (data := await call.read()) is not aio.EOF:
            last = data
    except aio.AioRpcError as error:
        return str(error.details())
    return str(codec.decode(last, Closing).reason)


def begun_uploads(scene: Stage) -> asyncio.Queue[str]:
    """The name of each upload that the coordinator has started to store."""
    began = asyncio.Queue[str]()

    async def store(header: m.UploadHeader, chunks: AsyncIterator[bytes]) -> m.UploadDone:
        began.put_nowait(header.name)
        return await scene.store(header, chunks)

    scene.on_upload = store
    return began


@pytest.mark.parametrize("frame", BAD_FRAMES, ids=range(len(BAD_FRAMES)))
async def test_malformed_message_ends_that_link_with_the_reason(grpc_harness: GrpcHarness, frame: bytes) -> None:
    async with stage(grpc_harness) as scene:
        good = await scene.pair()
        async with Rogue(scene.address[1], grpc_harness.certificates.agent) as rogue:
            call = await rogue.attend(frame)
            assert "ProtocolError" in await drain(scene)
            await call.done_writing()
            assert "ProtocolError" in await farewell(call)
        await beat(*good)


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


@pytest.mark.timeout(240)
async def test_fuzzed_messages_end_their_links_only(
    grpc_harness: GrpcHarness, caplog: pytest.LogCaptureFixture
) -> None:
    dice = random.Random(SEED)
    async with stage(grpc_harness) as scene:
        good = await scene.pair()
        async with Rogue(scene.address[1], grpc_harness.certificates.agent) as rogue:
            for sent in range(MALFORMED):
                call = await rogue.attend(*[codec.encode(JOIN)] * dice.randrange(2), mutated(dice))
                await call.done_writing()  # For those that happen to be in order.
                assert await drain(scene)
                call.cancel()
                if sent % 100 == 0:
                    await beat(*good)
                if sent == MALFORMED // 10:
                    warm = resident_bytes()
        assert resident_bytes() - warm < 30 * 2**20
        assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


@pytest.mark.parametrize("beyond", [1, 3 * 2**20, 32 * 2**20], ids=["just above", "far above", "32 MiB"])
async def test_message_above_the_limit_ends_that_link(grpc_harness: GrpcHarness, beyond: int) -> None:
    async with stage(grpc_harness) as scene:
        good = await scene.pair()
        async with Rogue(scene.address[1], grpc_harness.certificates.agent) as rogue:
            call = await rogue.attend(bytes(LARGEST_OF_AGENT_BYTES + beyond))
            why = await drain(scene)
            if beyond == 1:
                assert f"{LARGEST_OF_AGENT_BYTES + 1:,} bytes is larger than the limit" in why
            call.cancel()
        await beat(*good)


@pytest.mark.parametrize("large", [m.Leave("x" * 2**17), m.CheckpointFailed(MEMBER, 1, "x" * 2**17)])
async def test_each_kind_of_message_has_its_own_limit(grpc_harness: GrpcHarness, large: Message) -> None:
    async with stage(grpc_harness) as scene:
        good = await scene.pair()
        async with Rogue(scene.address[1], grpc_harness.certificates.agent) as rogue:
            call = await rogue.attend(codec.encode(JOIN), codec.encode(large))
            problem = (
                f"{type(large).__name__} of {len(codec.encode(large)):,} bytes is larger than the limit of 65,536 by"
            )
            assert problem in await drain(scene)
            call.cancel()
        await beat(*good)


async def test_peer_that_does_not_stop_after_the_end_is_cut_off(grpc_harness: GrpcHarness) -> None:
    async with (
        stage(grpc_harness) as scene,
        Rogue(scene.address[1], grpc_harness.certificates.agent) as rogue,
        asyncio.timeout(FLUSH_S + 2),
    ):
        call = await rogue.attend(codec.encode(Closing("bye")))
        assert "bye" in await drain(scene)
        await call.code()


async def test_endless_uploads_do_not_hold_up_the_end(grpc_harness: GrpcHarness) -> None:
    async with stage(grpc_harness) as scene:
        began = begun_uploads(scene)
        await scene.pair()
        async with Rogue(scene.address[1], grpc_harness.certificates.agent) as rogue:
            calls = [await rogue.upload(codec.encode(HEADER), b"x") for _ in range(10)]
            async with asyncio.timeout(5):
                for _ in calls:
                    await began.get()
                await scene.listener.close(0.1)
                for call in calls:
                    assert "closing" in await farewell(call)


async def test_an_upload_whose_header_comes_while_the_coordinator_closes_gets_the_reason(
    grpc_harness: GrpcHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    arrived = asyncio.Queue[None]()

    class Observed(ServerStream):
        def __init__(self, context: Any) -> None:
            super().__init__(context)
            arrived.put_nowait(None)

    async with stage(grpc_harness) as scene:
        began = begun_uploads(scene)
        async with Rogue(scene.address[1], grpc_harness.certificates.agent) as rogue, asyncio.timeout(5):
            await rogue.upload(codec.encode(HEADER), b"x")
            await began.get()  # It holds up the end for the whole grace.
            monkeypatch.setattr("sparktrain.protocol.grpc.ServerStream", Observed)
            late = await rogue.upload()
            await arrived.get()
            ending = asyncio.create_task(scene.listener.close(0.5))
            for _ in range(5):
                await asyncio.sleep(0)  # It has come to the wait for the first upload: there is no link to close.
            await late.write(codec.encode(HEADER))
            assert "closing" in await farewell(late)
            await ending


@pytest.mark.parametrize(
    ("frames", "why"),
    [
        ((b"\xc1",), "ProtocolError"),
        ((codec.encode(JOIN),), "ProtocolError"),
        ((codec.encode(HEADER), bytes(CHUNK_BYTES + 1)), "larger than 1,048,576 bytes"),
    ],
    ids=["no header", "wrong header", "chunk too large"],
)
async def test_malformed_upload_is_refused(grpc_harness: GrpcHarness, frames: tuple[bytes, ...], why: str) -> None:
    async with stage(grpc_harness) as scene:
        agent, here = await scene.pair()
        async with Rogue(scene.address[1], grpc_harness.certificates.agent) as rogue:
            call = await rogue.upload(*frames)
            assert why in codec.decode(await call.read(), Refusal).reason
        assert scene.files == {}
        await beat(agent, here)


async def test_half_closed_upload_without_an_end_is_no_complete_file(grpc_harness: GrpcHarness) -> None:
    async with stage(grpc_harness) as scene:
        await scene.pair()
        async with Rogue(scene.address[1], grpc_harness.certificates.agent) as rogue:
            call = await rogue.upload(codec.encode(HEADER), b"half of it")
            await call.done_writing()
            assert "lost" in codec.decode(await call.read(), Refusal).reason
        assert scene.files == {}


async def test_churn_of_links_and_uploads(grpc_harness: GrpcHarness, caplog: pytest.LogCaptureFixture) -> None:
    async with stage(grpc_harness) as scene:
        good = await scene.pair()

        async def visitor(number: int) -> None:
            dialer = scene.dialer()
            await dialer.attend(20)
            upload = asyncio.ensure_future(dialer.upload(HEADER, many(number % 4)))
            if number % 3:
                await upload
            if number % 2:
                await grpc_harness.vanish(dialer)
            await dialer.close()
            await asyncio.gather(upload, return_exceptions=True)

        for _ in range(10):
            await asyncio.gather(*(visitor(number) for number in range(20)))
            await beat(*good)
        assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []
