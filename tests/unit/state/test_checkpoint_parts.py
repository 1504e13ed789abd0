"""Checkpoints that all members of a gang write: which step gets a manifest, and who learns that one gets none."""

from typing import Any

import pytest

from sparktrain.base.ids import AgentId, Rank
from sparktrain.state import agent_messages as m
from sparktrain.state import commands as do
from sparktrain.state.checkpoint_history import CheckpointHistory
from sparktrain.state.checkpoint_parts import Shard, StoredPart
from sparktrain.state.outcome import FailureKind
from sparktrain.state.records import SaveFailed
from tests.unit.state.gangs import gang, trial
from tests.unit.state.world import World


@pytest.fixture
def world() -> World:
    return World()


def part(agent: AgentId, step: int) -> StoredPart:
    return StoredPart(f"{agent}-{step}", (Shard(f"of-{agent}", step, "0" * 64),))


def store(world: World, agent: AgentId, step: int) -> list[do.Command]:
    """The agent has stored its member's part."""
    return world.receive(agent, m.PartStored(world.running[agent], step, part(agent, step)))


def fail(world: World, agent: AgentId, step: int, problem: str) -> list[do.Command]:
    return world.receive(agent, m.CheckpointFailed(world.running[agent], step, problem, part=True))


def sent(commands: list[do.Command]) -> list[tuple[str, Any]]:
    return [(each.agent, each.message) for each in commands if isinstance(each, do.Send)]


def given_up(commands: list[do.Command]) -> list[tuple[str, int]]:
    return [(agent, news.step) for agent, news in sent(commands) if isinstance(news, m.GiveUpPart)]


def checkpoints(world: World) -> CheckpointHistory:
    return trial(world).checkpoints


def test_the_chief_commits_once_all_parts_are_there_and_all_members_learn_that_it_counts(world: World) -> None:
    first, second, third = gang(world, size=3)
    assert store(world, third, 20) == []
    assert store(world, first, 20) == []
    [(agent, news)] = sent(store(world, second, 20))
    parts = (part(first, 20), part(second, 20), part(third, 20))
    assert (agent, news) == (first, m.CommitParts(world.running[first], 20, parts))
    acks = world.write(first, 20)
    assert [each.agent for each in acks if isinstance(each, do.Send) and each.durable] == [first, second, third]
    assert {type(news) for _, news in sent(acks)} == {m.AckCheckpoint}
    assert [each.step for each in checkpoints(world).retained] == [20]
    assert len(sent(world.write(first, 30))) == 1, "a checkpoint of the chief alone is the chief's"


def test_a_step_without_the_part_of_a_member_is_given_up_and_the_trial_tells_why(world: World) -> None:
    first, second, third = gang(world, size=3)
    store(world, first, 20)
    commands = fail(world, second, 20, "the store is full")
    assert given_up(commands) == [(first, 20), (second, 20), (third, 20)]
    problem = "rank 1 on host-a1 could not store its part: the store is full"
    assert checkpoints(world).unsaved == f"step 20 was not checkpointed: {problem}"
    assert [each.step for each in world.records if isinstance(each, SaveFailed)] == [20]

    [(agent, news)] = sent(store(world, third, 20))
    assert (agent, news) == (third, m.GiveUpPart(world.running[third], 20, problem)), "it comes late"
    assert fail(world, first, 20, problem) == [], "the others report it again"
    assert len([each for each in world.records if isinstance(each, SaveFailed)]) == 1

    for each in (first, second):
        assert store(world, each, 30) == []
    assert [type(news) for _, news in sent(store(world, third, 30))] == [m.CommitParts]
    world.write(first, 30)
    assert checkpoints(world).unsaved == ""


def test_a_newer_step_of_any_member_replaces_one_that_lacks_a_part(world: World) -> None:
    first, second = gang(world)
    store(world, second, 10)
    assert given_up(store(world, first, 20)) == [(first, 10), (second, 10)]
    assert given_up(store(world, first, 10)) == [(first, 10)], "what comes late does not count"
    assert [type(news) for _, news in sent(store(world, second, 20))] == [m.CommitParts]
    assert given_up(store(world, first, 30)) == [], "the step before has all its parts"
    assert len(sent(world.write(first, 20))) == 2
    assert given_up(fail(world, second, 40, "no space is left")) == [(a, s) for s in (30, 40) for a in (first, second)]


@pytest.mark.parametrize("returns_first", [True, False])
def test_a_member_that_has_returned_leaves_no_other_one_waiting_for_its_part(world: World, returns_first: bool) -> None:
    first, second, third = gang(world, size=3)
    for each in (second, third):
        store(world, each, 20)
    news = m.CheckpointFailed(world.running[second], 21, "", part=True, returned=True)
    if returns_first:
        assert world.receive(second, news) == [], "its part of step 20 is there"
        assert [type(each) for _, each in sent(store(world, first, 20))] == [m.CommitParts]
        world.write(first, 20)
        commands = store(world, first, 30)
    else:
        store(world, first, 20)
        world.write(first, 20)
        assert store(world, first, 30) == []
        commands = world.receive(second, news)
    assert given_up(commands) == [(each, 30) for each in (first, second, third)]
    assert "step 30 was not checkpointed: rank 1 on host-a1 has returned from" in checkpoints(world).unsaved
    assert given_up(store(world, third, 30)) == [(third, 30)], "it comes late"
    assert given_up(store(world, first, 40)) == [(each, 40) for each in (first, second, third)]
    assert [each.step for each in world.records if isinstance(each, SaveFailed)] == [30, 40]


def test_the_failure_of_a_manifest_is_the_chiefs_alone(world: World) -> None:
    first, second = gang(world)
    for each in (first, second):
        store(world, each, 10)
    assert fail(world, second, 10, "it waited too long") == [], "its part is in the store"
    assert given_up(fail(world, first, 10, "the store is full")) == [(first, 10), (second, 10)]
    assert "rank 0 on host-a0" in checkpoints(world).unsaved
    for each in (first, second):
        store(world, each, 20)
    store(world, second, 30)  # it gave up the wait for step 20
    assert given_up(fail(world, first, 20, "the store is full")) == [(first, 20), (second, 20)]
    assert [type(news) for _, news in sent(store(world, first, 30))] == [m.CommitParts]


def test_a_part_of_another_generation_and_a_second_one_of_a_member_are_refused(world: World) -> None:
    first, second = gang(world)
    store(world, first, 10)
    assert [type(each) for each in store(world, first, 10)] == [do.Refused]
    assert [type(each) for each in store(world, first, -1)] == [do.Refused]
    zombie = world.running[second]
    world.lose(second)
    world.fail(first, FailureKind.RING)
    other = world.join("c")
    for each in {first, other}:
        world.reserve(each)
    late = world.receive(second, m.PartStored(zombie, 10, part(second, 10)))
    assert [type(each) for each in late] == [do.Refused]
    assert store(world, first, 10) == [], "the parts of the generation before are forgotten"


def test_a_gang_with_a_member_that_restarted_alone_makes_no_checkpoint_of_parts(world: World) -> None:
    first, _ = gang(world)
    assert world.machine.sweep is not None
    [running] = world.machine.sweep.gangs.values()
    running.absences.incarnations[Rank(1)] = 1
    [(agent, news)] = sent(store(world, first, 10))
    assert (agent, news.step) == (first, 10)
    assert news.problem.startswith("a member of the gang has restarted alone")
    assert not running.checkpoints.parts.stored


def test_a_checkpoint_that_another_trials_state_replaces_is_acknowledged_to_all(world: World) -> None:
    first, second = gang(world)
    for each in (first, second):
        store(world, each, 10)
    trial(world).takeover.reason = "trial 1 is better"
    commands = world.write(first, 10)
    assert [agent for agent, _ in sent(commands)] == [first, second]
    assert [type(each) for each in commands[2:]] == [do.DeleteCheckpoints]
