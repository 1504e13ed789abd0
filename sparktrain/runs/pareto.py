"""The trials of a run that no other trial dominates."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from sparktrain.config.objectives import Constraint, Objective, feasible
from sparktrain.config.param_values import did_you_mean
from sparktrain.errors import SpecError
from sparktrain.runs.sweep_outcome import SweepOutcome
from sparktrain.runs.trial_result import TrialResult
from sparktrain.state.trial import TrialStatus

if TYPE_CHECKING:
    from numpy.typing import NDArray


def pareto_front_of(
    trials: Sequence[TrialResult], objectives: Sequence[Objective], constraints: Sequence[Constraint]
) -> list[TrialResult]:
    """The feasible succeeded trials that no other of them dominates, sorted by the first objective, then by id.

    Equal trials are all on the front; one without a finite value of each objective is not. Raises SpecError for a
    metric that no succeeded trial has.
    """
    succeeded = [trial for trial in trials if trial.status is TrialStatus.SUCCEEDED]
    _check_known(succeeded, [*(target.metric for target in objectives), *(target.metric for target in constraints)])
    return _front(succeeded, objectives, constraints)


def _front(
    trials: Sequence[TrialResult], objectives: Sequence[Objective], constraints: Sequence[Constraint]
) -> list[TrialResult]:
    import numpy as np

    succeeded = [trial for trial in trials if trial.status is TrialStatus.SUCCEEDED]
    able = [trial for trial in succeeded if feasible(trial.metrics, constraints)]
    losses = np.array([[objective.loss(trial.metrics) for objective in objectives] for trial in able])
    losses = losses.reshape(len(able), len(objectives))
    complete_rows = np.flatnonzero(~np.isnan(losses).any(axis=1))
    front = complete_rows[nondominated(losses[complete_rows])]
    return [able[at] for at in sorted(front, key=lambda at: (losses[at, 0], able[at].id))]


def front_of(outcome: SweepOutcome) -> list[TrialResult]:
    """The Pareto front of a run by its own metrics and constraints; without trials that lack one of them."""
    return _front(outcome.trials, outcome.objectives, outcome.constraints) if outcome.objectives else []


def nondominated(losses: "NDArray[Any]") -> "NDArray[Any]":
    """Which rows no other row dominates: a row does that is nowhere greater and somewhere smaller.

    `losses` has the shape (rows, objectives), without NaN; the result has one bool for each row. In the order of the
    columns only an earlier row can dominate a later one, so that one pass is enough (Kung, Luccio and Preparata, "On
    Finding the Maxima of a Set of Vectors", 1975): O(n log n) for two objectives, and O(n F) for a front of F rows and
    more objectives.
    """
    import numpy as np

    distinct, row_of = np.unique(losses, axis=0, return_inverse=True)
    mask = np.zeros(len(distinct), dtype=bool)
    if losses.shape[1] <= 2:
        lowest = np.minimum.accumulate(distinct[:, -1])
        mask[:1] = True
        mask[1:] = distinct[1:, -1] < lowest[:-1]
        return mask[row_of.reshape(-1)]
    front = np.empty((distinct.shape[1] - 1, len(distinct)))
    size = 0
    for number, row in enumerate(distinct[:, 1:]):
        if not np.logical_and.reduce([front[at, :size] <= value for at, value in enumerate(row)]).any():
            front[:, size], size, mask[number] = row, size + 1, True
    return mask[row_of.reshape(-1)]


def _check_known(succeeded: Sequence[TrialResult], names: Sequence[str]) -> None:
    metric_names = {name: None for trial in succeeded for name in trial.metrics}
    for name in names:
        if succeeded and name not in metric_names:
            hint = did_you_mean(name, metric_names) or ";"
            names_text = ", ".join(metric_names) or "none"
            raise SpecError(f"no succeeded trial has a metric {name!r}{hint} their metrics are: {names_text}")
