"""The metric over each parameter: which axes, and which trials are drawn as points."""

from collections.abc import Sequence
from itertools import combinations

import numpy as np
from msgspec import Struct

from sparktrain.views.report.views.importance_view import ImportanceView, missing_trials
from sparktrain.views.report.views.parameter_axes import Axis
from sparktrain.views.report.views.trial_rows import TrialRow
from sparktrain.views.report.views.value_axis import ValueAxis, value_axis

CELLS = 24
"""Cells along each side of a grid."""
MOST_PAIRED = 4
"""Parameters that are paired with each other."""
LEAST_TRIALS = 20
"""With fewer, a grid shows single trials and no areas."""
_MOST_TRIALS = 1500
_WIDTH = 0.09
"""Standard deviation of the smoothing, as a share of an axis."""
_LEAST_WEIGHT = 0.05
"""Of the nearest trial: a cell without one so near stays empty."""


class Contour(Struct, frozen=True):
    """How good trials are over two parameters: a smoothed grid.

    It has the places of trials, from 0 for the worst to 1 for the best, and not their values: so trials that a rule has
    stopped count, and one terrible value changes no other cell.
    """

    x: str
    y: str
    cells: tuple[tuple[float | None, ...], ...]
    """Rows from the low end of `y`, each from the low end of `x`; null where no trial is near."""


def contours_of(axes: Sequence[Axis], ranked: Sequence[TrialRow]) -> tuple[Contour, ...]:
    """One contour for each pair of the first numeric axes, which are in the order of their importance.

    `ranked` are in the order of `ranked_trials`; there is none for fewer than `LEAST_TRIALS`.
    """
    numeric = [axis for axis in axes if axis.kind == "number"][:MOST_PAIRED]
    if len(ranked) < LEAST_TRIALS:
        return ()
    stride = max(1.0, len(ranked) / _MOST_TRIALS)
    sample = [ranked[int(place * stride)] for place in range(min(len(ranked), _MOST_TRIALS))]
    contours = (_contour(x, y, sample) for x, y in combinations(numeric, 2))
    return tuple(contour for contour in contours if contour is not None)


def _contour(x: Axis, y: Axis, ranked: Sequence[TrialRow]) -> Contour | None:
    goodness = np.linspace(1.0, 0.0, len(ranked)).tolist()
    places = [(x.place(row.params.get(x.name)), y.place(row.params.get(y.name))) for row in ranked]
    points = [(*place, good) for place, good in zip(places, goodness, strict=True) if None not in place]
    if len(points) < LEAST_TRIALS:
        return None
    point_array = np.array(points, np.float64)
    centres = (np.arange(CELLS) + 0.5) / CELLS
    near_x = np.exp(-(((centres[:, None] - point_array[:, 0]) / _WIDTH) ** 2) / 2)
    near_y = np.exp(-(((centres[:, None] - point_array[:, 1]) / _WIDTH) ** 2) / 2)
    weights = near_y @ near_x.T
    nearest = np.array([(near_y[row] * near_x).max(axis=1) for row in range(CELLS)])
    with np.errstate(divide="ignore", invalid="ignore"):
        means = (near_y * point_array[:, 2]) @ near_x.T / weights
    cells = tuple(
        tuple(round(mean, 3) if near >= _LEAST_WEIGHT and np.isfinite(mean) else None for mean, near in pair)
        for pair in (zip(means[row].tolist(), nearest[row].tolist(), strict=True) for row in range(CELLS))
    )
    return Contour(x.name, y.name, cells)


MOST_SLICES = 12
MOST_POINTS = 1500


class SlicesView(Struct, frozen=True, omit_defaults=True):
    """Slices and contours: the values are those of the rows of trials."""

    axes: tuple[Axis, ...] = ()
    """The most important parameters first."""
    trials: tuple[int, ...] = ()
    """The trials that are drawn."""
    y: ValueAxis | None = None
    """The axis of the metric."""
    contours: tuple[Contour, ...] = ()
    no_contours: str = ""
    """Why there are no contours; empty where there are, or no two parameters are numbers."""


def slices_view(axes: Sequence[Axis], importance: ImportanceView, ranked: Sequence[TrialRow], mode: str) -> SlicesView:
    """`ranked` are in the order of `ranked_trials`. Of more than 1,500 with a value, an even sample is drawn."""
    order = {share.name: place for place, share in enumerate(importance.shares)}
    important = sorted(axes, key=lambda axis: order.get(axis.name, len(order)))
    rows = sorted((row for row in ranked if row.value is not None), key=lambda row: row.id)
    stride = max(1.0, len(rows) / MOST_POINTS)
    drawn = [rows[int(place * stride)] for place in range(min(len(rows), MOST_POINTS))]
    contours = contours_of(important, ranked)
    pairs = sum(axis.kind == "number" for axis in axes) > 1
    return SlicesView(
        tuple(important[:MOST_SLICES]),
        tuple(row.id for row in drawn),
        value_axis((row.value for row in drawn), mode),
        contours,
        missing_trials("contours need", LEAST_TRIALS, len(ranked)) if pairs and not contours else "",
    )
