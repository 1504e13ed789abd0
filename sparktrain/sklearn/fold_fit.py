"""What a member runs for a search: one fit on one fold, or the last fit on all rows.

It imports no module of the driver. Each fit is a `GridSearchCV` of one candidate and one split: what it does with
rows, weights and scorers, also in later versions, is what it does in the whole search.
"""

import inspect
import math
import numbers
import traceback
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import sklearn
from sklearn.base import clone
from sklearn.metrics import check_scoring
from sklearn.model_selection import GridSearchCV
from sklearn.utils.metadata_routing import get_routing_for_object, process_routing

from sparktrain.base.clock import SystemClock
from sparktrain.config.param_values import described
from sparktrain.datasets.shared_objects import ObjectIndex, object_in
from sparktrain.sklearn.candidates import Codes
from sparktrain.sklearn.fold_growth import N_RESOURCES, FitGrowth, FitRows, nested_order
from sparktrain.training.context import TrainContext
from sparktrain.training.export import export_estimator

DATA = "search_data"
"""The name of the dataset with X, y and the splits."""
SINGLE = "score"
"""The name of the only score."""
RAISE = "raise"
FIT_FAILED = "fit_failed"
FIT_ERROR = "fit_error"
"""What a fit that failed returns beside its scores: its error in one line."""


@dataclass(frozen=True, kw_only=True)
class SearchData:
    """What all trials of a search read."""

    X: Any
    y: Any
    splits: list[tuple[Any, Any]]
    """The rows to fit and to score, for each fold."""
    fit_params: dict[str, Any] = field(default_factory=dict)
    order: FitRows = FitRows.RANDOM
    """Which rows a fit to some of them has."""


@dataclass(frozen=True, kw_only=True)
class SearchTask:
    """What a trial needs beside its data; it travels with the function."""

    estimator: Any
    codes: Codes
    index: ObjectIndex
    scoring: Any = None
    names: tuple[str, ...] = (SINGLE,)
    """The names of the scores, as far as they are there before one is computed."""
    metric: str | None = None
    """The metric of the sweep."""
    error_score: float | str = float("nan")
    return_train_score: bool = False
    config: dict[str, Any] = field(default_factory=dict)
    """`sklearn.get_config()` of the driver."""
    growth: FitGrowth | None = None
    """How fits grow where a rule judges them."""

    def data(self, ctx: TrainContext) -> SearchData:
        """The data, which all processes of the host map. Blocks on the store. Raises DataError, StoreError."""
        data: SearchData = object_in(ctx.dataset(DATA).joined_bytes(), self.index)
        return data

    def configured(self, coded: Mapping[str, Any]) -> Any:
        """A clone of the estimator with the parameters of a candidate."""
        params = self.codes.params(coded)
        return clone(self.estimator).set_params(**clone(params, safe=False))


def routed_params(estimator: Any, scoring: Any, method: str, params: Mapping[str, Any], cv: Any = None) -> Any | None:
    """What GridSearchCV passes on of `params` of its `method`, as attributes: `estimator.fit`, `scorer.score`,
    `splitter.split`. None where metadata routing is off.

    Raises ValueError and TypeError of scikit-learn for a name that no part requests, or that a part has no rule for.
    """
    if not sklearn.get_config()["enable_metadata_routing"]:
        return None
    return process_routing(GridSearchCV(estimator, {}, scoring=scoring, cv=cv, refit=False), method, **params)


def fit_fold(task: SearchTask, ctx: TrainContext, coded: Mapping[str, Any]) -> dict[str, Any]:
    """Fit a candidate on the rows of one fold, and score it on the others: scores by name, and times in seconds.

    Of a fit that fails, `FIT_ERROR` is its error.

    A fit or a scorer that fails has the score `error_score`. Where the metric of the sweep is no finite number, the
    trial fails with that error, and reports what it would have returned. Raises what the fit or the scorer raises.
    """
    # The driver's settings, such as transform_output="pandas": a scorer must see the rows as in GridSearchCV.
    sklearn.set_config(**task.config)
    data = task.data(ctx)
    estimator = task.configured(coded)
    train, test = data.splits[ctx.fold]
    if task.growth is None:
        fit = _fit(task, estimator, data, (train, test))
        return _returned(task, ctx, fit, step=1) | _error_of(fit)
    order = nested_order(train, data.y, data.order, ctx.seed)
    metrics: dict[str, float] = {}
    # Rules judge the first trial of a candidate, and its other folds end with it.
    for growth_step in task.growth.steps(estimator, train, order, is_judged=ctx.fold == 0):
        fit = _fit(task, estimator, data, (growth_step.rows, test))
        grown = {**fit.metrics, N_RESOURCES: growth_step.amount, **_times(metrics, fit.metrics)}
        metrics = _returned(task, ctx, replace(fit, metrics=grown), step=growth_step.amount)
        if FIT_FAILED in metrics:
            return metrics | _error_of(fit)
        ctx.report(growth_step.amount - 1, **metrics)
        if not growth_step.is_last and ctx.should_stop():
            break
    return metrics


@dataclass(frozen=True, kw_only=True)
class _Fit:
    """What one fit has brought."""

    metrics: dict[str, float]
    error: Exception | None
    """What failed in the fit or the first scorer."""


def _fit(task: SearchTask, estimator: Any, data: SearchData, split: tuple[Any, Any]) -> _Fit:
    """Fit and score once. With error_score="raise", raises what fails."""
    scores = _Scores(task)
    clock = SystemClock()
    started = clock.now()
    try:
        search = GridSearchCV(
            estimator,
            {},
            scoring=scores,
            refit=False,
            cv=[split],
            error_score=RAISE,
            return_train_score=task.return_train_score,
        ).fit(data.X, data.y, **data.fit_params)
    except Exception as error:
        if task.error_score == RAISE:
            raise
        traceback.print_exc()
        times = {"fit_time": clock.now() - started, "score_time": 0.0, FIT_FAILED: 1.0}
        return _Fit(metrics={name: float(task.error_score) for name in _names(task)} | times, error=error)
    return _Fit(metrics=_metrics_of(search.cv_results_), error=scores.failed)


def _returned(task: SearchTask, ctx: TrainContext, fit: _Fit, *, step: int) -> dict[str, float]:
    """The metrics of a fit. Raises the error of a fit that has no finite number as its deciding score."""
    if task.metric is None or math.isfinite(fit.metrics.get(task.metric, 0.0)):
        return fit.metrics
    # A trial that fails returns nothing, and the other scores and the times of its fold count all the same.
    ctx.report(step, **fit.metrics)
    score = fit.metrics[task.metric]
    raise fit.error or ScorerError(f"the score {task.metric.removeprefix('test_')!r} is {score}")


def _error_of(fit: _Fit) -> dict[str, Any]:
    error = fit.error
    if error is None or FIT_FAILED not in fit.metrics:
        return {}
    return {FIT_ERROR: f"{type(error).__name__}: {' '.join(str(error).split())}"}


def _times(before: Mapping[str, float], fit: Mapping[str, float]) -> dict[str, float]:
    """The times of a fit, and of the fits before it."""
    return {name: before.get(name, 0.0) + fit[name] for name in ("fit_time", "score_time")}


def fit_best(task: SearchTask, ctx: TrainContext, coded: Mapping[str, Any]) -> dict[str, float]:
    """Fit a candidate on all rows, and keep it in the run directory. Raises what the fit raises."""
    sklearn.set_config(**task.config)
    data = task.data(ctx)
    estimator = task.configured(coded)
    rows = [_writable(data.X), *([] if data.y is None else [_writable(data.y)])]
    clock = SystemClock()
    started = clock.now()
    routed = routed_params(task.estimator, task.scoring, "fit", data.fit_params)
    estimator.fit(*rows, **(data.fit_params if routed is None else routed.estimator.fit))
    seconds = clock.now() - started
    export_estimator(estimator, Path(ctx.log_dir).parent)
    return {"refit_time": seconds}


def _metrics_of(results: Mapping[str, Any]) -> dict[str, float]:
    """Scores and times of the only fit."""
    scores = {name.removeprefix("split0_"): values[0] for name, values in results.items() if name.startswith("split0_")}
    times = {name: results[f"mean_{name}"][0] for name in ("fit_time", "score_time")}
    return {name: float(value) for name, value in (scores | times).items()}


class _Scores:
    """The scorer of a fold: what fails in it is a score too, as in GridSearchCV, so that only a fit raises."""

    def __init__(self, task: SearchTask) -> None:
        self.failed: Exception | None = None
        """What the first scorer raised."""
        self._error_score = task.error_score
        self._names = task.names
        self._scorer = check_scoring(task.estimator, scoring=task.scoring, raise_exc=task.error_score == RAISE)

    def _accept_sample_weight(self) -> bool:
        """GridSearchCV asks scorers whether they take the weights of `fit`."""
        if callable(accepts := getattr(self._scorer, "_accept_sample_weight", None)):
            return bool(accepts())
        return "sample_weight" in inspect.signature(self._scorer).parameters

    def get_metadata_routing(self) -> Any:
        """GridSearchCV asks scorers what they request of the arguments of `fit`."""
        return get_routing_for_object(self._scorer)

    def __call__(self, estimator: Any, *rows: Any, **weights: Any) -> dict[str, Any]:
        """The scores on `rows`, X and y, by name."""
        try:
            scored = self._scorer(estimator, *rows, **weights)
        except Exception as error:
            if self._error_score == RAISE:
                raise
            return {name: self._failed(name, error, traceback.format_exc()) for name in self._names}
        scores = scored if isinstance(scored, dict) else {SINGLE: scored}
        return {name: self._number(name, score) for name, score in scores.items()}

    def _number(self, name: str, score: Any) -> Any:
        """The score; `error_score` for the traceback of a scorer, which stands in its place where there are several."""
        value = score.item() if callable(getattr(score, "item", None)) and np.size(score) == 1 else score
        if isinstance(value, numbers.Number):
            return value
        if isinstance(value, str):
            raised = ScorerError(f"the scorer {name!r} raised: {value.strip().splitlines()[-1]}")
            return self._failed(name, raised, value)
        problem = ScorerError(f"the scorer {name!r} returned {described(value)}, and a score is a number")
        if self._error_score == RAISE:
            raise problem
        return self._failed(name, problem, str(problem))

    def _failed(self, name: str, error: Exception, details: str) -> float:
        self.failed = self.failed or error
        warnings.warn(
            f"Scoring failed. The score {name!r} of this fold is {self._error_score}. Details:\n{details}",
            UserWarning,
            stacklevel=1,
        )
        return float(self._error_score)


class ScorerError(Exception):
    """A scorer raised, or returned no finite number; the message has what it did."""


def _names(task: SearchTask) -> list[str]:
    kinds = ("test", "train") if task.return_train_score else ("test",)
    return [f"{kind}_{name}" for kind in kinds for name in task.names]


def _writable(rows: Any) -> Any:
    """The rows in memory of this process: some estimators write to what they fit, and the mapped rows are read-only."""
    if isinstance(rows, np.ndarray):
        return np.array(rows, order="K")
    return rows.copy() if callable(getattr(rows, "copy", None)) else rows
