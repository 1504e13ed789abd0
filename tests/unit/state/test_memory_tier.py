"""Gangs resume from the newest snapshot in the memory of an agent, and from the store when no holder is left."""

import pytest

from sparktrain.base.ids import AgentId
from sparktrain.state import agent_messages as m
from sparktrain.state import commands as do
from sparktrain.state.gangs.memory_parts import PartSend, PartTransfers
from sparktrain.state.memory_snapshots import MemoryBase
from sparktrain.state.outcome import FailureKind
from sparktrain.state.records import CheckpointCorrupt, GangFormed, GangRestarted, LossRecorded
from tests.unit.state.gangs import by_rank, gang, trial
from tests.unit.state.world import World

SENT = PartTransfers(sends=(PartSend(0, 0),))
"""Rank 0 sends what it holds."""


@pytest.fixture
def world() -> World:
    return World(cases=1)


def placed(world: World) -> dict[AgentId, MemoryBase | None]:
    """What the members of the newest gang resume from, in memory."""
    newest = trial(world).generation
    found = [each for each in world.commands if isinstance(each, do.PlaceMember) and each.member.generation == newest]
    return {each.agent: each.memory for each in sorted(found, key=lambda each: each.member.rank)}


def crash(world: World, *agents: AgentId) -> None:
    """The member of the first agent is killed, and the others are stopped."""
    world.fail(agents[0], FailureKind.SIGNAL)
    for agent in agents[1:]:
        world.fail(agent, FailureKind.STOPPED)


def test_each_member_resumes_from_its_own_agents_snapshot(world: World) -> None:
    first, second = gang(world)
    for agent in (first, second):
        assert world.hold(agent, 7) == []
    world.step(first, 9)
    crash(world, second, first)
    bases = placed(world)
    assert {agent: base.checksum for agent, base in bases.items() if base} == {
        agent: f"{agent}-7" for agent in (first, second)
    }
    assert {(base.step, base.generation, base.transfers) for base in bases.values() if base} == {(7, 1, None)}
    [restart] = trial(world).restarts
    assert (restart.resumed_from_step, restart.steps_lost) == (7, 2)
    assert [each.memory_step for each in world.records if isinstance(each, GangFormed)] == [None, 7]


def test_a_holder_of_the_newest_is_rank_0_and_sends_it(world: World) -> None:
    first, second = gang(world, spare=1)
    world.hold(first, 7)
    world.hold(second, 7)
    world.hold(second, 11)
    world.lose(first)
    world.fail(second, FailureKind.RING)
    chief, other = placed(world).items()
    assert chief == (second, MemoryBase(1, 11, f"{second}-11", SENT))
    assert other[1] == MemoryBase(1, 11, "", SENT), "this agent holds nothing"


def test_a_newer_checkpoint_comes_before_an_older_snapshot(world: World) -> None:
    first, second = gang(world)
    world.hold(first, 7)
    world.write(first, 8)
    crash(world, second, first)
    assert set(placed(world).values()) == {None}
    assert trial(world).restarts[-1].resumed_from_step == 8


def test_the_store_is_read_when_no_holder_is_left(world: World) -> None:
    first, second = gang(world)
    world.write(first, 3)
    world.hold(second, 7)
    world.fail(first, FailureKind.SIGNAL)
    world.fail(second, FailureKind.STOPPED)
    assert trial(world).restarts[-1].resumed_from_step == 7
    for agent in (first, second):
        world.lose(agent)
    world.join("c")
    world.join("d")
    assert set(placed(world).values()) == {None}
    assert trial(world).restarts[-1].resumed_from_step == 3


def test_a_holder_that_is_lost_before_the_next_gang_forms_corrects_the_record(world: World) -> None:
    first, second = gang(world)
    world.write(first, 3)
    world.step(first, 9)
    world.hold(second, 7)
    world.lose(first)
    world.fail(second, FailureKind.RING)
    assert trial(world).restarts[-1].resumed_from_step == 7
    world.lose(second)
    world.join("c")
    world.join("d")
    restart = trial(world).restarts[-1]
    assert (restart.resumed_from_step, restart.steps_lost) == (3, 6)
    [before] = [each.restart for each in world.records if isinstance(each, GangRestarted)]
    [after] = [each.restart for each in world.records if isinstance(each, LossRecorded)]
    assert (before.resumed_from_step, after.resumed_from_step) == (7, 3)


@pytest.mark.parametrize("kind", [FailureKind.CHECKPOINT, FailureKind.FORM])
def test_a_snapshot_that_no_gang_can_start_from_is_left(world: World, kind: FailureKind) -> None:
    agents = gang(world)
    world.write(agents[0], 3)
    holders = agents if kind is FailureKind.FORM else agents[:1]
    for agent in holders:
        world.hold(agent, 7)
    crash(world, *agents)
    assert None not in placed(world).values()
    second, other = by_rank(world)
    world.fail(second, kind)
    world.tick(2.0)  # a failure that may follow from another one waits for that
    world.fail(other, FailureKind.STOPPED)
    assert set(placed(world).values()) == {None}
    assert trial(world).restarts[-1].resumed_from_step == 3
    assert not [each for each in world.records if isinstance(each, CheckpointCorrupt)]


def test_the_copy_on_another_agent_comes_before_the_store(world: World) -> None:
    agents = gang(world)
    world.write(agents[0], 3)
    for agent in agents:
        world.hold(agent, 7)
    # One member is lost in the moment in which the other one returns.
    world.succeed(agents[1])
    world.fail(agents[0], FailureKind.SIGNAL)
    assert None not in placed(world).values()
    without_copy, holder = by_rank(world)
    world.fail(without_copy, FailureKind.CHECKPOINT)
    world.fail(holder, FailureKind.STOPPED)
    assert placed(world) == {
        holder: MemoryBase(1, 7, f"{holder}-7", SENT),
        without_copy: MemoryBase(1, 7, "", SENT),
    }
    world.fail(holder, FailureKind.CHECKPOINT)
    world.fail(without_copy, FailureKind.STOPPED)
    assert set(placed(world).values()) == {None}, "no holder is left: the store is read"
    assert not world.sent(m.ForgetSnapshot)
    world.hold(holder, 9)
    member = world.running[holder]
    world.succeed(holder)
    assert not world.sent(m.ForgetSnapshot), "the other member may still be lost"
    world.succeed(without_copy)
    assert world.sent(m.ForgetSnapshot) == [m.ForgetSnapshot(member)]
    assert [restart.resumed_from_step for restart in trial(world).restarts] == [7, 7, 3]


def test_snapshots_of_older_generations_and_older_steps_are_refused(world: World) -> None:
    first, second = gang(world)
    old = world.running[first]
    world.hold(first, 7)
    assert [type(each) for each in world.hold(first, 7)] == [do.Refused]
    assert [type(each) for each in world.hold(first, 6)] == [do.Refused]
    crash(world, second, first)
    late = world.receive(first, m.SnapshotHeld(old, 20, "late"))
    assert [type(each) for each in late] == [do.Refused]


def test_nothing_is_held_after_a_trial(world: World) -> None:
    world.cases = 2
    agents = gang(world)
    for agent in agents:
        world.hold(agent, 7)
    for agent in agents:
        world.succeed(agent)
    world.suggest()
    assert set(placed_of_last(world)) == {None}


def placed_of_last(world: World) -> list[MemoryBase | None]:
    return [each.memory for each in world.commands if isinstance(each, do.PlaceMember)][-2:]
