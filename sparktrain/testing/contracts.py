"""What every transport promises, as tests: inherit `TransportContract` and override `harness`."""

import asyncio
from collections.abc import AsyncIterator
from typing import get_args

import pytest

from sparktrain.ids import AgentId
from sparktrain.protocol import codec
from sparktrain.protocol.messages import (
    Beat,
    BeatAck,
    Code,
    Dismiss,
    FromAgent,
    Join,
    Leave,
    MemberStarted,
    Message,
    Prepare,
    Refuse,
    StopMember,
    ToAgent,
    UploadDone,
    UploadHeader,
)
from sparktrain.protocol.transport import CHUNK_BYTES, Limits, Link, LinkClosedError, Unreachable, UploadRefusedError
from sparktrain.testing.transports import (
    FROM_AGENT,
    HEADER,
    JOIN,
    MEMBER,
    TO_AGENT,
    WELCOME,
    Stage,
    TransportHarness,
    beat,
    broken,
    chunks_of,
    digest,
    endless,
    many,
    receive_all,
    reports,
    stage,
)


@pytest.mark.asyncio
@pytest.mark.timeout(60)
class _Contract:
    @pytest.fixture
    def harness(self) -> TransportHarness:
        """The transport under test."""
        raise NotImplementedError


class LinkContract(_Contract):
    """Messages."""

    async def test_every_type_is_tried(self) -> None:
        assert {type(message) for message in FROM_AGENT} == set(get_args(FromAgent))
        assert {type(message) for message in TO_AGENT} == set(get_args(ToAgent))

    async def test_every_message_arrives_equal_and_in_order_both_ways(self, harness: TransportHarness) -> None:
        async with stage(harness) as scene:
            agent = await scene.dialer().attend(10)
            here = await scene.accepted.get()
            for message in FROM_AGENT:
                agent.post(message)
            for message in TO_AGENT:
                here.post(message)
            assert tuple(await receive_all(here, len(FROM_AGENT))) == FROM_AGENT
            assert tuple(await receive_all(agent, len(TO_AGENT))) == TO_AGENT

    async def test_10_000_messages_posted_at_once(self, harness: TransportHarness) -> None:
        async with stage(harness) as scene:
            agent, here = await scene.pair()
            for pid in range(10_000):
                agent.post(MemberStarted(MEMBER, pid))
                here.post(StopMember(MEMBER, float(pid)))
            up, down = await asyncio.gather(receive_all(here, 10_000), receive_all(agent, 10_000))
            assert up == [MemberStarted(MEMBER, pid) for pid in range(10_000)]
            assert down == [StopMember(MEMBER, float(pid)) for pid in range(10_000)]

    async def test_code_of_60_mib(self, harness: TransportHarness) -> None:
        async with stage(harness) as scene:
            agent, here = await scene.pair()
            code = Code("00ff", b"", archive=bytes(range(256)) * 4 * 1024 * 60)
            here.post(Prepare(MEMBER.run, code, ()))
            assert await agent.receive() == Prepare(MEMBER.run, code, ())

    async def test_message_above_the_limit_ends_the_link_and_names_both_sizes(self, harness: TransportHarness) -> None:
        async with stage(harness) as scene:
            agent, here = await scene.pair()
            prepare = Prepare(MEMBER.run, Code("", bytes(codec.MAX_MESSAGE_BYTES)), ())
            sizes = rf"{len(codec.encode(prepare)):,} bytes.*{codec.MAX_MESSAGE_BYTES:,} bytes"
            here.post(BeatAck())
            with pytest.raises(LinkClosedError, match=sizes):
                here.post(prepare)
            assert await agent.receive() == BeatAck()
            with pytest.raises(LinkClosedError, match=sizes):
                await agent.receive()

    async def test_cancelled_receive_loses_nothing(self, harness: TransportHarness) -> None:
        async with stage(harness) as scene:
            agent, here = await scene.pair()
            for pid in range(20):
                waiting = asyncio.ensure_future(here.receive())
                await asyncio.sleep(0)
                waiting.cancel()
                agent.post(MemberStarted(MEMBER, pid))
                assert await here.receive() == MemberStarted(MEMBER, pid)

    async def test_50_links_at_once(self, harness: TransportHarness) -> None:
        async with stage(harness) as scene:
            agents = await asyncio.gather(*(scene.dialer().attend(30) for _ in range(50)))
            for slot, agent in enumerate(agents):
                agent.post(Join(agent=AgentId(str(slot)), slot=slot, host="h", pid=1, versions={}))
            for here in [await scene.accepted.get() for _ in agents]:
                join = await here.receive()
                assert isinstance(join, Join)
                here.post(Refuse(str(join.slot)))
            assert [await agent.receive() for agent in agents] == [Refuse(str(slot)) for slot in range(50)]


class ClosingContract(_Contract):
    """Ends of links."""

    async def test_close_reaches_the_other_side_with_its_reason(self, harness: TransportHarness) -> None:
        async with stage(harness) as scene:
            agent, here = await scene.pair()
            await agent.close("the task was killed")
            with pytest.raises(LinkClosedError, match="the task was killed"):
                await here.receive()
            agent, here = await scene.pair()
            await here.close("the run is over")
            with pytest.raises(LinkClosedError, match="the run is over"):
                await agent.receive()

    async def test_errors_name_the_peer(self, harness: TransportHarness) -> None:
        async with stage(harness) as scene:
            agent, here = await scene.pair()
            await agent.close()
            with pytest.raises(LinkClosedError) as there:
                await here.receive()
            assert here.peer
            assert here.peer in str(there.value)
            with pytest.raises(LinkClosedError, match="closed here") as own:
                await agent.receive()
            assert agent.peer in str(own.value)

    async def test_post_after_close_raises_at_both_sides(self, harness: TransportHarness) -> None:
        async with stage(harness) as scene:
            agent, here = await scene.pair()
            await agent.close("enough")
            with pytest.raises(LinkClosedError, match="enough"):
                await here.receive()
            for link in (agent, here):
                with pytest.raises(LinkClosedError):
                    link.post(Beat())

    async def test_close_flushes_what_was_posted(self, harness: TransportHarness) -> None:
        async with stage(harness) as scene:
            agent, here = await scene.pair()
            for pid in range(2_000):
                agent.post(MemberStarted(MEMBER, pid))
            await agent.close("done")
            assert await receive_all(here, 2_000) == [MemberStarted(MEMBER, pid) for pid in range(2_000)]
            with pytest.raises(LinkClosedError, match="done"):
                await here.receive()

    async def test_close_twice_at_once_and_from_both_sides(self, harness: TransportHarness) -> None:
        async with stage(harness) as scene:
            agent, here = await scene.pair()
            await asyncio.gather(agent.close("a"), agent.close("b"), here.close("c"), here.close("d"))
            await agent.close()

    async def test_receive_that_waits_ends_when_the_link_is_closed_here(self, harness: TransportHarness) -> None:
        async with stage(harness) as scene:
            agent, _ = await scene.pair()
            waiting = asyncio.ensure_future(agent.receive())
            await asyncio.sleep(0)
            await agent.close()
            with pytest.raises(LinkClosedError, match="closed here"):
                await waiting

    async def test_vanished_agent(self, harness: TransportHarness) -> None:
        async with stage(harness) as scene:
            _, here = await scene.pair()
            await harness.vanish(scene.dialers[-1])
            with pytest.raises(LinkClosedError, match="lost"):
                await here.receive()
            with pytest.raises(LinkClosedError):
                here.post(BeatAck())
            await beat(*await scene.pair())

    async def test_closing_listener_ends_all_links_and_refuses_new_ones(self, harness: TransportHarness) -> None:
        async with stage(harness) as scene:
            agents = [(await scene.pair())[0] for _ in range(3)]
            closing = asyncio.ensure_future(scene.listener.close(0.1))
            for agent in agents:
                with pytest.raises(LinkClosedError, match="coordinator is closing"):
                    await agent.receive()
            await closing
            with pytest.raises(Unreachable):
                await scene.dialer().attend(0.5)

    async def test_unused_sides_close(self, harness: TransportHarness) -> None:
        await harness.listener(Limits()).close(1)
        dialer = harness.dialer(("127.0.0.1", 1), Limits())
        with pytest.raises(LinkClosedError):
            await dialer.upload(HEADER, chunks_of(b"x"))
        await dialer.close()


class MisbehaviourContract(_Contract):
    """Wrong messages, slow readers, failing callbacks."""

    @pytest.mark.parametrize(
        "wrong",
        [(WELCOME,), (Beat(),), (JOIN, JOIN), (JOIN, Leave("bye"), Beat()), (JOIN, UploadDone(1))],
        ids=["the other side's", "not first", "twice", "after the last", "not of a link"],
    )
    async def test_wrong_message_ends_that_link_only(
        self, harness: TransportHarness, wrong: tuple[Message, ...]
    ) -> None:
        async with stage(harness) as scene:
            good = await scene.pair()
            agent = await scene.dialer().attend(10)
            here = await scene.accepted.get()
            await self._post_all(agent, wrong)
            for message in wrong[:-1]:
                assert await here.receive() == message
            for link in (here, agent):
                with pytest.raises(LinkClosedError, match="ProtocolError"):
                    await link.receive()
            await beat(*good)

    async def test_wrong_message_of_the_coordinator(self, harness: TransportHarness) -> None:
        async with stage(harness) as scene:
            agent = await scene.dialer().attend(10)
            here = await scene.accepted.get()
            await self._post_all(here, (BeatAck(),))
            for link in (agent, here):
                with pytest.raises(LinkClosedError, match="BeatAck refused: the first message must be Welcome or Ref"):
                    await link.receive()

    async def test_slow_reader_is_given_up_and_blocks_nobody(self, harness: TransportHarness) -> None:
        async with stage(harness, Limits(messages=100, bytes=2**20)) as scene:
            good = await scene.pair()
            agent, _ = await scene.pair()
            with pytest.raises(LinkClosedError, match="too much is waiting"):
                await self._flood(agent, reports(100_000), good)
            with pytest.raises(LinkClosedError, match="too much is waiting"):
                await agent.receive()
            await beat(*good)

    async def test_slow_agent_is_given_up_and_blocks_nobody(self, harness: TransportHarness) -> None:
        async with stage(harness, Limits(messages=100, bytes=2**20)) as scene:
            good = await scene.pair()
            agent, here = await scene.pair()
            with pytest.raises(LinkClosedError, match="too much is waiting"):
                await self._flood(here, Dismiss("x" * 100_000), good)
            with pytest.raises(LinkClosedError, match="too much is waiting"):
                await receive_all(agent, 1_000)
            await beat(*good)

    async def test_on_link_that_raises_ends_that_link_only(self, harness: TransportHarness) -> None:
        async with stage(harness) as scene:
            good = await scene.pair()
            scene.on_link = _raise
            agent = await scene.dialer().attend(10)
            with pytest.raises(LinkClosedError, match="ZeroDivisionError"):
                await agent.receive()
            assert [type(story["exception"]) for story in scene.stories] == [ZeroDivisionError]
            scene.stories.clear()
            await beat(*good)

    async def _flood(self, link: Link, message: Message, good: tuple[Link, Link]) -> None:
        for _ in range(1_000):
            link.post(message)
            await beat(*good)

    async def _post_all(self, link: Link, messages: tuple[Message, ...]) -> None:
        for message in messages[:-1]:
            link.post(message)
        try:
            link.post(messages[-1])
        except LinkClosedError as error:
            # Where nothing lies between the two sides, the refusal is here already.
            assert "ProtocolError" in str(error)  # noqa: PT017


async def _raise(_: Link) -> None:
    raise ZeroDivisionError("on purpose")


class UploadContract(_Contract):
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
                await scene.dialers[-1].upload(HEADER, broken())
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


class TransportContract(LinkContract, ClosingContract, MisbehaviourContract, UploadContract):
    """The whole contract."""
