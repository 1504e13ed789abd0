"""A rule pauses trials at their rungs: they give back their slots, and continue from checkpoints once promoted."""

import pytest

from sparktrain.base.ids import AgentId, TrialId
from sparktrain.config.stoppers import ASHA, Hyperband, Threshold
from sparktrain.state import agent_messages as m
from sparktrain.state import commands as do
from sparktrain.state import events as on
from sparktrain.state.ending import Ending
from sparktrain.state.machine import Machine
from sparktrain.state.outcome import FailureKind, Outcome, Report
from sparktrain.state.records import DriverStarted, RungReached, TrialPaused, TrialPromoted
from sparktrain.state.recovery import compacted
from sparktrain.state.trial import Trial
from tests.support.limits import run_limits
from tests.unit.state.test_recovery import successor
from tests.unit.state.world import LEASE_S, RUN, World

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
    assert (trial(world, 0).status, trial(world, 1).pause.due) == ("paused", None)


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
    assert "it has no checkpoint to continue from" in trial(world, 0).outcome.notices[0]


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
    assert trial(world, 0).pause.due is None
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


# ---- losses before the checkpoint with which a trial would wait


def advised(world: World, agent: AgentId = A) -> bool:
    """The member is to stop: by a message of its own, or with the judgement of its reports."""
    member = world.running[agent]
    judged = [each for each in world.sent(m.Judged) if each.member == member and each.stops]
    return bool(judged) or m.Advise(member) in world.sent(m.Advise)


def test_a_trial_whose_driver_dies_before_its_first_checkpoint_trains_up_to_its_pause_again() -> None:
    world = started(stopper=(ASHA(most=9, first=3, eta=2, promote=True),))
    learn(world, 0.5, 2, saves=False)
    assert advised(world)
    new = successor(world, **LIMITS | {"stopper": (ASHA(most=9, first=3, eta=2, promote=True),)})
    new.join("a")
    assert (new.running[A].trial, new.running[A].generation) == (0, 2)
    new.enter(A)
    for step in (0, 1):
        learn(new, 0.6, step, saves=False)
        assert not advised(new), "a result after one step would count as the trial's"
    assert [each.next for each in new.sent(m.Judged)] == [2, 2, 2], "it waits for the rules at its pause"
    learn(new, 0.5, 2)
    assert advised(new)
    stop(new, 0.5)
    assert trial(new, 0).status == "paused"
    assert len([each for each in new.records if isinstance(each, RungReached)]) == 1, "it is not judged again"


@pytest.mark.parametrize("size", [1, 2])
def test_a_trial_that_loses_an_agent_before_its_first_checkpoint_is_restarted_and_not_pruned(size: int) -> None:
    world = World(cases=1)
    world.begin(**LIMITS, size=size)
    for number in range(3):
        world.join(f"a{number}")
    world.suggest()
    for agent in [agent for agent in world.running if size > 1]:
        world.reserve(agent)
    for agent in list(world.running):
        world.enter(agent)
    chief = next(agent for agent, member in world.running.items() if member.rank == 0)
    learn(world, 0.5, 0, saves=False, agent=chief)
    assert advised(world, chief)
    world.lose(chief)
    for agent in list(world.running):
        if world.running[agent].generation == 1:
            world.fail(agent, FailureKind.STOPPED)
    assert world.status(0) == "running"
    first = trial(world, 0)
    assert (first.generation, first.restart_history.losses, first.outcome.notices) == (2, 1, ())
    chief = next(agent for agent, member in world.running.items() if member.rank == 0)
    assert not advised(world, chief)


def test_a_trial_that_was_promoted_while_its_gang_ended_continues_without_a_checkpoint_too() -> None:
    world = World(cases=2)
    world.begin(**LIMITS)
    agents = [world.join(name) for name in ("a", "b")]
    world.suggest()
    for agent in agents:
        world.enter(agent)
    learn(world, 0.5, 0, saves=False, agent=agents[0])
    learn(world, 0.7, 0, agent=agents[1])
    assert trial(world, 0).pause.due is None
    stop(world, 0.5, agents[0])
    assert (trial(world, 0).status, trial(world, 0).generation) == ("running", 2)
    assert not advised(world, agents[0])


def retried(world: World) -> World:
    new = World(Machine(LEASE_S), at=world.at, cases=world.cases)
    start = DriverStarted(plan="p", at=5.0, retry_failed=True)
    limits = run_limits(**LIMITS)
    new.feed(on.RunStarted(new.at, RUN, limits, tuple(world.records), start))
    return new


def test_a_failed_trial_that_is_retried_runs_before_it_waits() -> None:
    world = started()
    learn(world, 0.5, 0, saves=False)
    world = successor(world, **LIMITS)
    world.join("a")
    world.enter(A)
    world.write(A, 1)
    world.fail(A, FailureKind.EXCEPTION)
    assert world.status(0) == "failed"
    assert [successor(world, **LIMITS).status(0), retried(world).status(0)] == ["failed", "queued"]


def test_a_paused_trial_is_not_judged_again_when_another_rule_learns_how_long_a_trial_is() -> None:
    world = World(cases=2)
    world.begin(**LIMITS | {"stopper": (ASHA(most=9, first=2, eta=2, promote=True), Hyperband(eta=2))})
    agents = [world.join(name) for name in ("a", "b")]
    world.suggest()
    for agent in agents:
        world.enter(agent)
    world.write(agents[0], 4)
    learn(world, 0.7, 3, agent=agents[0])  # over the rungs at 2 and 4
    stop(world, 0.7, agents[0])
    for step in range(9):
        learn(world, 0.1, step, agent=agents[1])
    world.end(agents[1], Outcome(1.0, metrics={"loss": 0.1}))
    rungs = [each.rung for each in world.records if isinstance(each, RungReached) and each.trial == 0]
    assert [rung for rung in rungs if rung == 4] == []
