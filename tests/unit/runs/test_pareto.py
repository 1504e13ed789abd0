"""Which trials no other trial dominates."""

import math
import time

import numpy as np
import pytest

from sparktrain.base.ids import TrialId
from sparktrain.errors import SpecError
from sparktrain.results.sweep_result import SweepResult
from sparktrain.runs.pareto import nondominated
from sparktrain.runs.sweep_outcome import SweepStatus
from sparktrain.runs.trial_result import TrialResult
from sparktrain.state.trial import TrialStatus

BOTH = {"accuracy": "max", "latency": "min"}


def result(*values: tuple[float, float], status: TrialStatus = TrialStatus.SUCCEEDED) -> SweepResult:
    trials = tuple(
        TrialResult(id=TrialId(at), params={}, status=status, metrics={"accuracy": accuracy, "latency": latency})
        for at, (accuracy, latency) in enumerate(values)
    )
    return SweepResult(name="mnist", status=SweepStatus.SUCCEEDED, trials=trials)


def ids(trials: list[TrialResult]) -> list[int]:
    return [trial.id for trial in trials]


def test_the_front_has_the_best_of_the_first_metric_first() -> None:
    assert ids(result((0.5, 1.0), (0.9, 9.0), (0.4, 2.0), (0.7, 3.0), (0.9, 10.0)).pareto_front(BOTH)) == [1, 3, 0]


def test_equal_trials_are_all_on_the_front() -> None:
    assert ids(result((0.5, 1.0), (0.5, 1.0), (0.5, 2.0)).pareto_front(BOTH)) == [0, 1]


def test_a_value_that_is_not_finite_is_not_on_the_front() -> None:
    assert ids(result((math.nan, 0.0), (math.inf, 5.0), (0.1, math.nan), (0.1, 6.0)).pareto_front(BOTH)) == [3]


def test_only_succeeded_trials_are_on_the_front() -> None:
    assert result((0.5, 1.0), status=TrialStatus.PRUNED).pareto_front(BOTH) == []


def test_a_trial_that_breaks_a_constraint_hides_no_other() -> None:
    made = result((0.9, 1.0), (0.8, 2.0), (0.7, 1.5))
    assert ids(made.pareto_front(BOTH)) == [0]
    assert ids(made.pareto_front(BOTH, ["accuracy < 0.9"])) == [1, 2]
    assert made.pareto_front(BOTH, ["accuracy > 0.9"]) == []


def test_a_metric_that_no_trial_has_is_named() -> None:
    with pytest.raises(SpecError, match=r"metric 'latencyy'; did you mean 'latency'\? .*accuracy, latency"):
        result((0.5, 1.0)).pareto_front({"latencyy": "min"})
    with pytest.raises(SpecError, match="metric 'size'; "):
        result((0.5, 1.0)).pareto_front(BOTH, ["size < 3"])


@pytest.mark.parametrize("columns", [1, 2, 3, 4])
def test_the_front_is_that_of_all_pairs(columns: int) -> None:
    rows = np.random.default_rng(columns).integers(0, 6, (200, columns)).astype(float)
    no_worse = (rows[:, None] <= rows[None]).all(axis=2)
    better = (rows[:, None] < rows[None]).any(axis=2)
    assert nondominated(rows).tolist() == (~(no_worse & better).any(axis=0)).tolist()


@pytest.mark.parametrize("columns", [2, 3])
def test_a_front_of_ten_thousand_trials_takes_less_than_a_second(columns: int) -> None:
    rows = np.random.default_rng(0).random((10_000, columns))
    rows[:, -1] = 3 - rows[:, :-1].sum(axis=1)  # no trial dominates another: the longest front
    before = time.process_time()
    assert nondominated(rows).all()
    assert time.process_time() - before < 1.0
