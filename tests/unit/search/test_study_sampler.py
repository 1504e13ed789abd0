"""A study as the sampler of a run: the questions of trials, ends, and what another driver restores."""

import json
import math
from typing import Any

import optuna
import pytest
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution, distribution_to_json
from optuna.trial import TrialState

from sparktrain.base.ids import TrialId
from sparktrain.errors import SamplerError
from sparktrain.optuna import StudyCallbacks
from sparktrain.search.sampler import AnsweringSampler, Observation, ObservedStatus, PastAnswer, PastSuggestion, Reply
from sparktrain.search.study_sampler import LABEL, StudySampler

X = FloatDistribution(-1, 1)
FIRST, SECOND = TrialId(0), TrialId(1)


def study(**options: Any) -> optuna.Study:
    return optuna.create_study(sampler=optuna.samplers.TPESampler(seed=3), **options)


class Driver:
    """A sampler and its answers, as a journal keeps them."""

    def __init__(self, of: optuna.Study, answers: list[PastAnswer] | None = None, **options: Any) -> None:
        self.answers = list(answers or ())
        self.sampler = StudySampler(of, **{"total": 10, **options})
        self.sampler.open("/runs/r", self.answers)

    def ask(self, trial: TrialId, **question: Any) -> Any:
        reply = self.reply(trial, **question)
        assert reply.problem == ""
        return json.loads(reply.answer)

    def reply(self, trial: TrialId, **question: Any) -> Reply:
        reply = self.sampler.answer(trial, json.dumps(question).encode())
        if reply.params or reply.memo:
            memo = json.loads(json.dumps(reply.memo))
            self.answers.append(PastAnswer(trial, json.loads(json.dumps(reply.params)), memo))
        return reply

    def suggest(self, trial: TrialId, name: str, distribution: Any) -> Any:
        return self.ask(trial, kind="suggest", name=name, distribution=distribution_to_json(distribution))

    def end(self, trial: TrialId, status: str = "succeeded", value: float | None = 0.5) -> None:
        self.sampler.observe(ended(trial, status, value))


def ended(trial: TrialId, status: str = "succeeded", value: float | None = 0.5) -> Observation:
    return Observation(trial, {}, ObservedStatus(status), {} if value is None else {"value": value})


def test_it_is_a_sampler_that_trials_ask() -> None:
    assert isinstance(StudySampler(study(), 1), AnsweringSampler)


def test_it_proposes_empty_cases_up_to_the_total() -> None:
    sampler = Driver(study(), total=3).sampler
    assert sampler.suggest(2).cases == ({}, {})
    last = sampler.suggest(2)
    assert (last.cases, last.exhausted) == (({},), True)


def test_a_parameter_is_the_same_each_time_and_noted_once() -> None:
    driver = Driver(study())
    value = driver.suggest(FIRST, "x", X)
    assert driver.suggest(FIRST, "x", X) == value
    assert [dict(each.params) for each in driver.answers] == [{"x": value}]


def test_ends_become_states_of_the_study() -> None:
    of = study()
    driver = Driver(of)
    for number, (status, value) in enumerate(
        [("succeeded", 0.5), ("failed", None), ("pruned", 0.25), ("succeeded", math.nan)]
    ):
        driver.suggest(TrialId(number), "x", X)
        driver.ask(TrialId(number), kind="report", step=0, value="0.25")
        driver.end(TrialId(number), status, value)
    states = [TrialState.COMPLETE, TrialState.FAIL, TrialState.PRUNED, TrialState.FAIL]
    assert [each.state for each in of.trials] == states
    assert [each.value for each in of.trials] == [0.5, None, 0.25, None]


def test_several_objectives_have_several_values() -> None:
    of = study(directions=["minimize", "maximize"])
    driver = Driver(of)
    assert driver.ask(FIRST, kind="start")["study"]["directions"] == ["MINIMIZE", "MAXIMIZE"]
    driver.sampler.observe(Observation(FIRST, {}, ObservedStatus.SUCCEEDED, {"values_1": 2.0, "values_0": 1.0}))
    assert of.trials[0].values == [1.0, 2.0]


def test_what_optuna_refuses_is_the_trials_own_error() -> None:
    driver = Driver(study())
    driver.suggest(FIRST, "x", X)
    wrong = driver.reply(
        SECOND, kind="suggest", name="x", distribution=distribution_to_json(CategoricalDistribution((1, 2)))
    )
    assert wrong.problem.startswith("ValueError: Cannot set different distribution kind")
    assert wrong.params == {}


def test_an_enqueued_trial_comes_first() -> None:
    of = study()
    of.enqueue_trial({"x": 0.125}, user_attrs={"mine": 1})
    driver = Driver(of)
    assert driver.ask(FIRST, kind="start")["attrs"] == {"mine": 1}
    assert driver.suggest(FIRST, "x", X) == 0.125


def test_a_callback_ends_the_run_by_stop() -> None:
    of, seen = study(), list[tuple[int, Any]]()

    def callback(of_study: optuna.Study, trial: optuna.trial.FrozenTrial) -> None:
        seen.append((trial.number, trial.value))
        if len(seen) == 2:
            of_study.stop()

    driver = Driver(of, on_end=StudyCallbacks([callback]))
    for number in (FIRST, SECOND):
        assert not driver.sampler.suggest(1).exhausted
        driver.ask(number, kind="start")
        driver.end(number)
    assert seen == [(0, 0.5), (1, 0.5)]
    assert driver.sampler.suggest(1) == type(driver.sampler.suggest(1))((), exhausted=True)
    with pytest.raises(RuntimeError, match="supposed to be invoked inside"):
        of.stop()  # the study is as before


@pytest.mark.parametrize("error", [RuntimeError("no room"), SystemExit(2)], ids=repr)
def test_a_callback_that_raises_is_named_not_the_sampler(error: BaseException) -> None:
    def mine(of_study: optuna.Study, trial: optuna.trial.FrozenTrial) -> None:
        raise error

    driver = Driver(study(), on_end=StudyCallbacks([mine]))
    driver.ask(FIRST, kind="start")
    with pytest.raises(
        SamplerError, match=rf"the callback mine of optuna.optimize\(\) raised {type(error).__name__} for"
    ):
        driver.end(FIRST)


class Ending(optuna.samplers.RandomSampler):
    """A sampler of a user that has enough after some trials."""

    def after_trial(self, study: optuna.Study, trial: Any, state: Any, values: Any) -> None:
        if trial.number == 3:
            study.stop()


GRID = {"x": [0, 1, 2], "y": [0, 1]}
ENDING = {
    "grid": (lambda: optuna.samplers.GridSampler(GRID, seed=1), 6),
    "brute force": (lambda: optuna.samplers.BruteForceSampler(seed=1), 6),
    "strict brute force": (lambda: optuna.samplers.BruteForceSampler(seed=1, avoid_premature_stop=True), 6),
    "of a user": (lambda: Ending(seed=1), 4),
}


@pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")  # of the brute force
@pytest.mark.parametrize("total", [20, None])
@pytest.mark.parametrize(("make", "trials"), ENDING.values(), ids=ENDING)
def test_a_sampler_that_stops_its_study_ends_the_run(make: Any, trials: int, total: int | None) -> None:
    of = optuna.create_study(sampler=make())
    driver = Driver(of, total=total)
    for number in map(TrialId, range(20)):
        if (asked := driver.sampler.suggest(1)).exhausted:
            break
        assert len(asked.cases) == 1
        driver.suggest(number, "x", IntDistribution(0, 2))
        driver.suggest(number, "y", IntDistribution(0, 1))
        driver.end(number)
    optimized = optuna.create_study(sampler=make())
    optimized.optimize(lambda trial: trial.suggest_int("x", 0, 2) + trial.suggest_int("y", 0, 1), n_trials=20)
    assert (len(of.trials), len(optimized.trials)) == (trials, trials)
    if trials == 6:
        assert {tuple(each.params.values()) for each in of.trials} == {(x, y) for x in range(3) for y in range(2)}


@pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")  # of the brute force
@pytest.mark.parametrize("make", [ENDING["grid"][0], ENDING["brute force"][0]], ids=["grid", "brute force"])
def test_a_slot_waits_rather_than_repeat_a_case_that_runs(make: Any) -> None:
    of = optuna.create_study(sampler=make())
    driver = Driver(of, total=20)

    def begin(number: int) -> None:
        driver.suggest(TrialId(number), "x", IntDistribution(0, 2))

    assert len(driver.sampler.suggest(2).cases) == 2
    begin(0)
    begin(1)
    driver.end(FIRST)
    assert len(driver.sampler.suggest(1).cases) == 1
    if isinstance(of.sampler, optuna.samplers.BruteForceSampler):
        driver.end(SECOND)
        assert driver.sampler.suggest(1).cases == (), "the third has not asked, and takes what is left"
        begin(2)
        driver.end(TrialId(2))
        assert driver.sampler.suggest(1).exhausted


def test_an_objective_may_stop_its_study() -> None:
    driver = Driver(study())
    driver.sampler.suggest(1)
    driver.ask(FIRST, kind="start")
    assert driver.ask(FIRST, kind="stop") is None
    driver.end(FIRST)
    assert driver.sampler.suggest(1).exhausted


def test_a_study_that_another_run_has_stopped_starts_afresh() -> None:
    of = study()
    of._stop_flag = True
    assert len(Driver(of).sampler.suggest(2).cases) == 2


def test_the_first_line_names_the_study() -> None:
    made = StudySampler(study(study_name="mnist"), 1)
    assert made.line == "study 'mnist' (TPESampler, MedianPruner) proposes the parameters that each trial asks for"


def test_a_storage_that_hangs_is_left_alone_at_the_end() -> None:
    of = study()
    driver = Driver(of)
    driver.ask(FIRST, kind="start")
    with driver.sampler._called():
        driver.sampler.close()
    assert of.trials[0].state is TrialState.RUNNING
    driver.sampler.close()
    assert of.trials[0].state is TrialState.FAIL


@pytest.mark.parametrize("kept", [True, False])
def test_another_driver_gives_a_running_trial_the_same_values(kept: bool) -> None:
    of = study()
    before = Driver(of)
    before.sampler.suggest(2)
    x = before.suggest(FIRST, "x", X)
    kind = before.suggest(FIRST, "kind", CategoricalDistribution(("a", "b")))
    before.ask(FIRST, kind="attr", name="mine", value=[1])
    after = Driver(of if kept else study(), before.answers)
    after.sampler.restore([PastSuggestion(FIRST, ({}, {}), False)])
    assert after.ask(FIRST, kind="start")["attrs"] == {"mine": [1]}
    assert after.suggest(FIRST, "x", X) == x
    assert after.suggest(FIRST, "kind", CategoricalDistribution(("a", "b"))) == kind
    after.end(FIRST)
    [trial] = after.sampler._study.trials
    assert trial.state is TrialState.COMPLETE
    assert trial.params == {"x": x, "kind": "ab"[int(kind)]}
    assert trial.user_attrs == {"mine": [1], LABEL: "/runs/r#0"}


def test_an_end_that_the_study_lacks_is_recorded_when_another_driver_starts() -> None:
    of = study()
    before = Driver(of)
    before.ask(FIRST, kind="start")
    before.suggest(FIRST, "x", X)
    before.ask(SECOND, kind="start")
    before.end(SECOND)
    after = Driver(of, before.answers)
    after.sampler.restore([PastSuggestion(FIRST, ({}, {}), False), ended(SECOND), ended(FIRST, value=0.75)])
    assert [each.value for each in of.trials] == [0.75, 0.5]
    assert after.sampler.suggest(20).cases == ({},) * 8


def test_a_failed_trial_that_is_retried_is_another_trial_with_its_parameters() -> None:
    of = study()
    driver = Driver(of)
    x = driver.suggest(FIRST, "x", X)
    driver.ask(FIRST, kind="start")
    driver.end(FIRST, "failed", None)
    again = Driver(of, driver.answers)
    again.sampler.restore([PastSuggestion(FIRST, ({},), True), ended(FIRST, "failed", None)])
    assert again.suggest(FIRST, "x", X) == x
    again.end(FIRST)
    assert [each.state for each in of.trials] == [TrialState.FAIL, TrialState.COMPLETE]


def test_close_ends_what_runs() -> None:
    of = study()
    driver = Driver(of)
    driver.suggest(FIRST, "x", X)
    driver.sampler.close()
    assert of.trials[0].state is TrialState.FAIL


def test_a_trial_that_never_started_is_not_in_the_study() -> None:
    of = study()
    Driver(of).end(FIRST, "failed", None)
    assert of.trials == []


def test_a_trial_that_the_study_has_and_the_journal_lacks_is_taken_up() -> None:
    of = study()
    before = Driver(of)
    x = before.suggest(FIRST, "x", X)
    after = Driver(of)
    after.sampler.restore([PastSuggestion(FIRST, ({},), True)])
    assert after.suggest(FIRST, "x", X) == x
    other = StudySampler(of, 1)
    other.open("/runs/other", [])
    other.answer(FIRST, b'{"kind": "start"}')
    assert [each.user_attrs[LABEL] for each in of.trials] == ["/runs/r#0", "/runs/other#0"]
