"""The trial of an objective in a training process, joined to a study without a driver between them."""

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import optuna
import pytest
from optuna.trial import TrialState

from sparktrain.base.ids import TrialId
from sparktrain.search.sampler import Observation, ObservedStatus
from sparktrain.search.study_sampler import StudySampler
from sparktrain.state.outcome import EndedEarly
from sparktrain.training.study_trial import StudyTrial, run_objective


class Context:
    """The `ctx` of a trial: it passes questions to a sampler at once."""

    def __init__(self, sampler: StudySampler, trial: int = 0) -> None:
        self.trial = trial
        self.reports: list[tuple[int, float]] = []
        self._sampler = sampler

    def ask_sampler(self, question: bytes, timeout_s: float | None) -> tuple[bytes, str] | None:
        reply = self._sampler.answer(TrialId(self.trial), question)
        return None if timeout_s is None else (reply.answer, reply.problem)

    def report(self, step: int, **metrics: float) -> None:
        self.reports.append((step, metrics["value"]))


def run_all(study: optuna.Study, objective: Any, trials: int) -> None:
    """What a run does, one trial at a time."""
    sampler = StudySampler(study, trials)
    sampler.open("r", [])
    for number in range(trials):
        try:
            found = run_objective(objective, Context(sampler, number))  # type: ignore[arg-type]
        except ZeroDivisionError:
            end = (ObservedStatus.FAILED, {})
        else:
            pruned = isinstance(found, EndedEarly)
            end = (ObservedStatus.PRUNED, {}) if pruned else (ObservedStatus.SUCCEEDED, found)  # type: ignore[assignment]
        sampler.observe(Observation(TrialId(number), {}, *end))


def objective(trial: Any) -> float:
    kind = trial.suggest_categorical("kind", ["plain", "deep", None])
    x = trial.suggest_float("x", 1e-3, 8, log=True)
    if kind == "deep":
        x += trial.suggest_int("layers", 2, 10, step=2) + trial.suggest_float("drop", 0, 1, step=0.25)
    trial.set_user_attr("kind", kind)
    if trial.number == 11:
        x = 1 / 0
    for step in range(5):
        trial.report(x / (step + 1), step)
        if trial.should_prune():
            raise optuna.TrialPruned
    return float(x)


def studied(trial: optuna.trial.FrozenTrial) -> list[Any]:
    attrs = {name: value for name, value in trial.user_attrs.items() if not name.startswith("sparktrain")}
    return [trial.state, trial.value, trial.params, trial.distributions, trial.intermediate_values, attrs]


@pytest.mark.parametrize(
    "pruner",
    [
        optuna.pruners.MedianPruner(n_startup_trials=4),
        optuna.pruners.SuccessiveHalvingPruner(),
        optuna.pruners.NopPruner(),
    ],
)
def test_a_study_is_the_same_as_by_its_own_optimize(pruner: optuna.pruners.BasePruner) -> None:
    studies = [
        optuna.create_study(study_name="s", sampler=optuna.samplers.TPESampler(seed=5), pruner=pruner) for _ in range(2)
    ]
    studies[0].optimize(objective, n_trials=30, catch=ZeroDivisionError)
    run_all(studies[1], objective, 30)
    assert list(map(studied, studies[1].trials)) == list(map(studied, studies[0].trials))
    states = {each.state for each in studies[1].trials}
    assert TrialState.FAIL in states
    assert (TrialState.PRUNED in states) != isinstance(pruner, optuna.pruners.NopPruner)


@pytest.fixture
def trial() -> StudyTrial:
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=1))
    sampler = StudySampler(study, 1)
    sampler.open("r", [])
    return StudyTrial(Context(sampler))  # type: ignore[arg-type]


def test_it_has_what_objectives_read(trial: StudyTrial) -> None:
    x = trial.suggest_float("x", 0, 1)
    trial.set_user_attr("a", {"b": 1})
    trial.set_constraint("c", 1)
    assert isinstance(trial, optuna.trial.BaseTrial)
    assert (trial.number, trial.params, trial.user_attrs) == (0, {"x": x}, {"a": {"b": 1}})
    assert trial.distributions == {"x": optuna.distributions.FloatDistribution(0, 1)}
    assert trial.constraints == {"c": 1.0}
    assert trial.datetime_start is not None


def test_it_knows_what_never_changes_in_its_study(trial: StudyTrial) -> None:
    study = trial._ctx._sampler._study  # type: ignore[attr-defined]
    assert trial.study.direction == optuna.study.StudyDirection.MINIMIZE
    assert (trial.study.directions, trial.study.study_name) == (study.directions, study.study_name)
    assert (trial.study.metric_names, trial.study.user_attrs) == (None, {})
    study.set_user_attr("rows", [1])
    assert trial.study.user_attrs == {"rows": [1]}
    study.set_user_attr("rows", object())
    with pytest.raises(TypeError, match=r"trial\.study\.user_attrs: Object of type object is not JSON"):
        _ = trial.study.user_attrs


def test_a_study_with_several_objectives_has_directions_alone() -> None:
    sampler = StudySampler(optuna.create_study(directions=["minimize", "maximize"]), 1)
    sampler.open("r", [])
    study = StudyTrial(Context(sampler)).study  # type: ignore[arg-type]
    assert [direction.name for direction in study.directions] == ["MINIMIZE", "MAXIMIZE"]
    with pytest.raises(RuntimeError, match=r"2 objectives; use trial\.study\.directions"):
        _ = study.direction


def test_deprecated_names_warn_as_optuna_does(trial: StudyTrial) -> None:
    with pytest.warns(FutureWarning, match="suggest_uniform has been deprecated"):
        assert 0 <= trial.suggest_uniform("u", 0, 1) <= 1
    with pytest.warns(FutureWarning, match="suggest_loguniform has been deprecated"):
        assert 1 <= trial.suggest_loguniform("l", 1, 2) <= 2
    with pytest.warns(FutureWarning, match="suggest_discrete_uniform has been deprecated"):
        assert trial.suggest_discrete_uniform("d", 0, 1, 0.5) in (0, 0.5, 1)


def test_wrong_arguments_raise_what_optuna_raises(trial: StudyTrial) -> None:
    trial.suggest_float("x", 0, 1)
    with pytest.raises(ValueError, match="Cannot set different distribution kind"):
        trial.suggest_int("x", 0, 1)
    with pytest.warns(RuntimeWarning, match="Inconsistent parameter values"):
        assert trial.suggest_float("x", 0, 2) == trial.params["x"]
    with pytest.raises(ValueError, match="must be non-negative"):
        trial.report(1.0, -1)
    with pytest.raises(TypeError, match="supposed to be a float"):
        trial.report("high", 1)  # type: ignore[arg-type]
    trial.report(1.0, 1)
    with pytest.warns(UserWarning, match="already reported"):
        trial.report(2.0, 1)
    with pytest.raises(ValueError, match="NaN is not allowed"):
        trial.set_constraint("c", float("nan"))
    with pytest.raises(AttributeError, match=r"trial\.study\.best_value is in the driver alone"):
        trial.study.best_value  # noqa: B018
    with pytest.raises(AttributeError, match=r"trial\.storage is in the driver alone: use it there"):
        trial.storage  # noqa: B018


def test_reports_of_a_smaller_step_reach_the_study_and_not_the_run(trial: StudyTrial) -> None:
    for step in (3, 1, 4):
        trial.report(float(step), step)
    assert trial._ctx.reports == [(3, 3.0), (4, 4.0)]  # type: ignore[attr-defined]


def test_a_driver_that_does_not_answer_is_named_with_the_trial_and_the_question(trial: StudyTrial) -> None:
    trial._ctx.ask_sampler = lambda question, timeout_s: None  # type: ignore[method-assign]
    with pytest.raises(TimeoutError, match=r"trial 0: the driver has not answered trial\.suggest_\*\('x'\) within 600"):
        trial.suggest_float("x", 0, 1)


def test_an_objective_that_only_reports_waits_from_time_to_time(trial: StudyTrial) -> None:
    waits = list[float | None]()

    def ask(question: bytes, timeout_s: float | None) -> tuple[bytes, str] | None:
        waits.append(timeout_s)
        return (b"null", "")

    trial._ctx.ask_sampler = ask  # type: ignore[method-assign]
    for step in range(200):
        trial.report(1.0, step)
    assert sum(each is not None for each in waits) == 3


@pytest.mark.parametrize(
    ("returned", "words"),
    [(None, "returned None, which is no number"), ("high", "returned 'high', which is no number")],
)
def test_an_objective_returns_a_number(returned: Any, words: str) -> None:
    sampler = StudySampler(optuna.create_study(), 1)
    with pytest.raises(ValueError, match=words):
        run_objective(lambda trial: returned, Context(sampler))  # type: ignore[arg-type]


def test_with_several_objectives_it_returns_as_many_and_cannot_report() -> None:
    sampler = StudySampler(optuna.create_study(directions=["minimize"] * 2), None)
    context: Any = Context(sampler)
    assert run_objective(lambda trial: (1, 2.5), context) == {"values_0": 1.0, "values_1": 2.5}
    for wrong in ((1,), "ab", 3.0):
        with pytest.raises(ValueError, match="the study has 2 objectives: return a tuple"):
            run_objective(lambda trial, wrong=wrong: wrong, context)
    for call in (lambda trial: trial.report(1.0, 0), lambda trial: trial.should_prune()):
        with pytest.raises(NotImplementedError, match="not supported for multi-objective"):
            run_objective(call, context)


@pytest.mark.filterwarnings("ignore:Choices for a categorical distribution")  # a list is one, as for Optuna
def test_values_of_numpy_are_stored_as_plain_ones(trial: StudyTrial) -> None:
    choice = trial.suggest_categorical("n", list(np.arange(3)))
    assert isinstance(choice, np.int64), "the objective has its own value"
    array = trial.suggest_categorical("a", [np.zeros(2), np.ones(2)])
    assert isinstance(array, np.ndarray)
    trial.suggest_float("x", np.float32(0), np.float32(1), step=np.float64(0.5), log=np.bool_(False))  # type: ignore[arg-type]
    trial.suggest_int("i", np.int64(1), np.int32(9), step=np.int64(2), log=np.bool_(False))  # type: ignore[arg-type]
    trial.set_user_attr("scores", {"f1": np.arange(2), np.int64(3): [np.float32(0.5), np.bool_(True), None]})
    trial.report(np.float32(0.5), np.int64(1))  # type: ignore[arg-type]
    study = trial._ctx._sampler._study  # type: ignore[attr-defined]
    stored = study.trials[0]
    assert json.loads(json.dumps(stored.params)) == trial.params == stored.params
    assert stored.distributions["n"].choices == (0, 1, 2)
    assert stored.user_attrs["scores"] == {"f1": [0, 1], "3": [0.5, True, None]}
    assert json.loads(json.dumps(trial.user_attrs)) == trial.user_attrs


def test_a_choice_that_no_study_can_store_is_named(trial: StudyTrial) -> None:
    with pytest.raises(
        TypeError, match=r"trial.suggest_categorical\('opt'\): choice <function .* a study keeps .*pass a n"
    ):
        trial.suggest_categorical("opt", [test_questions_are_json])


def test_equal_choices_of_other_types_stay_apart(trial: StudyTrial) -> None:
    found = {
        type(StudyTrial(Context(trial._ctx._sampler, n)).suggest_categorical("c", [1, True])) for n in range(1, 20)
    }  # type: ignore[attr-defined, arg-type]
    assert found <= {int, bool}


def test_threads_of_an_objective_ask_one_at_a_time(trial: StudyTrial) -> None:
    context, together = trial._ctx, threading.Barrier(4)
    asking, asked = threading.Lock(), context.ask_sampler  # type: ignore[attr-defined]

    def ask(question: bytes, timeout_s: float | None) -> Any:
        assert asking.acquire(blocking=False), "two questions at a time"
        try:
            return asked(question, timeout_s)
        finally:
            asking.release()

    context.ask_sampler = ask  # type: ignore[method-assign]

    def work(number: int) -> list[float]:
        together.wait(10)
        found = [trial.suggest_float(f"x{number % 2}-{each}", 0, 1) for each in range(20)]
        trial.set_user_attr(f"a{number}", number)
        trial.report(0.5, number)
        return [*found, float(trial.should_prune())]

    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(work, range(4)))
    assert (found[0], found[1]) == (found[2], found[3]), "both threads that ask for a name have its value"
    assert len(trial.params) == 40


def test_a_process_that_the_objective_starts_cannot_ask(trial: StudyTrial) -> None:
    trial._process += 1
    with pytest.raises(RuntimeError, match=r"trial\.suggest_\*\('x'\) is called in process .*ask for all values first"):
        trial.suggest_float("x", 0, 1)


def test_an_objective_stops_its_study(trial: StudyTrial) -> None:
    trial.study.stop()
    assert trial._ctx._sampler.suggest(1).exhausted  # type: ignore[attr-defined]


def test_questions_are_json(trial: StudyTrial) -> None:
    with pytest.raises(TypeError, match=r"trial\.set_user_attr\('a'\) is <object object> \(object\), and a study"):
        trial.set_user_attr("a", object())
    assert json.dumps(trial.user_attrs) == "{}"
