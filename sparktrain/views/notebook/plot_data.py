"""The views of a report as the values that plots draw. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from sparktrain.base import formatting
from sparktrain.errors import SpecError
from sparktrain.views.notebook.charts import Curve, Dimension, Quantiles, Share, Span, Value
from sparktrain.views.notebook.svg import Point
from sparktrain.views.report.views.curves_view import Curves
from sparktrain.views.report.views.parameter_axes import Axis, as_text, is_number
from sparktrain.views.report.views.report_document import ReportDocument
from sparktrain.views.report.views.timeline_view import Bar, TimelineView
from sparktrain.views.report.views.trial_rows import TrialRow
from sparktrain.views.report.views.value_axis import ValueAxis

NO_METRIC = "no trial has a value to compare by: the run has no metric, or no trial with a result"
_MINUTES_FROM = 300.0
_HOURS_FROM = 3 * 3600.0


@dataclass(frozen=True)
class HistoryData:
    """Values in the order in which trials ended."""

    values: Sequence[Value]
    best: Sequence[Point]
    """Where the best so far changes."""
    metric: str
    axis: ValueAxis


@dataclass(frozen=True)
class CurvesData:
    """Reports of one metric by step."""

    lines: Sequence[Curve]
    band: Quantiles | None
    metric: str
    total: int
    """Trials that have reported the metric."""
    axis: ValueAxis


@dataclass(frozen=True)
class ParallelData:
    """Parameters and the metric of trials."""

    dimensions: Sequence[Dimension]
    strengths: Sequence[float]
    names: Sequence[str]
    left_out: int


@dataclass(frozen=True)
class TimelineData:
    """What each slot did."""

    spans: Sequence[Span]
    unit: str


def history_data(of: ReportDocument) -> HistoryData | None:
    """None where no trial has a value."""
    view = of.views.history
    metric = of.headline.run.metric
    if view is None or metric is None:
        return None
    rows = _rows(of)
    values = [
        Value(at, value, _words(rows[trial], value), rows[trial].status)
        for at, (trial, value) in enumerate(zip(view.trials, view.values, strict=True), 1)
    ]
    best: list[Point] = []
    for at, value in enumerate(view.best, 1):
        if value is not None and (not best or value != best[-1][1]):
            best.append((at, value))
    return HistoryData(values, best, metric, view.y)


def curves_data(of: ReportDocument, metric: str | None) -> CurvesData | None:
    """The curves of a metric, by default the run's own; None where nothing was reported.

    Raises SpecError for a metric that has no curves.
    """
    if metric is None and not of.views.curves:
        return None
    metric_curves = next((curves for curves in of.views.curves if metric in (None, curves.metric)), None)
    if metric_curves is None:
        metric_names = ", ".join(curves.metric for curves in of.views.curves) or "none"
        raise SpecError(
            f"no curves of metric {metric!r} are in the views of run {of.headline.run.name}; there are: {metric_names}"
        )
    rows = _rows(of)
    places = {row.id: row.place for row in of.trials if row.place is not None}
    order = sorted(metric_curves.lines, key=lambda line: places.get(line.trial, len(of.trials)), reverse=True)
    lines = [
        Curve(
            name=f"trial {line.trial}",
            points=_points(metric_curves.steps, line.values),
            strong=places.get(line.trial) == 0,
            status=rows[line.trial].status if line.trial in rows else "",
        )
        for line in order
    ]
    return CurvesData(lines, _band(metric_curves), metric_curves.metric, metric_curves.total, metric_curves.y)


def parallel_data(of: ReportDocument) -> ParallelData | None:
    """None where no trial has a value, or no parameter differs."""
    view = of.views.parallel
    rows = _rows(of)
    if not view.axes or not view.trials or of.headline.run.metric is None:
        return None
    shown = [rows[trial] for trial in view.trials]
    dimensions = [_dimension(axis, shown) for axis in view.axes]
    dimensions.append(Dimension(of.headline.run.metric, [row.value for row in shown], metric=view.y))
    last = max(1, max((row.place or 0 for row in shown), default=0))
    strengths = [1.0 - (row.place or 0) / last for row in shown]
    return ParallelData(dimensions, strengths, [_words(row, row.value) for row in shown], view.left_out)


def timeline_data(of: ReportDocument) -> TimelineData | None:
    """None where no trial has started."""
    view = of.views.timeline
    if view is None:
        return None
    unit = "seconds"
    per = 1.0
    if view.seconds >= _MINUTES_FROM:
        unit, per = ("minutes", 60.0) if view.seconds < _HOURS_FROM else ("hours", 3600.0)
    return TimelineData([_span(bar, view, per) for bar in view.bars], unit)


def importance_data(of: ReportDocument) -> list[Share]:
    """The share of each parameter, the largest first; none where the view names a reason."""
    return [Share(share.name, share.share, share.low, share.high) for share in of.views.importance.shares]


def _rows(of: ReportDocument) -> dict[int, TrialRow]:
    return {row.id: row for row in of.trials}


def _words(row: TrialRow, value: float | None) -> str:
    shown = "" if value is None else f": {formatting.number(value)}"
    return f"trial {row.id}{shown}  {formatting.params(row.params, 60)}"


def _points(steps: Sequence[int], values: Sequence[float | None]) -> list[Point]:
    return [(step, value) for step, value in zip(steps, values, strict=True) if value is not None]


def _band(of: Curves) -> Quantiles | None:
    if of.band is None:
        return None
    rows = zip(of.steps, of.band.q10, of.band.q50, of.band.q90, strict=True)
    complete_rows = [
        (step, low, middle, high)
        for step, low, middle, high in rows
        if low is not None and middle is not None and high is not None
    ]
    steps, low, middle, high = zip(*complete_rows, strict=True) if complete_rows else ((), (), (), ())
    return Quantiles(f"10 % to 90 % of {of.total} trials", steps, low, middle, high)


def _dimension(axis: Axis, rows: Sequence[TrialRow]) -> Dimension:
    cells = [row.params.get(axis.name) for row in rows]
    if axis.kind == "category":
        place = {text: float(at) for at, text in enumerate(axis.values)}
        values = [place.get(as_text(row.params[axis.name])) if axis.name in row.params else None for row in rows]
        return Dimension(axis.name, values, axis.values)
    numbers = [float(value) if is_number(value) else None for value in cells]  # type: ignore[arg-type] # is_number has looked
    return Dimension(axis.name, numbers, log=axis.log, is_whole=axis.integer, ticks=axis.ticks)


def _span(bar: Bar, view: TimelineView, per: float) -> Span:
    lane = view.lanes[bar.lane]
    kind = view.kinds[bar.kind]
    took = formatting.duration(bar.end - bar.start)
    note = f"trial {bar.trial}, generation {bar.generation}: {kind}, {took}"
    return Span(f"{formatting.short_host(lane.host)} {lane.slot}", bar.start / per, bar.end / per, kind, note)
