"""A sweep as a study of Optuna."""

import math
import sys
from typing import Any

import optuna
import pytest
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import TrialState

import sparktrain as st
from sparktrain.errors import SpecError
from sparktrain.results.study_export import _distribution
from sparktrain.results.sweep_result import SweepResult
from sparktrain.runs.sweep_outcome import SweepStatus
from sparktrain.search.sampled_space import space
from sparktrain.search.space_json import stored_leaves, to_document
from sparktrain.state.outcome import Failure, FailureKind

S = st.TrialStatus


def trial(number: int, status: st.TrialStatus = S.SUCCEEDED, loss: float | None = 1.0, **params: Any) -> st.TrialResult:
    metrics = {} if loss is None else {"loss": loss, "epochs": 3.0}
    error = Failure(FailureKind.EXCEPTION, "ValueError: no") if status is S.FAILED else None
    return st.TrialResult(id=number, status=status, params=params, metrics=metrics, error=error, seconds=2.0)  # type: ignore[arg-type]


def sweep(*trials: st.TrialResult, metric: str | None = "loss") -> SweepResult:
    return SweepResult(name="mnist", status=SweepStatus.SUCCEEDED, metric=metric, mode="min", trials=trials)


@pytest.mark.parametrize(
    ("status", "state"),
    [
        (S.QUEUED, TrialState.WAITING),
        (S.RUNNING, TrialState.RUNNING),
        (S.PAUSED, TrialState.RUNNING),
        (S.STOPPED, TrialState.FAIL),
    ],
)
def test_a_trial_without_a_result_has_the_state_of_its_status(status: st.TrialStatus, state: TrialState) -> None:
    assert sweep(trial(0), trial(1, status, None)).to_study().trials[1].state is state


def test_trials_have_their_states_values_and_attributes() -> None:
    made = sweep(
        trial(0, lr=0.1, units=[8, 8]),
        trial(1, S.FAILED, None, lr=0.2, units=[16]),
        trial(2, S.PRUNED, 4.0, lr=0.3, units=[16]),
        trial(3, loss=math.nan, lr=0.4, units=[8, 8]),
        trial(4, S.LOST, None, lr=0.1, units=[16]),
    ).to_study()
    states = [TrialState.COMPLETE, TrialState.FAIL, TrialState.PRUNED, TrialState.FAIL, TrialState.FAIL]
    assert [each.state for each in made.trials] == states
    assert made.best_trial.params == {"lr": 0.1, "units": "[8, 8]"}
    assert made.direction is optuna.study.StudyDirection.MINIMIZE
    assert made.trials[0].user_attrs["epochs"] == 3.0
    assert made.trials[1].user_attrs["sparktrain:error"] == "ValueError: no"
    assert made.trials[2].value == 4.0
    assert made.trials[0].distributions["lr"] == CategoricalDistribution((0.1, 0.2, 0.3, 0.4))


@pytest.mark.parametrize(
    ("leaf", "wanted"),
    [
        (st.uniform(0, 2), FloatDistribution(0, 2)),
        (st.loguniform(1e-4, 1), FloatDistribution(1e-4, 1, log=True)),
        (st.quniform(0, 1, 0.3), FloatDistribution(0, 0.9, step=0.3)),
        (st.randint(1, 8), IntDistribution(1, 8)),
        (st.lograndint(1, 8), IntDistribution(1, 8, log=True)),
        (st.choice(["a", [1, 2]]), CategoricalDistribution(("a", "[1, 2]"))),
        ((3, 1), CategoricalDistribution((3, 1))),
    ],
)
def test_distributions_of_a_space(leaf: Any, wanted: Any) -> None:
    assert _distribution(leaf) == wanted


def test_a_stored_space_has_its_leaves_also_under_conditions() -> None:
    made = space(
        lr=st.loguniform(1e-4, 1),
        optimizer={"name": ["sgd", "adam"], "momentum": st.uniform(0, 1)},
        deep=st.when(lambda p: p["lr"] > 0.1, st.randint(1, 3)),
        epochs=10,
    )
    assert stored_leaves(to_document(made, None)) == made.leaves


def test_a_study_needs_a_metric() -> None:
    with pytest.raises(SpecError, match=r"no metric.*to_study\(metric=\.\.\.\) with one of loss, epochs"):
        sweep(trial(0, lr=0.1), metric=None).to_study()
    with pytest.raises(SpecError, match="no trial of run mnist has that metric; choose one of loss, epochs"):
        sweep(trial(0, lr=0.1)).to_study(metric="accuracy")
    assert sweep(trial(0, lr=0.1), metric=None).to_study(metric="epochs").best_value == 3.0


def test_without_optuna_it_names_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sparktrain.results.study_export.find_spec", lambda name: None)
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(SpecError, match=r"needs optuna, which is not installed: pip install 'sparktrain\[search\]'"):
        sweep(trial(0, lr=0.1)).to_study()
