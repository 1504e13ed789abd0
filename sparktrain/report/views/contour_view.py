"""The metric over pairs of parameters: a smoothed grid for each pair, and which trials to draw over it."""

from collections.abc import Sequence
from itertools import combinations

import numpy as np
from msgspec import Struct

from sparktrain.report.views.parameter_axes import Axis
from sparktrain.report.views.trial_rows import TrialRow

CELLS = 24
"""Cells along each side of a grid."""
MOST_PAIRED = 4
"""Parameters that are paired with each other."""
_LEAST_TRIALS = 6
_MOST_TRIALS = 1500
_WIDTH = 0.09
"""Standard deviation of the smoothing, as a share of an axis."""
_LEAST_WEIGHT = 0.05
"""Of the nearest trial: a cell without one so near stays empty."""


class Contour(Struct, frozen=True):
    """The smoothed metric over two parameters."""

    x: str
    y: str
    cells: tuple[tuple[float | None, ...], ...]
    """Rows from the low end of `y`, each from the low end of `x`; null where no trial is near."""


def contours_of(axes: Sequence[Axis], rows: Sequence[TrialRow]) -> tuple[Contour, ...]:
    """One contour for each pair of the first numeric axes, which are in the order of their importance.

    `rows` are succeeded trials with a finite value.
    """
    numeric = [axis for axis in axes if axis.kind == "number"][:MOST_PAIRED]
    if len(rows) < _LEAST_TRIALS:
        return ()
    stride = max(1.0, len(rows) / _MOST_TRIALS)
    sample = [rows[int(place * stride)] for place in range(min(len(rows), _MOST_TRIALS))]
    found = (_contour(x, y, sample) for x, y in combinations(numeric, 2))
    return tuple(contour for contour in found if contour is not None)


def _contour(x: Axis, y: Axis, rows: Sequence[TrialRow]) -> Contour | None:
    points = [(x.place(row.params.get(x.name)), y.place(row.params.get(y.name)), row.value) for row in rows]
    whole = np.array([point for point in points if None not in point], np.float64)
    if len(whole) < _LEAST_TRIALS:
        return None
    centres = (np.arange(CELLS) + 0.5) / CELLS
    near_x = np.exp(-(((centres[:, None] - whole[:, 0]) / _WIDTH) ** 2) / 2)
    near_y = np.exp(-(((centres[:, None] - whole[:, 1]) / _WIDTH) ** 2) / 2)
    scale = max(1.0, float(np.abs(whole[:, 2]).max()))  # so that 1e300 does not overflow
    weights = near_y @ near_x.T
    nearest = np.array([(near_y[row] * near_x).max(axis=1) for row in range(CELLS)])
    with np.errstate(divide="ignore", invalid="ignore"):
        means = (near_y * (whole[:, 2] / scale)) @ near_x.T / weights * scale
    cells = tuple(
        tuple(float(f"{mean:.5g}") if near >= _LEAST_WEIGHT and np.isfinite(mean) else None for mean, near in pair)
        for pair in (zip(means[row].tolist(), nearest[row].tolist(), strict=True) for row in range(CELLS))
    )
    return Contour(x.name, y.name, cells)
