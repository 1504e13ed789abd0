"""The scores of a search as `cv_results_` of GridSearchCV: the same keys, and the same numbers to the last bit."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from sparktrain.base.ids import TrialId
from sparktrain.config.replication import Replication
from sparktrain.results.sweep_result import SweepResult
from sparktrain.runs.trial_result import TrialResult
from sparktrain.sklearn.candidates import Codes
from sparktrain.sklearn.fold_fit import FIT_FAILED
from sparktrain.sklearn.fold_growth import N_RESOURCES
from sparktrain.state.trial import TrialStatus

Floats = NDArray[np.float64]
_TIMES = ("fit_time", "score_time")


@dataclass(frozen=True, kw_only=True)
class FoldTable:
    """What each trial of a search returned: an array of shape (candidates, folds) for each metric."""

    params: list[dict[str, Any]]
    metrics: dict[str, Floats]
    pruned: NDArray[np.bool_]
    """Where a rule has stopped a fit: its scores are those of a part of a resource."""

    @property
    def failed_fits(self) -> int:
        """How many fits have failed."""
        return int(np.nansum(self.metrics.get(FIT_FAILED, np.zeros(1))))

    def values(self, name: str) -> Floats:
        """A metric of all fits; NaN where one has none."""
        return self.metrics.get(name, np.full(self.pruned.shape, np.nan))

    @property
    def scores(self) -> list[str]:
        """The names of the scores, in their order."""
        return [name.removeprefix("test_") for name in self.metrics if name.startswith("test_")]


def fold_table(sweep: SweepResult, codes: Codes, names: Sequence[str]) -> FoldTable:
    """The table of a sweep. NaN where a trial returned nothing. Blocks on the store where trials have failed.

    `names` are those of the scores that come first.
    """
    replication = Replication(1, sweep.folds)
    trials = {trial.id: trial for trial in sweep.trials}
    numbers = sorted({replication.case(number) for number in trials})
    returned = {number: _returned(trial, {}) for number, trial in trials.items()}
    failed = [trial for trial in sweep.trials if trial.status is TrialStatus.FAILED]
    if failed:
        reports = _reports(sweep)
        returned |= {trial.id: _returned(trial, reports.get(trial.id, {})) for trial in failed}
    columns = dict.fromkeys([*_TIMES, *(f"test_{name}" for name in names)])
    columns |= dict.fromkeys(name for metrics in returned.values() for name in metrics)
    metrics = {name: np.full((len(numbers), sweep.folds), np.nan) for name in columns}
    pruned = np.zeros((len(numbers), sweep.folds), dtype=np.bool_)
    for row, case in enumerate(numbers):
        for fold, number in enumerate(replication.trials(case)):
            trial = trials.get(TrialId(number))
            pruned[row, fold] = trial is not None and trial.status is TrialStatus.PRUNED
            for name, value in returned.get(TrialId(number), {}).items():
                metrics[name][row, fold] = value
    first = {replication.case(number): trial.params for number, trial in sorted(trials.items(), reverse=True)}
    params = [codes.params(first[case]) for case in numbers]
    return FoldTable(params=params, metrics=metrics, pruned=pruned)


def results_of(table: FoldTable, *, with_train: bool) -> dict[str, Any]:
    """`cv_results_`. Warns of means that are not finite, as GridSearchCV does."""
    results: dict[str, Any] = {}
    for name in _TIMES:
        results |= _moments(name, table.metrics[name])
    results |= _masked_params(table.params)
    results["params"] = table.params
    for name in table.scores:
        results |= _scores(f"test_{name}", table)
        results[f"rank_test_{name}"] = _ranks(results[f"mean_test_{name}"])
        if with_train:
            results |= _scores(f"train_{name}", table)
    if N_RESOURCES in table.metrics:
        # Rules judge the first fold: others that ran beside it may be further.
        results[N_RESOURCES] = np.nan_to_num(table.metrics[N_RESOURCES][:, 0]).astype(int)
    return results


def _returned(trial: TrialResult, reported: Mapping[str, float]) -> dict[str, float]:
    # A fit that a rule has ended from outside, or before its start, returned nothing.
    if trial.status is TrialStatus.SUCCEEDED or (trial.status is TrialStatus.PRUNED and N_RESOURCES in trial.metrics):
        return trial.metrics
    return dict(reported)


def _reports(sweep: SweepResult) -> dict[int, dict[str, float]]:
    """What trials have reported, by trial: a trial that failed returned nothing. Blocks on the store."""
    columns = sweep._stored().history_columns()
    names = [
        name for name in columns if name.startswith(("test_", "train_")) or name in (*_TIMES, FIT_FAILED, N_RESOURCES)
    ]
    return {
        int(trial): {name: float(columns[name][row]) for name in names} for row, trial in enumerate(columns["trial"])
    }


def _scores(key: str, table: FoldTable) -> dict[str, Floats]:
    """The scores of each split, and their moments over splits that no rule has ended early. Warns of other NaNs."""
    scores = table.values(key)
    moments = _moments(key, np.where(table.pruned, np.nan, scores))
    means = moments[f"mean_{key}"]
    if not np.isfinite(means[~table.pruned.any(axis=1)]).all():
        warnings.warn(
            f"One or more of the {key.split('_')[0]} scores are non-finite: {means}", UserWarning, stacklevel=5
        )
    return {f"split{fold}_{key}": scores[:, fold] for fold in range(scores.shape[1])} | moments


def _moments(key: str, values: Floats) -> dict[str, Floats]:
    """Mean and standard deviation over the folds, in the order of operations of GridSearchCV."""
    means: Floats = np.average(values, axis=1)
    return {f"mean_{key}": means, f"std_{key}": np.sqrt(np.average((values - means[:, np.newaxis]) ** 2, axis=1))}


def _ranks(means: Floats) -> NDArray[np.int32]:
    """The rank of each mean, from 1; those that are missing come last, and share their rank."""
    if np.isnan(means).all():
        return np.ones_like(means, dtype=np.int32)
    filled = np.nan_to_num(means, nan=np.nanmin(means) - 1, posinf=np.inf, neginf=-np.inf)
    ranks: NDArray[np.int32] = rankdata(-filled, method="min").astype(np.int32, copy=False)
    return ranks


def _masked_params(params: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """A masked array for each parameter: a candidate may lack it."""
    columns: dict[str, dict[int, Any]] = {}
    for index, candidate in enumerate(params):
        for name, value in candidate.items():
            columns.setdefault(f"param_{name}", {})[index] = value
    masked: dict[str, Any] = {}
    for name, values in columns.items():
        array = np.ma.MaskedArray(np.empty(len(params), dtype=_dtype(list(values.values()))), mask=True)
        for index, value in values.items():
            array[index] = value
        masked[name] = array
    return masked


def _dtype(values: list[Any]) -> Any:
    try:
        array = np.array(values)
    except ValueError:  # lists of different lengths
        return np.dtype(object)
    return array.dtype if array.dtype.kind != "U" and array.ndim == 1 else np.dtype(object)
