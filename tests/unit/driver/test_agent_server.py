"""Which agents may join a pool, and what is reported about those that may not, or are gone."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from sparktrain.base.ids import AgentId
from sparktrain.driver.agent_server import COMPANY_S, DISMISS_TIMEOUT_S, MOST_NAMED, Absences, Server
from sparktrain.protocol import messages as m
from sparktrain.protocol.certificates import CertificateKeeper
from sparktrain.protocol.credentials import CertificateBundle
from sparktrain.protocol.memory_transport import MemoryTransport
from sparktrain.protocol.transport import Link
from sparktrain.state import events as on
from tests.unit.clocks import HandClock, settle

VERSIONS = {"python": "3.11", "keras": "3.15"}
OTHER = {"python": "3.11", "keras": "3.12"}
SAID = "keras is 3.15 on the driver and 3.12 on the executor (host host-1): install the same versions on both"


def joining(agent: str, slot: int, versions: dict[str, str], away: str = "", batch: int = 0) -> m.Join:
    host = f"host-{slot}"
    absence = m.AgentAbsence(away)
    return m.Join(agent=AgentId(agent), slot=slot, host=host, pid=1, versions=versions, away=absence, batch=batch)


class Scene:
    """A server, and the events that its coordinator gets."""

    def __init__(self) -> None:
        self.clock = HandClock()
        self.transport = MemoryTransport()
        self.server = Server(self.transport.listener, self.clock, VERSIONS, ())
        self.events: list[on.Event] = []

    async def join(self, slot: int, versions: dict[str, str], away: str = "", batch: int = 0) -> Link:
        link = await self.transport.dialer().attend(1.0)
        link.post(joining(f"a{slot}", slot, versions, away=away, batch=batch))
        await settle()
        return link

    async def wait_events(self, count: int) -> None:
        """Wait until there are so many: a thread beside the loop may have a part in them."""
        async with asyncio.timeout(10.0):
            while len(self.events) < count:
                await settle()

    @property
    def ends(self) -> list[str]:
        """Why the run cannot continue."""
        return [event.reason for event in self.events if isinstance(event, on.AgentsUnavailable)]


@asynccontextmanager
async def open_server() -> AsyncIterator[Scene]:
    scene = Scene()
    await scene.server.open(scene.events.append, lambda *_: None, None)  # type: ignore[arg-type]
    try:
        yield scene
    finally:
        await scene.server.close()


async def test_an_agent_that_joins_while_all_are_dismissed_is_refused() -> None:
    async with open_server() as scene:
        first = await scene.join(0, VERSIONS)
        assert isinstance(await first.receive(), m.Welcome)
        dismissal = asyncio.create_task(scene.server.dismiss("the pool was idle"))
        await settle()
        assert await first.receive() == m.Dismiss("the pool was idle")
        late = await scene.join(1, VERSIONS)
        assert await late.receive() == m.Refuse("the pool was idle")
        first.post(m.Leave("dismissed"))
        await scene.clock.advance(0.1)
        assert dismissal.done(), "the late agent is not waited for"
        again = await scene.join(2, VERSIONS)
        assert isinstance(await again.receive(), m.Welcome), "the next call starts agents"


async def test_agents_of_a_batch_that_has_ended_leave_and_do_not_return() -> None:
    async with open_server() as scene:
        links = [await scene.join(slot, VERSIONS, batch=batch) for slot, batch in enumerate((1, 2, 2))]
        for link in links:
            assert isinstance(await link.receive(), m.Welcome)
        ending = asyncio.create_task(scene.server.end_batch(2, "its job has ended"))
        await settle()
        for link in links[1:]:
            assert await link.receive() == m.Dismiss("its job has ended")
        links[1].post(m.Leave("dismissed"))
        await scene.clock.advance(0.1)
        assert not ending.done()
        await scene.clock.advance(DISMISS_TIMEOUT_S)
        assert ending.done(), "the one that does not leave is dropped"
        late = await scene.join(3, VERSIONS, batch=2)
        assert await late.receive() == m.Refuse("its job has ended")
        assert isinstance(await (await scene.join(4, VERSIONS, batch=3)).receive(), m.Welcome)
        assert [scene.server.knows(AgentId(f"a{slot}")) for slot in range(5)] == [True, False, False, False, True]
        assert "agent 1 on host-1 is gone" in scene.server.absences.summary()


async def test_one_agent_of_other_versions_is_refused_alone() -> None:
    async with open_server() as scene:
        good = await scene.join(0, VERSIONS)
        assert isinstance(await good.receive(), m.Welcome)
        bad = await scene.join(1, OTHER)
        assert await bad.receive() == m.Refuse(SAID)
        await scene.clock.advance(10 * COMPANY_S)
        assert scene.ends == []
        assert scene.server.mismatch is None
        assert scene.server.knows(AgentId("a0"))
        assert not scene.server.knows(AgentId("a1"))
        assert f"({SAID})" in scene.server.absences.summary()


async def test_an_agent_of_other_versions_that_is_first_waits_for_the_others() -> None:
    async with open_server() as scene:
        await scene.join(1, OTHER)
        await scene.clock.advance(COMPANY_S - 1.0)
        await scene.join(0, VERSIONS)
        assert scene.server.refused is None
        await scene.clock.advance(10 * COMPANY_S)
        assert scene.ends == []


async def test_without_an_agent_of_the_right_versions_the_run_ends() -> None:
    async with open_server() as scene:
        await scene.join(1, OTHER)
        await scene.clock.advance(COMPANY_S - 1.0)
        assert scene.ends == []
        assert scene.server.refused == SAID, "for those who find meanwhile that no other will come"
        await scene.clock.advance(2.0)
        assert scene.ends == [SAID]
        assert scene.server.mismatch == SAID


async def test_an_agent_of_other_versions_may_be_gone_before_it_is_refused() -> None:
    async with open_server() as scene:
        link = await scene.transport.dialer().attend(1.0)
        link.post(joining("a1", 1, OTHER))
        await link.close("killed")
        await scene.clock.advance(COMPANY_S + 1.0)
        assert scene.ends == [SAID]


async def test_who_is_gone_is_told_until_another_has_its_slot() -> None:
    async with open_server() as scene:
        link = await scene.join(0, VERSIONS)
        assert scene.server.absences.summary() == ""
        await link.close("the agent's host went to sleep")
        await settle()
        await scene.clock.advance(40.0)
        summary = scene.server.absences.summary()
        assert summary.startswith("agent 0 on host-0 is gone since 40 s (")
        assert "the agent's host went to sleep" in summary
        await scene.join(0, VERSIONS, away="away for 40 s: the agent's host went to sleep")
        assert scene.server.absences.summary() == ""


def test_of_many_absences_the_newest_are_told() -> None:
    clock = HandClock()
    absences = Absences(clock)
    for slot in range(MOST_NAMED + 2):
        clock.at = float(slot)
        absences.add(slot, "h", "lost")
    summary = absences.summary()
    assert summary.startswith(f"agent {MOST_NAMED + 1} on h is gone since 0 s (lost); ")
    assert summary.endswith("; 2 more are gone")
    assert summary.count("(lost)") == MOST_NAMED


# ---- certificates


class DayClock(HandClock):
    """Its hours pass as seconds."""

    def wall(self) -> float:
        return self.at * 3600.0


async def test_agents_and_the_port_have_new_certificates_before_the_old_ones_end() -> None:
    scene = Scene()
    clock = DayClock()
    keeper = CertificateKeeper("run", clock=clock)
    server = Server(scene.transport.listener, clock, VERSIONS, (), keeper)
    shown: list[CertificateBundle] = []
    scene.transport.listener.renew = shown.append  # type: ignore[method-assign]
    await server.open(scene.events.append, lambda *_: None, None)  # type: ignore[arg-type]
    first = await scene.join(0, VERSIONS)
    keeping = asyncio.create_task(server.keep_certificates())
    await settle()
    await clock.advance(30 * 24 * 0.4)
    assert shown == []
    await clock.advance(30 * 24 * 0.1)
    assert shown == [keeper.server]
    late = await scene.join(1, VERSIONS)
    for link in (first, late):
        assert isinstance(await link.receive(), m.Welcome)
        renewed = await link.receive()
        assert isinstance(renewed, m.Certificates)
        assert renewed.bundle == keeper.agent
        assert "k" not in repr(renewed).lower()
    keeping.cancel()
    await server.close()


async def test_the_host_of_an_agent_in_a_pod_is_its_node() -> None:
    async with open_server() as scene:
        scene.server.pod_nodes = {"host-0": "node-a"}.get  # type: ignore[assignment]
        link = await scene.join(0, VERSIONS)
        await scene.wait_events(1)
        [joined] = scene.events
        assert isinstance(joined, on.AgentJoined)
        assert joined.host == "node-a"
        link.post(m.Leave("its pod ends"))
        await scene.wait_events(2)
        assert "agent 0 on node-a is gone" in scene.server.absences.summary()
