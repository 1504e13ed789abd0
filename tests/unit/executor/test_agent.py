"""An agent's lease, and how it joins again, on a clock that the test moves."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from sparktrain.errors import InfraError
from sparktrain.executor.agent import ATTEMPT_S, PAUSE_AT_MOST_S, REST_S, Attendance
from sparktrain.executor.spark_task import Placement
from sparktrain.executor.workbench import Workbench
from sparktrain.executor.zygote_process import ZygoteLostError
from sparktrain.protocol import messages as m
from sparktrain.protocol.credentials import CertificateBundle
from sparktrain.protocol.memory_transport import MemoryDialer, MemoryTransport
from sparktrain.protocol.ticket import AgentTicket
from sparktrain.protocol.transport import Link, Unreachable
from sparktrain.store.hadoop.token_file import TokenFile
from tests.unit.clocks import HandClock, settle
from tests.unit.executor.reception import Reception

BEAT_S, LEASE_S = 3.0, 16.0
PLACE = Placement(0, "host-1", 1, 1, None, (), (), {})
CUT = Unreachable("127.0.0.1: no answer within 5 s")
REFUSED = Unreachable("127.0.0.1: connection refused", refused=True)


class Dialer(MemoryDialer):
    """Finds the coordinator, or raises the error that the test sets."""

    def __init__(self, transport: MemoryTransport, clock: HandClock) -> None:
        super().__init__(transport, "agent")
        self._clock = clock
        self.cut: Unreachable | None = None
        self.tried: list[float] = []
        self.renewed: list[CertificateBundle] = []

    def renew(self, certificates: CertificateBundle) -> None:
        self.renewed.append(certificates)

    async def attend(self, deadline_s: float) -> Link:
        self.tried.append(self._clock.at)
        if self.cut is not None:
            await self._clock.sleep(deadline_s)
            raise self.cut
        return await super().attend(deadline_s)


class Warm:
    """A zygote's keeper without a zygote."""

    def __init__(self, scratch: Path) -> None:
        self.scratch = scratch
        self.lost: asyncio.Queue[InfraError] = asyncio.Queue()
        self.forgiven = 0
        self.closed = False

    async def preload(self, modules: tuple[str, ...]) -> dict[str, str]:
        return {}

    async def keep(self) -> None:
        error = await self.lost.get()
        raise error

    def forgive(self) -> None:
        self.forgiven += 1

    async def close(self) -> None:
        self.closed = True


class Scene(Reception):
    """One attendance, and the coordinator's side of its links."""

    def __init__(self, folder: Path, refused_s: float | None) -> None:
        super().__init__(BEAT_S, LEASE_S)
        self.clock = HandClock()
        self.transport = MemoryTransport()
        self.dialer = Dialer(self.transport, self.clock)
        self.warm = Warm(folder)
        ticket = AgentTicket("p", ("h",), 1, CertificateBundle(b"", b"", b""), 15.0, refused_s)
        self.attendance = Attendance(PLACE, ticket, self.warm, TokenFile(folder), self.dialer, self.clock)  # type: ignore[arg-type]

    def count(self, kind: type[m.Message]) -> int:
        return sum(isinstance(message, kind) for message in self.heard)

    @property
    def joins(self) -> list[m.Join]:
        return [message for message in self.heard if isinstance(message, m.Join)]


@asynccontextmanager
async def attending(folder: Path, refused_s: float | None = None) -> AsyncIterator[tuple[Scene, Any]]:
    """A scene with an agent that has joined, and its attendance."""
    scene = Scene(folder, refused_s)
    await scene.transport.listener.start(scene.serve, None)  # type: ignore[arg-type]
    running = asyncio.create_task(scene.attendance.run())
    await settle()
    try:
        yield scene, running
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await scene.transport.listener.close(0)


async def cut_off(scene: Scene, how: Unreachable) -> None:
    """Break the stream, and make the coordinator unreachable."""
    scene.dialer.cut = how
    await (await scene.links.get()).close("the network failed")
    await settle()


async def test_the_lease_counts_from_the_heartbeat_that_was_answered(tmp_path: Path) -> None:
    async with attending(tmp_path) as (scene, _):
        await scene.clock.advance(BEAT_S)
        late = scene.links.get_nowait()
        scene.answers = False
        await scene.clock.advance(10.0)  # heartbeats of 6, 9 and 12 are sent, and wait
        scene.dialer.cut = CUT
        late.post(m.HeartbeatAck())  # of 6, at 13: the coordinator's lease ends at 22 at the earliest
        await scene.clock.advance(21.0 - scene.clock.at)
        assert len(scene.dialer.tried) == 1
        await scene.clock.advance(1.0)
        assert len(scene.dialer.tried) == 2, "it has ended its member, and dials"


async def test_an_agent_that_is_asked_for_a_heartbeat_sends_one_at_once(tmp_path: Path) -> None:
    async with attending(tmp_path) as (scene, _):
        heartbeats = scene.count(m.Heartbeat)
        scene.links.get_nowait().post(m.AskHeartbeat())
        await settle()
        assert scene.count(m.Heartbeat) == heartbeats + 1


async def test_no_agent_is_ready_before_the_first_answer(tmp_path: Path) -> None:
    async with attending(tmp_path) as (scene, _):
        assert scene.count(m.Ready) == 1
    scene = Scene(tmp_path, None)
    scene.answers = False
    await scene.transport.listener.start(scene.serve, None)  # type: ignore[arg-type]
    running = asyncio.create_task(scene.attendance.run())
    await settle()
    assert scene.count(m.Heartbeat) == 1
    assert scene.count(m.Ready) == 0
    scene.links.get_nowait().post(m.HeartbeatAck())
    await settle()
    assert scene.count(m.Ready) == 1
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await scene.transport.listener.close(0)


@pytest.mark.parametrize("how", [CUT, REFUSED], ids=["no answer", "refused"])
async def test_an_agent_that_was_cut_off_for_an_hour_joins_again_with_the_reason(
    tmp_path: Path, how: Unreachable
) -> None:
    async with attending(tmp_path) as (scene, running):
        await cut_off(scene, how)
        await scene.clock.advance(3600.0)
        pauses = [after - before for before, after in zip(scene.dialer.tried, scene.dialer.tried[1:], strict=False)]
        assert max(pauses) <= ATTEMPT_S + PAUSE_AT_MOST_S + 1.0
        assert len(pauses) < 3600.0 / PAUSE_AT_MOST_S, "it backs off"
        scene.dialer.cut = None
        await scene.clock.advance(ATTEMPT_S + PAUSE_AT_MOST_S + 1.0)
        assert not running.done()
        first, second = scene.joins
        assert first.away == m.AgentAbsence()
        assert first.agent != second.agent
        assert second.away.reason.startswith("away for 36")
        assert "the network failed" in second.away.reason


async def test_an_agent_that_spark_does_not_end_leaves_after_long_refusals(tmp_path: Path) -> None:
    async with attending(tmp_path, refused_s=60.0) as (scene, running):
        await cut_off(scene, REFUSED)
        await scene.clock.advance(50.0)
        assert not running.done()
        await scene.clock.advance(50.0)
        reason, reached = await running
        assert reached
        assert reason == "agent on host-1: 127.0.0.1: connection refused"
        assert scene.warm.closed


async def test_silence_is_no_refusal(tmp_path: Path) -> None:
    async with attending(tmp_path, refused_s=60.0) as (scene, running):
        await cut_off(scene, REFUSED)
        await scene.clock.advance(50.0)
        scene.dialer.cut = CUT
        await scene.clock.advance(600.0)
        scene.dialer.cut = REFUSED
        await scene.clock.advance(50.0)
        assert not running.done()


async def test_a_fresh_agent_without_a_coordinator_ends_at_once(tmp_path: Path) -> None:
    scene = Scene(tmp_path, None)
    scene.dialer.cut = CUT
    running = asyncio.create_task(scene.attendance.run())
    await settle()
    await scene.clock.advance(15.0)
    assert await running == (f"agent on host-1: {CUT}", False)


async def test_an_agent_pauses_after_too_many_lost_zygotes_and_joins_again(tmp_path: Path) -> None:
    async with attending(tmp_path) as (scene, running):
        for number, rest_s in enumerate((REST_S, 2 * REST_S)):
            scene.warm.lost.put_nowait(ZygoteLostError("the zygote was lost 21 times"))
            await settle()
            leave = scene.heard[-1]
            assert isinstance(leave, m.Leave)
            assert leave.reason == "agent on host-1 leaves for a while: the zygote was lost 21 times"
            await scene.clock.advance(rest_s - 1.0)
            assert len(scene.joins) == number + 1
            await scene.clock.advance(2.0)
            assert len(scene.joins) == number + 2
            assert scene.warm.forgiven == number + 1
            assert "the zygote was lost 21 times" in scene.joins[-1].away.reason
        assert not running.done()


@pytest.mark.parametrize("last", [m.Dismiss("the pool closes"), m.Refuse("it broke a rule")], ids=["closed", "refused"])
async def test_a_dismissed_agent_does_not_join_again(tmp_path: Path, last: m.Dismiss | m.Refuse) -> None:
    async with attending(tmp_path) as (scene, running):
        scene.links.get_nowait().post(last)
        await settle()
        assert await running == (last.reason, True)
        assert len(scene.dialer.tried) == 1


async def test_nothing_of_an_agent_runs_on_that_is_cancelled_while_it_leaves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its process ends then: a task that runs on keeps it, and starts another zygote."""
    ends: list[Workbench] = []

    async def end_member(bench: Workbench) -> None:
        ends.append(bench)
        if len(ends) == 1:
            await asyncio.Event().wait()

    monkeypatch.setattr(Workbench, "end_member", end_member)
    others = asyncio.all_tasks()
    async with attending(tmp_path) as (scene, running):
        await cut_off(scene, CUT)
        assert len(ends) == 1
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await settle()
        left = {task.get_coro().__qualname__ for task in asyncio.all_tasks() - others}  # type: ignore[union-attr]
    assert not [name for name in left if name.startswith("Agent.")]
    assert len(ends) == 2, "the member is ended all the same"


async def test_an_agent_uses_new_certificates(tmp_path: Path) -> None:
    bundle = CertificateBundle(b"a", b"c", b"k")
    async with attending(tmp_path) as (scene, _):
        scene.links.get_nowait().post(m.Certificates(bundle))
        await settle()
        assert scene.dialer.renewed == [bundle]
