"""What an event costs does not grow with the number of agents: calls are counted for n agents and for 4 n."""

from collections.abc import Callable

import pytest

from sparktrain.base.ids import AgentId, Generation, Member, TrialId
from sparktrain.state import agent_messages as m
from sparktrain.state import commands as do
from sparktrain.state import events as on
from sparktrain.state.deadlines import MOST_GANGS, GangRounds
from sparktrain.state.gangs.gang import Gang
from sparktrain.state.gangs.gang_progress import GangAttendance
from sparktrain.state.machine import Machine
from sparktrain.state.memory_snapshots import HeldSnapshots, MemorySnapshot
from sparktrain.state.outcome import FailureKind, Outcome, Report
from tests.support.call_count import counted
from tests.unit.state.world import LEASE_S, RUN, World

FEW, MANY = 60, 240
GANG = Gang(RUN, TrialId(0), Generation(1), (), (), GangAttendance(0.0))
GROWTH = 1.5
"""Of the calls for each agent, from `FEW` to `MANY` of them; a scan for each event makes it 4."""


class Crowd:
    """A machine and its agents, which answer when they are asked to."""

    def __init__(self, agents: int, size: int = 1) -> None:
        self.world = World(Machine(LEASE_S))
        self._trials = 2 * agents // size
        self.world.begin(size=size, agents=agents, recovers=size > 1)
        for number in range(agents):
            self.world.join(f"a{number}")

    def suggest(self) -> None:
        """There are two trials for each place."""
        cases = tuple({"x": number} for number in range(self._trials))
        self.world.feed(on.Suggested(0.0, RUN, cases, exhausted=True))

    @property
    def placed(self) -> list[tuple[AgentId, Member]]:
        """The members that run."""
        return list(self.world.running.items())


def placements(world: World) -> list[do.PlaceMember]:
    """The starts of members so far."""
    return [each for each in world.commands if isinstance(each, do.PlaceMember)]


def launch(agents: int) -> int:
    """All agents get a trial at once."""
    crowd = Crowd(agents)
    calls = counted(crowd.suggest)
    assert len(crowd.placed) == agents
    return calls


def train(agents: int) -> int:
    """Each agent's trial starts, reports and ends, and the next one starts."""
    crowd = Crowd(agents)
    crowd.suggest()
    machine, before = crowd.world.machine, crowd.placed

    def work() -> None:
        for agent, member in before:
            messages = (
                m.MemberStarted(member, 0),
                m.MemberReported(member, (Report(1, {"loss": 1.0}),)),
                m.Heartbeat(),
                m.MemberEnded(member, Outcome(1.0, metrics={"accuracy": 0.5})),
            )
            for message in messages:
                placed = machine.handle(on.AgentSent(0.0, agent, message))
            assert any(isinstance(each, do.PlaceMember) for each in placed)

    return counted(work)


def restart_gangs(agents: int) -> int:
    """Gangs of two hold snapshots in memory; each loses its members, and forms again from the snapshots."""
    crowd = Crowd(agents, size=2)
    crowd.suggest()
    world = crowd.world
    for agent, _ in crowd.placed:
        world.reserve(agent)
    for agent, _ in crowd.placed:
        world.enter(agent)
        world.hold(agent, 1)
    formed, agents_of = placements(world), crowd.placed

    def work() -> None:
        for agent, _ in agents_of:
            world.fail(agent, FailureKind.SIGNAL)

    calls = counted(work)
    again = placements(world)[len(formed) :]
    assert len(again) == agents
    assert all(each.memory is not None for each in again)
    return calls


class ComparedTrial(int):
    """The number of a trial: a comparison of two is a call, which counts."""

    def __eq__(self, other: object) -> bool:
        return int(self) == other

    def __hash__(self) -> int:
        return int(self)


def hold_snapshots(agents: int) -> int:
    """Each agent holds a snapshot of a trial of its own; each trial's gang forms on it again, and ends."""
    held, snapshot = HeldSnapshots(), MemorySnapshot(Generation(1), 1, "checksum")
    names = [AgentId(f"a{number}") for number in range(agents)]
    trials = [TrialId(ComparedTrial(number)) for number in range(agents)]
    for name, trial in zip(names, trials, strict=True):
        assert held.note(name, trial, snapshot)

    def work() -> None:
        for name, trial in zip(names, trials, strict=True):
            assert held.newest(trial) == snapshot
            held.formed(trial, [name], snapshot)
            held.forget(trial)

    return counted(work)


@pytest.mark.parametrize("work", [launch, train, restart_gangs, hold_snapshots])
def test_an_event_costs_the_same_with_more_agents(work: Callable[[int], int]) -> None:
    few, many = work(FEW) / FEW, work(MANY) / MANY
    assert many < GROWTH * few, f"{many:.0f} calls for each of {MANY} agents, {few:.0f} for each of {FEW}"


def tick(agents: int) -> int:
    """The calls of one tick in which nothing is due, while all agents train."""
    crowd = Crowd(agents)
    crowd.suggest()
    return counted(lambda: crowd.world.feed(on.Ticked(1.0)))


@pytest.mark.long
def test_a_tick_looks_at_a_limited_number_of_gangs() -> None:
    few, many = tick(MOST_GANGS), tick(3 * MOST_GANGS)
    assert many < GROWTH * few, f"{many} calls of a tick with {3 * MOST_GANGS} trials, {few} with {MOST_GANGS}"


def test_ticks_look_at_each_gang_once_in_a_round() -> None:
    gangs = {TrialId(number): GANG for number in range(7)}
    rounds = GangRounds(most=3)
    assert [len(rounds.due(gangs)) for _ in range(6)] == [3, 3, 1, 3, 3, 1]
    assert len(rounds.due(gangs)) == 3
    del gangs[TrialId(4)]
    gangs[TrialId(9)] = GANG
    assert [len(rounds.due(gangs)) for _ in range(4)] == [2, 1, 3, 3], "what is new comes next"


def test_a_run_starts_on_agents_that_are_idle_for_longest() -> None:
    crowd = Crowd(3)
    crowd.suggest()
    world = crowd.world
    assert [each.agent for each in placements(world)] == ["a0", "a1", "a2"]
    assert all(member.run == RUN for member in world.running.values())
