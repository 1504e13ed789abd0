"""Which parameters matter: PED-ANOVA of Optuna over all trials that can be ordered, with the uncertainty of each share.

The evaluator asks which values the best trials share that others lack, so it needs the order of the trials alone:
trials that a rule has stopped count, and one terrible value weighs no more than a bad one.
"""

import logging
import random
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import lru_cache
from importlib.util import find_spec
from statistics import fmean
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec import Struct

from sparktrain.search.optuna_import import import_optuna
from sparktrain.views.report.views.parameter_axes import Axis, as_text
from sparktrain.views.report.views.trial_rows import TrialRow

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution
    from optuna.study import Study
    from optuna.trial import FrozenTrial

LEAST_TRIALS = 20
"""With fewer, shares move by 0.2 and more from one sample of trials to the next."""
_BEST_SHARE = 0.1
"""The part of the trials that counts as the best ones, as in the paper (arXiv 2304.10255)."""
_LEAST_BEST = 8
"""Trials that count as the best at least: with 2 of 20, chance alone decides on the shares."""
_RESAMPLES = 40
_LEAST_RESAMPLES = 30
_MOST_DRAWS = 40_000
"""Trials in all resamples together: a limit of the time that they take."""
_GRID = 50
"""More ticks than the evaluator has steps need no step of their own."""
INTERVAL = 0.9
"""The part of the resamples that lies within an interval."""


class Importance(Struct, frozen=True):
    """The share of one parameter."""

    name: str
    share: float
    """From 0 to 1; all shares together are 1. It is the mean over samples of the trials, drawn with replacement."""
    low: float
    """In nine of ten of these samples it is between `low` and `high`."""
    high: float


class ImportanceView(Struct, frozen=True, omit_defaults=True):
    """The parameters, the most important one first; none with the reason why."""

    shares: tuple[Importance, ...] = ()
    reason: str = ""
    """Why there is no importance, with the next step; empty where there is."""
    trials: int = 0
    """Trials that it was computed from."""
    stopped: int = 0
    """Those of them that ended without a result of their own: stopped by a rule, or without a finite metric."""
    sure: bool = True
    """Whether the first parameter is the most important one within the intervals."""


def missing_trials(subject: str, least: int, trials: int) -> str:
    """Why a view of `subject` is not drawn, and how many trials it still needs."""
    shortfall = least - trials
    return (
        f"{subject} at least {least} trials that can be compared, with a result or stopped by a rule: there "
        f"{'is' if trials == 1 else 'are'} {trials}, so {shortfall} more {'is' if shortfall == 1 else 'are'} missing"
    )


def importance_view(axes: Sequence[Axis], ranked: Sequence[TrialRow]) -> ImportanceView:
    """The importance of the parameters that all `ranked` trials have, which are in the order of `ranked_trials`.

    Pure: the same trials have the same intervals.
    """
    if len(ranked) < LEAST_TRIALS:
        return ImportanceView(reason=missing_trials("importance needs", LEAST_TRIALS, len(ranked)))
    shared = [axis for axis in axes if all(axis.name in row.params for row in ranked)]
    if not shared:
        return ImportanceView(reason="no parameter that all trials have differs between them")
    if len(shared) == 1:
        return ImportanceView(reason=f"{shared[0].name} alone differs between the trials: nothing compares with it")
    if len({row.value for row in ranked}) < 2:
        return ImportanceView(reason="all trials have the same value of the metric")
    if find_spec("optuna") is None:
        return ImportanceView(
            reason="importance needs optuna, which is not installed: pip install 'sparktrain[search]'"
        )
    return _computed(shared, ranked)


def _computed(axes: Sequence[Axis], ranked: Sequence[TrialRow]) -> ImportanceView:
    try:
        with _quiet():
            shares = _shares(tuple(_column(axis, [row.params[axis.name] for row in ranked]) for axis in axes))
    except (ValueError, RuntimeError, ZeroDivisionError, OverflowError) as error:
        return ImportanceView(reason=f"optuna could not compute it: {error}")
    return ImportanceView(
        shares,
        trials=len(ranked),
        stopped=sum(row.place is None for row in ranked),
        sure=shares[0].low > max(importance.high for importance in shares[1:]),
    )


class _Column(NamedTuple):
    """The values of one parameter, the best trial first, as the evaluator takes them."""

    name: str
    kind: str
    """`float`, `int` or `category`."""
    low: float
    high: float
    log: bool
    values: tuple[float, ...]

    @property
    def distribution(self) -> "BaseDistribution":
        """In Optuna's words."""
        from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

        if self.kind == "category":
            return CategoricalDistribution(range(int(self.high) + 1))
        if self.kind == "int":
            return IntDistribution(int(self.low), int(self.high), log=self.log)
        return FloatDistribution(self.low, self.high, log=self.log)


def _column(axis: Axis, values: Sequence[Any]) -> _Column:
    """A category by its place; so is a number of a short list, which has no neighbours between its ticks."""
    if axis.kind == "category":
        places = {text: place for place, text in enumerate(axis.values)}
        listed = tuple(places[as_text(value)] for value in values)
        return _Column(axis.name, "category", 0, len(places) - 1, False, listed)
    steps = {tick: place for place, tick in enumerate(axis.ticks)}
    if steps and len(steps) <= _GRID and all(float(value) in steps for value in values):
        return _Column(axis.name, "int", 0, len(steps) - 1, False, tuple(steps[float(value)] for value in values))
    assert axis.low is not None
    assert axis.high is not None
    numbers = tuple(int(value) for value in values) if axis.integer else tuple(map(float, values))
    return _Column(axis.name, "int" if axis.integer else "float", axis.low, axis.high, axis.log, numbers)


@lru_cache(maxsize=8)
def _shares(columns: tuple[_Column, ...]) -> tuple[Importance, ...]:
    """Kept, because the page of a run computes its views with each block of reports, which changes no order."""
    trials = _trials(columns)
    sample = _Sample(trials)
    resampled = [sample.shares(drawn) for drawn in _resamples(trials)]
    importances = [_importance(column.name, [drawn[column.name] for drawn in resampled]) for column in columns]
    return tuple(sorted(importances, key=lambda importance: -importance.share))


class _Sample:
    """A study that gives the evaluator any trials: to add them one by one would take most of the time."""

    def __init__(self, trials: "Sequence[FrozenTrial]") -> None:
        from optuna.importance import PedAnovaImportanceEvaluator

        self._study = _study()
        best = max(_BEST_SHARE, _LEAST_BEST / len(trials))
        self._evaluator = PedAnovaImportanceEvaluator(target_quantile=best)
        self._trials: list[FrozenTrial] = []
        # The evaluator reads trials by this public method alone.
        self._study.get_trials = lambda *_, **__: list(self._trials)  # type: ignore[method-assign]

    def shares(self, trials: "Sequence[FrozenTrial]") -> dict[str, float]:
        from optuna.importance import get_param_importances

        self._trials = list(trials)
        return get_param_importances(self._study, evaluator=self._evaluator)


def _study() -> "Study":
    import optuna

    return optuna.create_study(direction="minimize", sampler=optuna.samplers.RandomSampler(seed=0))


def _trials(columns: Sequence[_Column]) -> "list[FrozenTrial]":
    """The trials with their places as values; each has a number of its own, by which the evaluator knows it again."""
    from optuna.trial import FrozenTrial, TrialState

    distributions = {column.name: column.distribution for column in columns}
    now = datetime.fromtimestamp(0)
    return [
        FrozenTrial(
            number=place,
            trial_id=place,
            state=TrialState.COMPLETE,
            value=float(place),
            datetime_start=now,
            datetime_complete=now,
            params={column.name: column.values[place] for column in columns},
            distributions=distributions,
            user_attrs={},
            system_attrs={},
            intermediate_values={},
        )
        for place in range(len(columns[0].values))
    ]


def _resamples(trials: "Sequence[FrozenTrial]") -> "Iterator[list[FrozenTrial]]":
    """As many trials, drawn with replacement, again and again."""
    source = random.Random(len(trials))
    for _ in range(max(_LEAST_RESAMPLES, min(_RESAMPLES, _MOST_DRAWS // len(trials)))):
        yield source.choices(trials, k=len(trials))


def _importance(name: str, resampled: Sequence[float]) -> Importance:
    """The mean of the resamples (bagging): of 20 trials it varies half as much as the share without resamples."""
    ordered = sorted(resampled)
    share = fmean(ordered)
    outside = round(len(ordered) * (1 - INTERVAL) / 2)
    low = ordered[outside]
    high = ordered[-1 - outside]
    return Importance(name, round(share, 4), round(min(low, share), 4), round(max(high, share), 4))


@contextmanager
def _quiet() -> Iterator[None]:
    """Optuna prints nothing about the study, nor about resamples that hardly differ."""
    import_optuna()
    import optuna

    verbosity = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        optuna.logging.set_verbosity(verbosity)
