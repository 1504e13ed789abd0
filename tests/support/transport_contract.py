"""What every transport promises, as tests: inherit `TransportContract` and override `harness`."""

import asyncio
from typing import get_args

import pytest

from sparktrain.base.ids import AgentId
from sparktrain.protocol import codec
from sparktrain.protocol.messages import (
    Code,
    Dismiss,
    FromAgent,
    Heartbeat,
    HeartbeatAck,
    Join,
    Leave,
    MemberStarted,
    Message,
    Prepare,
    Refuse,
    StopMember,
    ToAgent,
    UploadDone,
)
from sparktrain.protocol.transport import Limits, Link, LinkClosedError, Unreachable
from sparktrain.state.message import MAX_MESSAGE_BYTES
from tests.support.transports import (
    FROM_AGENT,
    HEADER,
    JOIN,
    MEMBER,
    TO_AGENT,
    WELCOME,
    ContractBase,
    TransportHarness,
    beat,
    chunks_of,
    receive_all,
    reports,
    stage,
)
from tests.support.upload_contract import UploadContract


class LinkContract(ContractBase):
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
            prepare = Prepare(MEMBER.run, Code("", bytes(MAX_MESSAGE_BYTES)), ())
            sizes = rf"{len(codec.encode(prepare)):,} bytes.*{MAX_MESSAGE_BYTES:,} bytes"
            here.post(HeartbeatAck())
            with pytest.raises(LinkClosedError, match=sizes):
                here.post(prepare)
            assert await agent.receive() == HeartbeatAck()
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


class ClosingContract(ContractBase):
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
                    link.post(Heartbeat())

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
                here.post(HeartbeatAck())
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


class MisbehaviourContract(ContractBase):
    """Wrong messages, slow readers, failing callbacks."""

    @pytest.mark.parametrize(
        "wrong",
        [(WELCOME,), (Heartbeat(),), (JOIN, JOIN), (JOIN, Leave("bye"), Heartbeat()), (JOIN, UploadDone(1))],
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
            await self._post_all(here, (HeartbeatAck(),))
            for link in (agent, here):
                with pytest.raises(
                    LinkClosedError, match="HeartbeatAck refused: the first message must be Welcome or Ref"
                ):
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


class TransportContract(LinkContract, ClosingContract, MisbehaviourContract, UploadContract):
    """The whole contract."""
