"""How good trials are over pairs of parameters: a smoothed grid for each pair.

A grid has the places of trials, from 0 for the worst to 1 for the best, and not their values: so trials that a rule has
stopped count, and one terrible value changes no other cell.
"""

from collections.abc import Sequence
from itertools import combinations

import numpy as np
from msgspec import Struct

from sparktrain.views.report.views.parameter_axes import Axis
from sparktrain.views.report.views.trial_rows import TrialRow

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
    """The smoothed place of trials over two parameters."""

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
