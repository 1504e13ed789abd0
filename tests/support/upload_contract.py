"""What every transport promises of uploads, as tests: a part of `TransportContract`."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from sparktrain.protocol.messages import UploadDone, UploadHeader
from sparktrain.protocol.transport import CHUNK_BYTES, LinkClosedError, UploadRefusedError
from tests.support.transports import (
    HEADER,
    JOIN,
    MEMBER,
    ContractBase,
    Stage,
    TransportHarness,
    beat,
    broken,
    chunks_of,
    digest,
    endless,
    many,
    stage,
)


class UploadContract(ContractBase):
    """Files."""

    @pytest.mark.parametrize("size", [0, 1, 20_000_000])
    async def test_file_arrives_whole(self, harness: TransportHarness, size: int) -> None:
        data = bytes(range(251)) * (size // 251) + bytes(size % 251)
        async with stage(harness) as scene:
            await scene.pair()
            parts = (data[:0], data[:1], b"", data[1:])
            assert await scene.dialers[-1].upload(HEADER, chunks_of(*parts)) == UploadDone(size)
            assert scene.files == {HEADER.name: digest(data)}

    async def test_two_at_once_beside_messages(self, harness: TransportHarness) -> None:
        async with stage(harness) as scene:
            agent, here = await scene.pair()
            names = ("a", "b")
            uploads = [
                asyncio.ensure_future(
                    scene.dialers[-1].upload(UploadHeader(agent=JOIN.agent, member=MEMBER, name=name), many(8))
                )
                for name in names
            ]
            for _ in range(10):
                await beat(agent, here)
            assert await asyncio.gather(*uploads) == [UploadDone(8 * CHUNK_BYTES)] * 2
            assert scene.files == dict.fromkeys(names, digest(bytes(8 * CHUNK_BYTES)))

    async def test_crowd_of_uploads_waits_for_its_turn(self, harness: TransportHarness) -> None:
        async with stage(harness) as scene:
            names, uploads = [], []
            for number in range(24):
                await scene.pair()
                for file in range(100):
                    names.append(f"{number}-{file}")
                    header = UploadHeader(agent=JOIN.agent, member=MEMBER, name=names[-1])
                    uploads.append(scene.dialers[-1].upload(header, chunks_of(b"x")))
            assert await asyncio.gather(*uploads) == [UploadDone(1)] * len(names)
            assert scene.files == dict.fromkeys(names, digest(b"x"))

    async def test_slow_store_holds_the_sender_back_but_no_message(self, harness: TransportHarness) -> None:
        async with stage(harness) as scene:
            agent, here = await scene.pair()
            gate, flowing, sent = asyncio.Event(), asyncio.Event(), 0

            async def slow(header: UploadHeader, chunks: AsyncIterator[bytes]) -> UploadDone:
                await gate.wait()
                return await scene.store(header, chunks)

            async def source() -> AsyncIterator[bytes]:
                nonlocal sent
                async for chunk in many(100):
                    sent += 1
                    yield chunk
                    flowing.set()

            scene.on_upload = slow
            upload = asyncio.ensure_future(scene.dialers[-1].upload(HEADER, source()))
            await flowing.wait()
            for _ in range(300):
                await beat(agent, here)
            assert sent < 50
            gate.set()
            assert await upload == UploadDone(100 * CHUNK_BYTES)

    async def test_refusal_reaches_the_sender_as_text(self, harness: TransportHarness) -> None:
        async with stage(harness) as scene:
            agent, here = await scene.pair()

            async def refuse(_: UploadHeader, chunks: AsyncIterator[bytes]) -> UploadDone:
                async for _chunk in chunks:
                    raise UploadRefusedError("the name [../ü] leaves the directory\nof the member")
                raise AssertionError("no chunk came")

            scene.on_upload = refuse
            with pytest.raises(UploadRefusedError, match=r"^the name \[../ü\] leaves the directory\nof the member$"):
                await scene.dialers[-1].upload(HEADER, many(10_000))
            await beat(agent, here)

    async def test_store_that_fails_after_the_last_chunk(self, harness: TransportHarness) -> None:
        async with stage(harness) as scene:
            await scene.pair()

            async def full(_: UploadHeader, chunks: AsyncIterator[bytes]) -> UploadDone:
                assert [chunk async for chunk in chunks] == [b"x"]
                raise OSError(28, "No space left on device")

            scene.on_upload = full
            with pytest.raises(UploadRefusedError, match=r"^OSError: .*No space left on device$"):
                await scene.dialers[-1].upload(HEADER, chunks_of(b"x"))

    async def test_lost_sender_is_no_complete_file(self, harness: TransportHarness) -> None:
        async with stage(harness) as scene:
            await scene.pair()
            ends, began = self._record_end(scene)
            upload = asyncio.ensure_future(scene.dialers[-1].upload(HEADER, endless()))
            await began.wait()
            await harness.vanish(scene.dialers[-1])
            assert isinstance(await ends, LinkClosedError)
            assert scene.files == {}
            with pytest.raises(LinkClosedError):
                await upload

    async def test_sender_that_fails_or_is_cancelled_is_no_complete_file(self, harness: TransportHarness) -> None:
        async with stage(harness) as scene:
            agent, here = await scene.pair()
            ends, began = self._record_end(scene)
            with pytest.raises(ZeroDivisionError):
                await scene.dialers[-1].upload(HEADER, broken(began))
            assert isinstance(await ends, LinkClosedError)
            ends, began = self._record_end(scene)
            upload = asyncio.ensure_future(scene.dialers[-1].upload(HEADER, endless()))
            await began.wait()
            upload.cancel()
            assert isinstance(await ends, LinkClosedError)
            with pytest.raises(asyncio.CancelledError):
                await upload
            assert scene.files == {}
            await beat(agent, here)

    async def test_closing_dialer_ends_its_uploads(self, harness: TransportHarness) -> None:
        async with stage(harness) as scene:
            await scene.pair()
            ends, began = self._record_end(scene)
            upload = asyncio.ensure_future(scene.dialers[-1].upload(HEADER, endless()))
            await began.wait()
            await scene.dialers[-1].close()
            with pytest.raises(LinkClosedError, match="closed here"):
                await upload
            assert isinstance(await ends, LinkClosedError)

    async def test_closing_listener_ends_uploads_after_its_grace(self, harness: TransportHarness) -> None:
        async with stage(harness) as scene:
            await scene.pair()
            ends, began = self._record_end(scene)
            upload = asyncio.ensure_future(scene.dialers[-1].upload(HEADER, endless()))
            await began.wait()
            await scene.listener.close(0.1)
            with pytest.raises(LinkClosedError, match="closing"):
                await upload
            assert isinstance(await ends, asyncio.CancelledError | LinkClosedError)

    def _record_end(self, scene: Stage) -> tuple[asyncio.Future[BaseException], asyncio.Event]:
        ends: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()
        began = asyncio.Event()

        async def watch(header: UploadHeader, chunks: AsyncIterator[bytes]) -> UploadDone:
            try:
                async for _ in chunks:
                    began.set()
                return await scene.store(header, chunks_of())
            except BaseException as error:
                ends.set_result(error)
                raise

        scene.on_upload = watch
        return ends, began
