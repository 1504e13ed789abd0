"""A gang that continues smaller grows again when agents are there, without a step lost."""

import pytest

from sparktrain.base.ids import AgentId
from sparktrain.state import agent_messages as m
from sparktrain.state import commands as do
from sparktrain.state.gangs import timeouts
from sparktrain.state.outcome import FailureKind
from sparktrain.state.records import GangFormed, GangRecovered
from tests.unit.state.gangs import by_rank, gang, run, trial
from tests.unit.state.world import World


@pytest.fixture
def world() -> World:
    return World(cases=1)


def small(world: World, size: int = 3, **limits: object) -> list[AgentId]:
    """The agents of a gang that runs with one member fewer than wanted, and has a snapshot of step 10."""
    *left, last = gang(world, size=size, **({"min_workers": size - 1} | limits))
    world.lose(last)
    for agent in left:
        world.fail(agent, FailureKind.RING)
    world.tick(timeouts.REPLACEMENT_S + 1)
    agents = by_rank(world)
    assert len(agents) == size - 1
    run(world, agents)
    train(world, agents, 10)
    return agents


def train(world: World, agents: list[AgentId], step: int) -> None:
    for agent in agents:
        world.step(agent, step)
        world.hold(agent, step)


def asked(world: World) -> set[AgentId]:
    """The agents of members that were asked for a snapshot."""
    sent = [each for each in world.all(do.Send) if isinstance(each.message, m.AskSnapshot)]
    return {each.agent for each in sent}


def stopped(world: World, agents: list[AgentId]) -> None:
    """The members end as the machine has commanded."""
    stops = [each.message for each in world.all(do.Send) if isinstance(each.message, m.StopMember)]
    assert [each.grace_s for each in stops[-len(agents) :]] == [0.0] * len(agents), "no process has anything to finish"
    for agent in agents:
        world.fail(agent, FailureKind.STOPPED)


def test_a_gang_grows_at_the_snapshot_after_which_its_members_pause(world: World) -> None:
    first, second = small(world)
    third = world.join("new")
    assert not asked(world), "it has just started"
    world.tick(timeouts.COOLDOWN_S)
    assert asked(world) == {first, second}
    train(world, [first, second], 20)  # a snapshot that was under way when they were asked
    world.step(first, 24)
    world.hold(first, 24, paused=True)
    assert third not in world.running
    world.hold(second, 24, paused=True)
    stopped(world, [first, second])
    assert set(by_rank(world)) == {first, second, third}
    started = [each for each in world.all(do.PlaceMember) if each.member.generation == 3]
    assert {each.size for each in started} == {3}
    assert {each.memory.step for each in started if each.memory} == {24}
    assert [each.memory_step for each in world.records if isinstance(each, GangFormed)][-1] == 24
    world.tick(1.5)
    run(world, by_rank(world))
    restart = trial(world).restarts[-1]
    assert (restart.resumed_from_step, restart.steps_lost, restart.paused, restart.seconds) == (24, 0, True, 1.5)
    assert restart.cause == "grows to 3 members: agents are there again"
    assert GangRecovered in map(type, world.records[-1:])


def test_growth_counts_against_no_limit(world: World) -> None:
    agents = small(world)
    world.join("new")
    world.tick(timeouts.COOLDOWN_S)
    for agent in agents:
        world.hold(agent, 12, paused=True)
    stopped(world, agents)
    assert trial(world).spent() == (0, 0)
    assert trial(world).restart_history.losses == len(trial(world).restarts) - 1


def test_it_grows_by_as_many_members_as_there_are_agents(world: World) -> None:
    first, *others = gang(world, size=4, min_workers=1)
    for agent in others:
        world.lose(agent)
    world.fail(first, FailureKind.RING)
    world.tick(timeouts.REPLACEMENT_S + 1)
    run(world, [first])
    train(world, [first], 10)
    world.join("new")
    world.tick(timeouts.COOLDOWN_S)
    world.hold(first, 11, paused=True)
    stopped(world, [first])
    assert [each.size for each in world.all(do.PlaceMember)][-2:] == [2, 2]
    assert trial(world).restarts[-1].cause == "grows to 2 members: agents are there again"


@pytest.mark.parametrize("why", ["no agent", "whole", "no snapshots", "cannot shrink", "has failed", "pauses", "ends"])
def test_it_is_not_asked(world: World, why: str) -> None:
    if why == "cannot shrink":
        gang(world, spare=1)
    elif why == "whole":
        train(world, gang(world, size=2, spare=1, min_workers=1), 10)
    else:
        agents = small(world)
        if why == "no snapshots":
            world.machine.sweep.gangs[trial(world).id].generation += 1
        if why == "has failed":
            world.fail(agents[0], FailureKind.RING)
        if why == "pauses":
            for agent in agents:
                world.step(agent, 12, training=False)
        if why == "ends":
            world.succeed(agents[1])
        if why != "no agent":
            world.join("new")
    world.tick(timeouts.COOLDOWN_S)
    assert not asked(world)


def test_a_loss_while_it_grows_is_a_loss(world: World) -> None:
    first, second = small(world)
    world.join("new")
    world.tick(timeouts.COOLDOWN_S)
    world.hold(first, 12, paused=True)
    world.fail(second, FailureKind.SIGNAL)
    world.fail(first, FailureKind.STOPPED)
    restart = trial(world).restarts[-1]
    assert (restart.kind, restart.paused, restart.resumed_from_step) == (FailureKind.SIGNAL, False, 12)
    assert len(by_rank(world)) == 3


def test_members_that_return_instead_have_their_result(world: World) -> None:
    first, second = small(world)
    world.join("new")
    world.tick(timeouts.COOLDOWN_S)
    world.succeed(first)
    world.succeed(second)
    assert world.status(0) == "succeeded"
