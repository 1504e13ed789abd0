"""A rule pauses trials at their rungs: they give back their slots, and continue from checkpoints once promoted."""

import pytest

from sparktrain.config.stoppers import ASHA, Threshold
from sparktrain.ids import AgentId, TrialId
from sparktrain.state import agent_messages as m
from sparktrain.state import commands as do
from sparktrain.state.ending import Ending
from sparktrain.state.outcome import FailureKind, Outcome, Report
from sparktrain.state.records import TrialPaused, TrialPromoted
from sparktrain.state.recovery import compacted
from sparktrain.state.trial import Trial
from tests.unit.state.test_recovery import successor
from tests.unit.state.world import World

RULE = ASHA(most=9, first=1, eta=2, promote=True)  # rungs after 1, 2, 4 and 8 steps
LIMITS = {"metric": "loss", "mode": "min", "stopper": (RULE,)}
A = AgentId("a")


def started(cases: int = 4, **limits: object) -> World:
    """One agent, and as many trials as `cases`."""
    world = World(cases=cases)
    world.begin(**{**LIMITS, **limits})
    world.join("a")
    world.suggest()
    world.enter(A)
    return world


def trial(world: World, number: int) -> Trial:
    assert world.machine.last is not None
    return world.machine.last.trials[TrialId(number)]


def statuses(world: World) -> list[str]:
    assert world.machine.last is not None
    return [str(each.status) for each in world.machine.last.trials.values()]


def learn(world: World, loss: float, step: int, *, saves: bool = True, agent: AgentId = A) -> int:
    """The agent's trial checkpoints and reports `step`; returns its number."""
    number = int(world.running[agent].trial)
    if saves:
        world.write(agent, step + 1)
    world.receive(agent, m.MemberReported(world.running[agent], (Report(step, {"loss": loss}),)))
    return number


def stop(world: World, loss: float, agent: AgentId = A) -> None:
    """The agent's trial returns, as it was advised, and the next one starts."""
    world.end(agent, Outcome(1.0, metrics={"loss": loss}))
    world.suggest()
    if agent in world.running:
        world.enter(agent)


def pause(world: World, loss: float, step: int = 0) -> int:
    number = learn(world, loss, step)
    assert m.Advise(world.running[A]) in world.sent(m.Advise)
    stop(world, loss)
    return number


def test_a_trial_waits_and_continues_from_its_checkpoint_when_it_is_among_the_best() -> None:
    world = started()
    assert pause(world, 0.5) == 0
    assert (trial(world, 0).status, world.running[A].trial) == ("paused", 1)
    assert pause(world, 0.7) == 1  # of two, the best one continues: trial 0
    assert [each.trial for each in world.records if isinstance(each, TrialPromoted)] == [0]
    start = world.all(do.PlaceMember)[-1]
    assert (start.member.trial, start.member.generation) == (0, 2)
    assert start.checkpoint is not None
    assert start.checkpoint.step == 1
    assert not trial(world, 0).restarts[0].excused
    assert trial(world, 0).spent() == (0, 0)
    assert world.all(do.ConcludeTrial) == []


def test_a_trial_that_is_the_best_on_arrival_continues_without_a_pause() -> None:
    world = started()
    pause(world, 0.7)
    assert learn(world, 0.5, 0) == 1
    assert world.running[A].trial == 1
    assert len(world.sent(m.Advise)) == 1
    assert (trial(world, 0).status, trial(world, 1).pausing) == ("paused", None)


def run_on(world: World, losses: dict[int, float], most: int = 9) -> None:
    """Trials report their losses, and checkpoint each step, until the run is over."""
    for _ in range(500):
        if A not in world.running:
            return
        number = int(world.running[A].trial)
        at = trial(world, number).checkpoints.newest
        step = 0 if at is None else at.step
        if step >= most:
            stop(world, losses[number])
            continue
        advised = len(world.sent(m.Advise))
        learn(world, losses[number], step)
        if len(world.sent(m.Advise)) > advised:
            stop(world, losses[number])
    raise AssertionError("the run has no end")


def test_a_whole_search_trains_no_step_twice_and_finishes_the_best() -> None:
    world = started(cases=8)
    losses = {number: ((number * 5) % 8) / 10 for number in range(8)}
    run_on(world, losses)
    [end] = world.all(do.EndRun)
    assert end.ending is Ending.COMPLETE
    assert trial(world, 0).status == "succeeded"  # its loss is 0
    assert statuses(world).count("pruned") >= 5
    assert sorted(each.trial for each in world.all(do.ConcludeTrial)) == list(range(8))
    steps = [(each.trial, each.checkpoint.step) for each in world.records if hasattr(each, "checkpoint")]
    assert len(steps) == len(set(steps))


def test_where_none_was_promoted_to_its_end_the_best_of_those_that_wait_is() -> None:
    world = started(cases=1)
    run_on(world, {0: 0.5})
    assert statuses(world) == ["succeeded"]
    assert [each.rung for each in world.records if isinstance(each, TrialPromoted)] == [1, 2, 4, 8]


def test_a_value_that_is_not_finite_is_pruned_and_not_paused() -> None:
    world = started()
    learn(world, float("nan"), 0)
    stop(world, 0.0)
    assert trial(world, 0).status == "pruned"


def test_without_a_checkpoint_there_is_no_pause_and_the_user_is_told_why() -> None:
    world = started()
    learn(world, 0.5, 0, saves=False)
    stop(world, 0.5)
    assert trial(world, 0).status == "pruned"
    assert "it has no checkpoint to continue from" in trial(world, 0).notices[0]


@pytest.mark.parametrize("how", ["raises", "is lost"])
def test_however_its_gang_ends_it_waits(how: str) -> None:
    world = started()
    learn(world, 0.5, 0)
    if how == "raises":
        world.fail(A, FailureKind.EXCEPTION)
    else:
        world.lose(A)
    assert (trial(world, 0).status, trial(world, 0).failure) == ("paused", None)


def test_one_that_is_promoted_before_its_gang_is_gone_is_next() -> None:
    world = World(cases=2)
    world.begin(**LIMITS)
    agents = [world.join(name) for name in ("a", "b")]
    world.suggest()
    for agent in agents:
        world.enter(agent)
    learn(world, 0.5, 0, agent=agents[0])
    learn(world, 0.7, 0, agent=agents[1])
    assert trial(world, 0).pausing is None
    stop(world, 0.5, agents[0])
    assert world.running[agents[0]].trial == 0
    assert trial(world, 0).generation == 2


def test_a_stopped_run_has_no_paused_trials_and_they_wait_again_under_the_next_driver() -> None:
    world = started()
    pause(world, 0.5)
    world.stop()
    world.fail(A, FailureKind.STOPPED)
    assert set(statuses(world)) == {"stopped"}
    new = successor(world, **LIMITS)
    assert statuses(new)[:2] == ["paused", "queued"]
    agent = new.join("b")
    assert new.running[agent].trial == 1


def test_a_driver_that_takes_over_knows_who_waits_and_who_was_promoted() -> None:
    world = started()
    pause(world, 0.5)
    pause(world, 0.7)
    learn(world, 0.4, 1)  # trial 0, alone at the next rung: it pauses there
    for records in (world.records, compacted(world.records)):
        world.records = list(records)
        new = successor(world, **LIMITS)
        assert statuses(new)[:2] == ["paused", "paused"]
        new.join("b")
        new.suggest()
        assert new.running[AgentId("b")].trial == 2
    stop(world, 0.4)
    assert len([each for each in world.records if isinstance(each, TrialPaused)]) == 3


def test_a_rule_that_stops_wins_over_one_that_pauses() -> None:
    world = started(stopper=(RULE, Threshold(upper=1.0)))
    learn(world, 2.0, 0)
    stop(world, 2.0)
    assert trial(world, 0).status == "pruned"
    assert trial(world, 0).pruning is not None
    assert "threshold" in trial(world, 0).pruning.reason


def test_a_gang_is_paused_and_continues_as_a_whole() -> None:
    world = World(cases=2)
    world.begin(**LIMITS, size=2)
    both = [world.join(name) for name in "ab"]
    for number, loss in ((0, 0.5), (1, 0.7)):
        world.suggest()
        for agent in both:
            world.reserve(agent)
        for agent in both:
            world.enter(agent)
        chief = next(agent for agent in both if world.running[agent].rank == 0)
        assert learn(world, loss, 0, agent=chief) == number
        for agent in both:
            assert m.Advise(world.running[agent]) in world.sent(m.Advise)
            world.end(agent, Outcome(1.0, metrics={"loss": loss}))
    starts = [each for each in world.all(do.PlaceMember) if each.member.generation == 2]
    assert [(each.member.trial, each.member.rank) for each in starts] == [(0, 0), (0, 1)]
    assert {each.checkpoint.step for each in starts if each.checkpoint is not None} == {1}
    assert (trial(world, 0).status, trial(world, 1).status) == ("running", "paused")


def test_a_trial_that_pauses_while_the_run_stops_does_not_hold_the_run() -> None:
    world = started()
    learn(world, 0.5, 0)
    world.stop()
    world.end(A, Outcome(1.0, metrics={"loss": 0.5}))
    [end] = world.all(do.EndRun)
    assert end.ending is Ending.STOPPED
    assert trial(world, 0).status == "stopped"
    new = successor(world, **LIMITS)
    assert trial(new, 0).status == "paused"
