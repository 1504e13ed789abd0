"""The curves of trials, step by step: all of them, or of thousands the best ones and a band of quantiles."""

import warnings
from collections.abc import Mapping, Sequence

import numpy as np
from msgspec import Struct

from sparktrain.config.metric_names import implied_by
from sparktrain.views.report.views.report_columns import Floats, Integers, ReportColumns
from sparktrain.views.report.views.run_inputs import RunInputs
from sparktrain.views.report.views.value_axis import ValueAxis, lines_axis

MOST_LINES = 300
"""Up to so many trials are drawn each for itself."""
BEST_LINES = 50
MOST_POINTS = 160
MOST_METRICS = 8
QUANTILES = (0.1, 0.25, 0.5, 0.75, 0.9)


class Line(Struct, frozen=True):
    """The curve of one trial: a value for each of the steps, null where it has none."""

    trial: int
    values: tuple[float | None, ...]


class Band(Struct, frozen=True):
    """The quantiles of all trials at each of the steps."""

    q10: tuple[float | None, ...]
    q25: tuple[float | None, ...]
    q50: tuple[float | None, ...]
    q75: tuple[float | None, ...]
    q90: tuple[float | None, ...]


class Curves(Struct, frozen=True):
    """The curves of one metric."""

    metric: str
    mode: str | None
    """Which end is better, where that is known."""
    steps: tuple[int, ...]
    """The steps that are drawn. Where there are more, each stands for those since the one before: the last counts."""
    lines: tuple[Line, ...]
    band: Band | None
    """Of more than 300 trials, the quantiles of all; the lines are the 50 best then."""
    total: int
    """Trials that have reported the metric."""
    y: ValueAxis
    """The axis of the metric."""


def curves_of(inputs: RunInputs) -> tuple[Curves, ...]:
    """The curves of each metric, first those of the run's own; of eight metrics at most."""
    names = sorted(inputs.columns.metrics, key=lambda name: name != inputs.view.spec.metric)
    modes = {objective.metric: objective.mode for objective in inputs.outcome.objectives}
    shown = names[:MOST_METRICS]
    candidates = (
        curves_of_metric(inputs.columns, name, modes.get(name) or implied_by(name), inputs.places) for name in shown
    )
    return tuple(curves for curves in candidates if curves is not None)


def curves_of_metric(columns: ReportColumns, metric: str, mode: str | None, places: Mapping[int, int]) -> Curves | None:
    """The curves of a metric; None where no trial has reported a finite value. `places`: see `RunInputs`."""
    mask = np.isfinite(columns.metrics[metric])
    if not mask.any():
        return None
    trial = columns.trial[mask]
    step = columns.step[mask]
    value = columns.metrics[metric][mask]
    ids, index = np.unique(trial, return_inverse=True)
    steps, bucket = _grid(step)
    table = np.full((ids.size, steps.size), np.nan)
    table[index, bucket] = value  # rows are in the order of steps: the last one of a bucket stays
    chosen = range(ids.size) if ids.size <= MOST_LINES else _best(ids.tolist(), table, mode, places)
    lines = tuple(Line(int(ids[row]), _rounded(table[row])) for row in chosen)
    band = _band(table) if ids.size > MOST_LINES else None
    axis = _axis_of(lines, band, mode)
    return Curves(metric, mode, tuple(steps.tolist()), lines, band, int(ids.size), axis)


def _axis_of(lines: Sequence[Line], band: Band | None, mode: str | None) -> ValueAxis:
    """The axis of what is drawn: a curve that leaves it at its worse end has diverged."""
    quantiles = [] if band is None else [band.q10, band.q90]
    axis = lines_axis([*(line.values for line in lines), *quantiles], mode)
    assert axis is not None  # one value at least is finite
    return axis


def _grid(step: Integers) -> tuple[Integers, Integers]:
    """The steps that are drawn, and for each row the number of its one."""
    steps, bucket = np.unique(step, return_inverse=True)
    if steps.size <= MOST_POINTS:
        return steps, bucket
    edges = np.linspace(steps[0], steps[-1], MOST_POINTS)
    drawn = np.unique(np.ceil(edges).astype(np.int64))
    return drawn, np.searchsorted(drawn, step)


def _best(ids: Sequence[int], table: Floats, mode: str | None, places: Mapping[int, int]) -> list[int]:
    """The numbers of the best trials: those that have a place first, then by the last value."""
    filled = np.where(np.isnan(table), -1, np.arange(table.shape[1]))
    last = table[np.arange(len(ids)), filled.max(axis=1)]
    losses = -last if mode == "max" else last
    order = sorted(range(len(ids)), key=lambda index: (places.get(ids[index], len(ids)), losses[index]))
    return order[:BEST_LINES]


def _band(table: Floats) -> Band:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # a step without values, and an overflow, are null
        return Band(*map(_rounded, np.nanquantile(table, QUANTILES, axis=0)))


def _rounded(values: Floats) -> tuple[float | None, ...]:
    """Six digits: what a screen can show."""
    return tuple(float(f"{value:.6g}") if np.isfinite(value) else None for value in values.tolist())
