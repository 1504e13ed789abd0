"""Cases of several trials: what the sampler is asked and learns, and which trials never start."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparktrain.base.ids import AgentId, TrialId
from sparktrain.config.stoppers import Threshold
from sparktrain.runs.history import observation
from sparktrain.search.sampler import Observation, ObservedStatus
from sparktrain.state import agent_messages as m
from sparktrain.state import commands as do
from sparktrain.state.cases.case_end import end_of, mean, means, standard_error, status_of_case
from sparktrain.state.ending import Ending
from sparktrain.state.outcome import Failure, FailureKind, Outcome, Report
from sparktrain.state.records import CaseClosed, TrialConcluded, TrialsAdded
from sparktrain.state.trial import Pruning, Trial, TrialStatus
from tests.unit.state.test_recovery import successor
from tests.unit.state.world import World

A, B = AgentId("a"), AgentId("b")
SUCCEEDED, FAILED, PRUNED = TrialStatus.SUCCEEDED, TrialStatus.FAILED, TrialStatus.PRUNED


def started(replicas: int = 4, cases: int = 3, agents: str = "a", **limits: object) -> World:
    world = World(cases=cases)
    world.begin(**{"metric": "loss", "mode": "min", "repeats": replicas, **limits})
    for name in agents:
        world.join(name)
    world.suggest()
    return world


def returns(world: World, loss: float | None, agent: AgentId = A) -> None:
    """The agent's trial ends, and the next one starts there."""
    failure = None if loss is not None else Failure(FailureKind.EXCEPTION, "ValueError: no")
    world.enter(agent)
    world.end(agent, Outcome(1.0, metrics=None if loss is None else {"loss": loss}, failure=failure))
    world.suggest()


def statuses(world: World) -> list[str]:
    assert world.machine.last is not None
    return [trial.status.value for trial in world.machine.last.trials.values()]


def learned(world: World) -> list[Observation]:
    """What the sampler is given, in that order."""
    sweep = world.machine.last
    assert sweep is not None
    ended = [each for each in world.all(do.ConcludeTrial) if sweep.trials[each.trial].status.observed]
    return [
        observation(sweep.cases.end(sweep.trials[each.trial]), "loss") for each in ended if not each.partial
    ]  # fmt: skip


def test_the_sampler_is_asked_for_cases_and_each_has_its_trials() -> None:
    world = started(replicas=4, cases=3, agents="abcde")
    [first, *_] = world.all(do.Suggest)
    assert first.count == 1, "one agent has joined"
    added = [each for each in world.records if isinstance(each, TrialsAdded)]
    assert {each.each for each in added} == {4}
    assert sum(len(each.cases) for each in added) == 2, "five agents have room for the trials of two cases"
    assert [member.trial for member in world.running.values()] == [0, 1, 2, 3, 4], "cases come one after the other"
    assert len(statuses(world)) == 8


def test_a_case_is_learned_once_by_its_means() -> None:
    world = started(replicas=2, cases=2, racing=False)
    for loss in (0.25, 0.75, None, 0.125):
        returns(world, loss)
    assert learned(world) == [
        Observation(TrialId(0), {"x": 0}, ObservedStatus.SUCCEEDED, {"loss": 0.5}),
        Observation(TrialId(1), {"x": 0}, ObservedStatus.SUCCEEDED, {"loss": 0.125}),
    ]
    added = [each.observed for each in world.records if isinstance(each, TrialsAdded)]
    assert added == [0, 1]
    [end] = world.all(do.EndRun)
    assert end.ending == Ending.COMPLETE


def test_a_case_with_a_lost_trial_is_not_learned() -> None:
    world = started(replicas=2, cases=1, max_retries=0, agents="ab")
    world.enter(A)
    world.enter(B)
    world.end(A, Outcome(1.0, metrics={"loss": 0.5}))
    world.lose(B)
    world.tick(60)
    assert statuses(world) == ["succeeded", "lost"]
    assert learned(world) == []


def test_the_rest_of_a_hopeless_case_never_starts() -> None:
    world = started(replicas=4, cases=2)
    for loss in (0.2, 0.2, 0.3, 0.3, 0.9, 0.9):
        returns(world, loss)
    assert statuses(world) == ["succeeded"] * 6 + ["pruned"] * 2
    [closed] = [each for each in world.records if isinstance(each, CaseClosed)]
    assert closed.case == 1
    assert closed.reason == (
        "closed after 2 trials: loss 0.9 is above the best in all 2 pairs, and its mean could reach 0.55 at best: "
        "case 0 (racing)"
    )
    place = world.records.index(closed)
    concluded = [each.trial for each in world.records[place:] if isinstance(each, TrialConcluded)]
    assert concluded == [6, 7], "the record comes before what follows from it"
    assert learned(world)[-1] == Observation(TrialId(1), {"x": 0}, ObservedStatus.PRUNED, {"loss": 0.9}, 2)
    assert world.all(do.EndRun)


def test_running_trials_of_a_hopeless_case_are_asked_to_stop() -> None:
    world = started(replicas=3, cases=2, agents="abcd")
    for agent in (A, B, AgentId("c")):
        returns(world, 0.1, agent)
    running = {member.trial: agent for agent, member in world.running.items()}
    assert sorted(running) == [3, 4, 5]
    last, member = running[5], world.running[running[5]]
    world.enter(last)
    returns(world, 0.9, running[3])
    returns(world, 0.8, running[4])
    assert do.Send(last, m.Advise(member)) in world.commands
    world.end(last, Outcome(1.0, metrics={"loss": 0.0}))
    assert statuses(world)[3:] == ["succeeded", "succeeded", "pruned"]
    assert learned(world)[-1].status is ObservedStatus.PRUNED


def test_a_case_that_a_failed_trial_completes_is_one_to_beat() -> None:
    world = started(replicas=4, cases=2)
    for loss in (0.2, 0.2, 0.3, None, 0.9, 0.9):
        returns(world, loss)
    assert statuses(world) == ["succeeded"] * 3 + ["failed"] + ["succeeded"] * 2 + ["pruned"] * 2


def reports(world: World, agent: AgentId, loss: float) -> None:
    world.receive(agent, m.MemberReported(world.running[agent], (Report(1, {"loss": loss}),)))


def test_rules_judge_the_first_trial_of_each_case() -> None:
    world = started(replicas=3, cases=2, agents="ab", stopper=(Threshold(upper=5.0),))
    for agent in (A, B):
        world.enter(agent)
    first, second = world.running[A], world.running[B]
    reports(world, B, 9.0)
    assert do.Send(B, m.Advise(second)) not in world.commands, "trial 1 is judged by no rule"
    reports(world, A, 9.0)
    assert do.Send(A, m.Advise(first)) in world.commands
    world.end(A, Outcome(1.0, metrics={"loss": 9.0}))
    assert statuses(world)[:3] == ["pruned", "running", "pruned"], "its case is closed with it"
    assert do.Send(B, m.Advise(second)) in world.commands
    world.end(B, Outcome(1.0, metrics={"loss": 9.0}))
    assert learned(world) == [Observation(TrialId(0), {"x": 0}, ObservedStatus.PRUNED, {"loss": 9.0}, 1)]
    [closed] = [each for each in world.records if isinstance(each, CaseClosed)]
    assert closed.reason.startswith("closed: trial 0 of the same parameters was stopped at step 1: loss 9 is above 5")


def test_racing_can_be_off() -> None:
    world = started(replicas=4, cases=2, racing=False)
    for loss in (0.2, 0.2, 0.3, 0.3, 0.9, 0.9, 0.9, 0.9):
        returns(world, loss)
    assert statuses(world) == ["succeeded"] * 8


def test_a_stopped_run_closes_no_case() -> None:
    world = started(replicas=3, cases=2, agents="ab", racing=True)
    returns(world, 0.1)
    returns(world, 0.1)
    returns(world, 0.1, B)
    assert statuses(world)[:3] == ["succeeded"] * 3
    world.stop(60.0)
    for agent in (A, B):
        if agent in world.running:
            world.enter(agent)
            world.end(agent, Outcome(1.0, metrics={"loss": 0.9}))
    assert not [each for each in world.records if isinstance(each, CaseClosed)]
    assert set(statuses(world)[5:]) <= {"stopped"}


def test_goals_are_about_means() -> None:
    world = started(replicas=2, cases=4, target=0.3, racing=False)
    for loss in (0.1, 0.9, 0.2, 0.3):
        returns(world, loss)
    [end] = world.all(do.EndRun)
    assert (end.ending, end.reason) == (Ending.TARGET, "case 1 reached the target: loss 0.25 (target=0.3)")


def test_a_plateau_is_of_cases() -> None:
    world = started(replicas=2, cases=9, plateau=2, racing=False)
    for loss in (0.1, 0.1, 0.2, 0.2, 0.3, 0.3):
        assert not world.all(do.EndRun)
        returns(world, loss)
    [end] = world.all(do.EndRun)
    assert end.reason == "none of the last 2 cases was better than case 0 (loss 0.1; plateau=2)"


# ---- aggregation


def of(status: TrialStatus, loss: float | None = None, pruning: Pruning | None = None) -> Trial:
    metrics = {} if loss is None else {"loss": loss}
    return Trial(TrialId(0), {"x": 1}, status, outcome=Outcome(0.0, metrics), pruning=pruning)


@pytest.mark.parametrize(
    ("trials", "status", "metrics", "step"),
    [
        ([of(SUCCEEDED, 1.0), of(SUCCEEDED, 3.0)], SUCCEEDED, {"loss": 2.0}, None),
        ([of(SUCCEEDED, 1.0), of(FAILED)], SUCCEEDED, {"loss": 1.0}, None),
        ([of(FAILED), of(FAILED)], FAILED, {}, None),
        ([of(SUCCEEDED, 1.0), of(PRUNED, 9.0), of(FAILED)], PRUNED, {"loss": 1.0}, 1),
        ([of(PRUNED, 9.0, Pruning(3, 9.0, "r")), of(PRUNED, None, Pruning(-1, None, "c"))], PRUNED, {"loss": 9.0}, 3),
        ([of(PRUNED, None, Pruning(3, None, "r")), of(FAILED)], PRUNED, {}, None),
    ],
)
def test_the_end_of_a_case(
    trials: list[Trial], status: TrialStatus, metrics: dict[str, float], step: int | None
) -> None:
    found = end_of(5, trials, "loss")
    assert (found.id, found.params, found.status, found.metrics, found.step) == (5, {"x": 1}, status, metrics, step)


@given(st.lists(st.sampled_from(list(TrialStatus)), min_size=1))
def test_the_status_of_a_case_is_final_once_all_are(trials: list[TrialStatus]) -> None:
    assert status_of_case(trials).final == all(each.final for each in trials)
    assert status_of_case(trials[:1]) in (trials[0], TrialStatus.RUNNING)


@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=9))
def test_mean_and_standard_error(values: list[float]) -> None:
    import numpy as np

    assert mean(values) == pytest.approx(np.mean(values), rel=1e-9, abs=1e-9)
    assert standard_error(values) == pytest.approx(np.std(values, ddof=1) / math.sqrt(len(values)), rel=1e-6, abs=1e-6)
    assert standard_error(values[:1]) is None


def test_means_are_over_the_trials_that_have_a_metric() -> None:
    found = means([{"a": 1.0, "b": 2.0}, {"a": 3.0}, {"a": math.nan, "c": math.inf}])
    assert found["b"] == 2.0
    assert math.isnan(found["a"])
    assert math.isnan(found["c"])


def test_a_case_that_a_dead_driver_closed_stays_closed() -> None:
    """Even where the next one does not race: the record alone decides."""
    limits = {"metric": "loss", "mode": "min", "repeats": 4}
    world = started(replicas=4, cases=2, agents="ab")
    for loss in (0.2, 0.3, 0.9):
        returns(world, loss, A)
        returns(world, loss, B)
    assert [member.trial for member in world.running.values()] == [6], "one runs, one waits"
    [closed] = [each for each in world.records if isinstance(each, CaseClosed)]
    del world.records[world.records.index(closed) + 1 :]
    after = successor(world, **limits, racing=False)
    assert statuses(after) == ["succeeded"] * 6 + ["pruned"] * 2
    assert {each.trial for each in after.all(do.ConcludeTrial)} == {6, 7}
    assert [observed.trial for observed in learned(after)] == [1]
    assert after.all(do.EndRun)
