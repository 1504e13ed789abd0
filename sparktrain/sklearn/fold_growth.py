"""Fits that grow: a rule of `stopper=` compares candidates by fits with little of a resource, before the whole ones.

A member fits its candidate with each amount of the resource in turn, and reports the scores, until a rule stops it. The
last amount is everything: that fit and its scores are those of a search without a resource.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

N_SAMPLES = "n_samples"
"""The resource that is no parameter: rows to fit."""
N_RESOURCES = "n_resources"
"""The column of `cv_results_` with the amount that a candidate has reached."""
_TREES = "n_estimators"
_STOPS_EARLY = ("n_iter_no_change", "early_stopping")

Rows = NDArray[np.intp]


class FitRows(StrEnum):
    """Which rows a fit to some of them has: by the splitter of the search."""

    RANDOM = "random"
    STRATIFIED = "stratified"
    """The shares of the classes are those of all rows."""
    NEWEST = "newest"
    """The last ones, in their order: those next to the rows that a split of a time series scores."""


@dataclass(frozen=True, kw_only=True)
class FitGrowth:
    """The amounts of a resource with which a candidate is fitted."""

    resource: str
    """`N_SAMPLES`, or the name of a parameter of the estimator."""
    amounts: tuple[int, ...]
    """Ascending; the last one is everything."""

    def continues(self, estimator: Any) -> bool:
        """Whether `estimator` adds to its last fit, and ends as one fit of all does.

        That holds for numbers of estimators where the parameter `warm_start` exists. An object as `random_state` has
        other numbers in its second fit, and what stops early has other rows to watch.
        """
        owner, _, name = self.resource.rpartition("__")
        params = estimator.get_params(deep=True)
        prefix = f"{owner}__" if owner else ""
        return (
            name == _TREES
            and f"{prefix}warm_start" in params
            and not isinstance(params.get(f"{prefix}random_state"), np.random.RandomState)
            and not any(params.get(f"{prefix}{option}") for option in _STOPS_EARLY)
        )

    def steps(self, estimator: Any, train: Rows, order: Rows, *, is_judged: bool) -> Iterator["GrowthStep"]:
        """The fits of a candidate to rows of `train`, the last one to all; `order` is that of `nested_order`.

        Each step changes `estimator` for its fit. A candidate that no rule judges makes the last fit alone, unless it
        continues, which costs nothing.
        """
        continues = self.continues(estimator)
        if continues:
            estimator.set_params(**{f"{self.resource.removesuffix(_TREES)}warm_start": True})
            # GridSearchCV fits a clone, which would start from nothing.
            estimator.__sklearn_clone__ = lambda: estimator
        for amount in self.amounts if is_judged or continues else self.amounts[-1:]:
            is_last = amount == self.amounts[-1]
            if self.resource == N_SAMPLES:
                rows = train if is_last else np.sort(order[:amount])
                yield GrowthStep(rows=rows, amount=len(order) if is_last else amount, is_last=is_last)
            else:
                estimator.set_params(**{self.resource: amount})
                yield GrowthStep(rows=train, amount=amount, is_last=is_last)


@dataclass(frozen=True, kw_only=True)
class GrowthStep:
    """One fit of a candidate."""

    rows: Rows
    """The rows to fit."""
    amount: int
    """How much of the resource this fit has."""
    is_last: bool


def nested_order(train: Any, y: Any, order: FitRows, seed: int) -> Rows:
    """The rows of `train` so that its first n are those of a fit to n rows, which have those of every smaller fit.

    `train` has numbers of rows, or a mask. The same arguments give the same order.
    """
    rows: Rows = np.flatnonzero(train) if train.dtype.kind == "b" else train
    if order is FitRows.NEWEST:
        return rows[::-1]
    shuffled = np.random.default_rng(seed).permutation(rows)
    if order is FitRows.RANDOM or y is None:
        return shuffled
    _, codes = np.unique(np.asarray(y)[shuffled], return_inverse=True)
    # Each class is spread evenly from the first row on: any first n rows have its share, and one row at least.
    places = np.empty(len(rows))
    for code in range(codes.max() + 1):
        members = np.flatnonzero(codes == code)
        places[members] = np.arange(len(members)) / len(members)
    ordered: Rows = shuffled[np.argsort(places, kind="stable")]
    return ordered
