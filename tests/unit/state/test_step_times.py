"""What the journal has of where the steps of a gang go."""

import pytest

from sparktrain.base.ids import AgentId
from sparktrain.state import agent_messages as m
from sparktrain.state.gangs.step_times import StepTimes
from sparktrain.state.records import StepsTimed
from sparktrain.state.recovery import compacted, folded
from sparktrain.state.sweep import TIMES_INTERVAL_S
from tests.unit.state.gangs import gang, trial
from tests.unit.state.world import World


@pytest.fixture
def world() -> World:
    return World()


def step(world: World, agent: AgentId, work_s: float, step: int = 20) -> None:
    world.at += 0.5
    times = StepTimes(work_s, 0.112 - work_s, steps=min(20, step))
    world.receive(agent, m.MemberStepped(world.running[agent], step, 9.0, times=times))


def timed(world: World) -> list[int | None]:
    """The slow rank of each record."""
    records = [record.times for record in world.records if isinstance(record, StepsTimed)]
    return [None if times.slow is None else times.slow.rank for times in records]


def test_a_slow_member_is_recorded_at_once_and_all_others_at_long_intervals(world: World) -> None:
    first, second = gang(world)
    step(world, first, 0.1, step=10)
    step(world, second, 0.1)
    assert timed(world) == []
    step(world, first, 0.1)
    assert timed(world) == [None]
    step(world, second, 0.111)
    step(world, second, 0.111)
    assert timed(world) == [None, 1]
    step(world, second, 0.101)
    assert timed(world) == [None, 1, None]
    world.at += TIMES_INTERVAL_S
    step(world, second, 0.101)
    assert timed(world) == [None, 1, None, None]


def test_the_newest_record_outlives_the_driver(world: World) -> None:
    first, second = gang(world)
    for agent, work_s in ((first, 0.1), (second, 0.1), (second, 0.111)):
        step(world, agent, work_s)
    short = compacted(world.records)
    assert [record.times for record in short if isinstance(record, StepsTimed)] == [trial(world).attempt.step_times]
    past = folded(short).trials[trial(world).id]
    assert past.attempt.step_times == trial(world).attempt.step_times
    assert past.attempt.step_times is not None


def test_a_lost_member_is_not_slow_any_more(world: World) -> None:
    first, second = gang(world)
    for agent, work_s in ((first, 0.1), (second, 0.111)):
        step(world, agent, work_s)
    progress = next(iter(world.machine.sweep.gangs.values())).progress  # type: ignore[union-attr]
    assert progress.slow is not None
    progress.forget(world.running[second].rank)
    assert progress.slow is None
