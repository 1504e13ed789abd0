"""Members without progress: silence that is a hang, and silence that is none."""

import pytest

from sparktrain.state.deadlines import FIRST_STEP_TIMEOUT_S
from sparktrain.state.gangs import timeouts
from sparktrain.state.outcome import FailureKind
from tests.unit.state.gangs import gang, trial
from tests.unit.state.world import World


@pytest.fixture
def world() -> World:
    return World(cases=1)


def test_the_member_that_is_behind_is_the_one_that_hangs(world: World) -> None:
    first, second = gang(world, hang_timeout_s=30.0)
    for agent, step in ((first, 57), (second, 56)):
        world.step(agent, step)
    assert world.tick(30) == []
    stops = world.tick(1)
    assert {(stop.agent, stop.message.grace_s) for stop in stops} == {
        (agent, timeouts.KILL_GRACE_S) for agent in (first, second)
    }, "both print to their logs where they are"
    world.fail(first, FailureKind.STOPPED)
    world.fail(second, FailureKind.STOPPED)
    [restart] = trial(world).restarts
    assert (restart.kind, restart.rank) == (FailureKind.HANG, 1)
    assert "rank 1 on host-a1 has finished no training step for" in restart.cause


@pytest.mark.parametrize("size", [1, 2])
def test_a_trial_that_has_reported_and_falls_silent_hangs_where_that_is_limited(world: World, size: int) -> None:
    agents = gang(world, size, report_timeout_s=30.0)
    world.tick(100.0)
    for agent in agents:
        world.report(agent, step=7)
    world.tick(20.0)
    for agent in agents[1:]:
        world.report(agent, step=8)
    assert world.tick(10.0) == []
    assert [each.agent for each in world.tick(1.0)] == agents
    for agent in agents:
        world.fail(agent, FailureKind.STOPPED)
    [restart] = trial(world).restarts
    assert (restart.kind, restart.rank) == (FailureKind.HANG, 0)
    assert "has reported no step for 31 s after step 7" in restart.cause


def test_a_trial_that_only_reports_may_be_silent_where_nothing_limits_that(world: World) -> None:
    [agent] = gang(world, 1, hang_timeout_s=30.0)
    world.report(agent)
    assert world.tick(3600.0) == []


def test_steps_prevail_over_reports(world: World) -> None:
    [agent] = gang(world, 1, report_timeout_s=30.0)
    world.report(agent)
    world.step(agent, 100, training=False)
    assert world.tick(3600.0) == []


def test_slow_steps_a_first_step_and_the_time_after_training_are_no_hang(world: World) -> None:
    first, second = gang(world, hang_timeout_s=30.0)
    world.step(first, 0, per_s=0.0)
    assert world.tick(FIRST_STEP_TIMEOUT_S - 1) == []
    world.step(first, 5, per_s=0.1)
    assert world.tick(99) == []
    world.step(first, 6, per_s=1.0, training=False)
    assert world.tick(1000) == []
    assert world.running[second]


def test_a_member_that_waits_for_rows_of_streams_does_not_hang(world: World) -> None:
    """Afterwards it has its time again, though it has finished no step."""
    agents = gang(world, hang_timeout_s=30.0)
    for agent in agents:
        world.step(agent, 56)
    world.tick(29)
    for agent in agents:
        world.wait_for_rows(agent, "train", True)
    world.wait_for_rows(agents[0], "validation", True)
    assert world.tick(3600) == []
    for agent in agents:
        world.wait_for_rows(agent, "train", False)
    world.step(agents[1], 57, training=False)
    assert world.tick(3600) == []
    world.wait_for_rows(agents[0], "validation", False)
    assert world.tick(30) == []
    assert {each.agent for each in world.tick(1)} == set(agents)


def test_a_member_hangs_though_another_one_waits_for_rows(world: World) -> None:
    """A feeding job starts when all members have asked for it, and that one never will."""
    first, second = gang(world, hang_timeout_s=30.0)
    for agent in (first, second):
        world.step(agent, 56)
    world.wait_for_rows(first, "train", True)
    world.tick(30)
    assert {each.agent for each in world.tick(1)} == {first, second}
    world.fail(first, FailureKind.STOPPED)
    world.fail(second, FailureKind.STOPPED)
    assert trial(world).restarts[0].rank == 1


def test_a_trial_that_only_reports_may_wait_for_rows(world: World) -> None:
    [agent] = gang(world, 1, report_timeout_s=30.0)
    world.report(agent)
    world.wait_for_rows(agent, "train", True)
    assert world.tick(3600) == []
    world.wait_for_rows(agent, "train", False)
    assert world.tick(30) == []
    assert [each.agent for each in world.tick(1)] == [agent]
