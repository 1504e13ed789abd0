"""The user stops single trials: what the machine does, what is recorded, and what a driver that takes over knows."""

import pytest

from sparktrain.base.ids import AgentId, TrialId
from sparktrain.config.stoppers import ASHA
from sparktrain.state import agent_messages as m
from sparktrain.state import commands as do
from sparktrain.state.outcome import Outcome
from sparktrain.state.recovery import compacted
from sparktrain.state.run_machine import TIMEOUT_GRACE_S
from sparktrain.state.trial import Trial
from tests.unit.state.test_pruning import report, rungs, sweep_of
from tests.unit.state.test_recovery import successor
from tests.unit.state.world import World

A, B = AgentId("a"), AgentId("b")
REASON = "stopped by the user"


@pytest.fixture
def world() -> World:
    """Two agents that train trials 0 and 1 of four."""
    world = World()
    world.begin(metric="loss", mode="min", total=4, lookahead=1)
    agents = [world.join(name) for name in ("a", "b")]
    world.suggest()
    for agent in agents:
        world.enter(agent)
    return world


def trial_of(world: World, number: int) -> Trial:
    return sweep_of(world).trials[TrialId(number)]


def test_a_trial_that_runs_is_advised_and_keeps_its_last_report(world: World) -> None:
    report(world, A, 0.5, 0.25)
    member = world.running[A]
    assert do.Send(A, m.Advise(member)) in world.stop_trial(0)
    assert not any(isinstance(each, do.Send) for each in world.tick(TIMEOUT_GRACE_S - 0.5))
    assert do.Send(A, m.StopMember(member, 2.0)) in world.tick(1.0)
    ended = world.end(A, Outcome(1.0))
    trial = trial_of(world, 0)
    assert (trial.status, trial.metrics, trial.failure) == ("pruned", {"loss": 0.25}, None)
    assert trial.pruning == (1, 0.25, REASON)
    assert do.ConcludeTrial(TrialId(0)) in ended
    assert trial_of(world, 1).status == "running"


def test_one_that_has_reported_nothing_ends_without_a_value(world: World) -> None:
    world.stop_trial(0)
    world.end(A, Outcome(1.0))
    assert (trial_of(world, 0).status, trial_of(world, 0).metrics) == ("pruned", {})


def test_one_that_waits_never_starts(world: World) -> None:
    assert trial_of(world, 2).status == "queued"
    commands = world.stop_trial(2)
    assert do.ConcludeTrial(TrialId(2)) in commands
    assert (trial_of(world, 2).status, trial_of(world, 2).metrics) == ("pruned", {})
    world.end(A, Outcome(1.0, metrics={"loss": 1.0}))
    world.suggest()
    assert world.running[A].trial == 3


def test_one_that_is_paused_is_not_promoted() -> None:
    world = World()
    world.begin(metric="loss", mode="min", total=3, stopper=(ASHA(most=9, first=1, promote=True),))
    agent = world.join("a")
    world.suggest()
    world.enter(agent)
    world.write(agent, 1)
    report(world, agent, 5.0)
    world.end(agent, Outcome(1.0, metrics={"loss": 5.0}))
    assert trial_of(world, 0).status == "paused"
    assert do.ConcludeTrial(TrialId(0)) in world.stop_trial(0)
    assert trial_of(world, 0).status == "pruned"
    assert not sweep_of(world).paused


def test_stopping_twice_or_what_has_ended_or_is_unknown_changes_nothing(world: World) -> None:
    world.stop_trial(0)
    before = len(rungs(world))
    for number in (0, 99):
        assert world.stop_trial(number) == []
    world.end(A, Outcome(1.0))
    assert world.stop_trial(0) == []
    assert len(rungs(world)) == before == 1


@pytest.mark.parametrize("compact", [False, True])
def test_a_driver_that_takes_over_does_not_retry_it(world: World, compact: bool) -> None:
    report(world, A, 0.5)
    world.stop_trial(0)
    world.records = compacted(world.records) if compact else world.records
    later = successor(world, metric="loss", mode="min", total=4)
    trial = trial_of(later, 0)
    assert (trial.status, trial.metrics, trial.pruning) == ("pruned", {"loss": 0.5}, (0, 0.5, REASON))
    assert later.all(do.ConcludeTrial) == [do.ConcludeTrial(TrialId(0))]


def test_all_members_of_a_gang_are_advised() -> None:
    world = World()
    world.begin(size=2, metric="loss", mode="min")
    agents = [world.join("a"), world.join("b")]
    world.suggest()
    for agent in agents:
        world.reserve(agent)
        world.enter(agent)
    commands = world.stop_trial(0)
    assert {each.agent for each in commands if isinstance(each, do.Send) and isinstance(each.message, m.Advise)} == {
        *agents
    }
