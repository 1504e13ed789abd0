"""The kinds of plots of a run, each as one SVG of a limited size. Pure: they know no run, only values."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from sparktrain.base import formatting
from sparktrain.views.notebook import svg
from sparktrain.views.notebook.axes import Frame, Scale, finite, legend, metric_scale, scale, thinned
from sparktrain.views.notebook.svg import FAINT, Point
from sparktrain.views.report.palette import BEST, SERIES, ramp_colour, status_colour
from sparktrain.views.report.views.value_axis import ValueAxis, lines_axis, value_axis

WIDTH = 760.0
HEIGHT = 320.0
SMALL = 640.0, 220.0
DOTS = 400
"""Most trials that are drawn one by one; of more, the best and a part of the others that are spread evenly."""
POINTS_OF_CURVES = 12_000
"""Most points of all curves of a plot together."""
MOST_BARS = 2_000
_FEW_CURVES = 8
_BEST_LINES = 10
"""Lines of parallel coordinates that stand out."""
MOST_ROWS = 40
MOST_AXES = 10
_MOST_LABELS = 6
"""Values beyond an axis that are written at its edge; the pointer shows the others."""


class Value(NamedTuple):
    """The value of one trial."""

    at: int
    """Its place from left to right: the number of the trial, or how many ended before it."""
    value: float
    note: str = ""
    """What the pointer shows."""
    status: str = "succeeded"
    """That of the trial, which decides on the colour."""


class Curve(NamedTuple):
    """One line of values by step."""

    name: str
    points: Sequence[Point]
    strong: bool = False
    """Whether it is that of the best trial, which stands out; the others are faint where there are many."""
    status: str = ""
    """That of the trial, which decides on the colour; empty for a curve of no trial."""

    @property
    def colour(self) -> str:
        """That of the best trial, or of the status."""
        return BEST if self.strong else status_colour(self.status) if self.status else SERIES[0]


class Quantiles(NamedTuple):
    """The quantiles of many curves, at the same steps."""

    name: str
    steps: Sequence[float]
    low: Sequence[float]
    middle: Sequence[float]
    high: Sequence[float]


class Dimension(NamedTuple):
    """One axis of parallel coordinates: a number, or a choice by its place in `choices`."""

    name: str
    values: Sequence[float | None]
    """One for each line; None where the trial does not have it."""
    choices: Sequence[str] = ()
    log: bool = False
    is_whole: bool = False
    ticks: tuple[float, ...] = ()
    """Where its ticks are; empty for round values."""
    metric: ValueAxis | None = None
    """The axis of the metric; None for a parameter."""


class Share(NamedTuple):
    """The importance of one parameter, from 0 to 1, and the interval in which it lies."""

    name: str
    share: float
    low: float
    high: float


class Span(NamedTuple):
    """One bar of a timeline, in seconds from the start of the run."""

    row: str
    start: float
    end: float
    kind: str
    note: str = ""


def history(
    values: Sequence[Value],
    best: Sequence[Point],
    names: tuple[str, str],
    axis: ValueAxis | None = None,
    size: tuple[float, float] = (WIDTH, HEIGHT),
) -> str:
    """The value of each trial, and the line of the best so far. Values beyond the axis are marks at its edge.

    Without an axis, it is that of the values.
    """
    finite_values = [value for value in values if finite([value.value])]
    axis = axis or value_axis((value.value for value in finite_values), None)
    shown = spread(finite_values, {int(at) for at, _ in best})
    frame = Frame(*size)
    x = replace(scale([value.at for value in finite_values], *frame.across, margin=0.02), is_whole=True)
    y = metric_scale(axis, *frame.up)
    parts = frame.draw(x, y, names)
    inside = [value for value in shown if not _beyond(axis, value.value)]
    parts += [svg.dot((x(v.at), y(v.value)), status_colour(v.status), 3.0, v.note) for v in inside]
    steps = stairs([(x(at), y(value)) for at, value in best], frame.across[1])
    parts += [svg.path(thinned(steps, DOTS), BEST, 2.2)] if steps else []
    outside = [value for value in finite_values if _beyond(axis, value.value)]
    parts += _edge_marks([(x(value.at), value) for value in outside], axis, frame)
    statuses = dict.fromkeys(value.status for value in finite_values)
    entries = [("best so far", BEST)] if steps else []
    entries += [(_WORDS.get(status, status), status_colour(status)) for status in statuses]
    parts += legend(entries, frame.width - frame.right, 13, frame.width * 0.7)
    return svg.drawing(*size, parts, f"{names[1]} of {formatting.count(len(values), 'trial')}")


_WORDS = {"succeeded": "result", "pruned": "pruned, at its last step"}


def _beyond(axis: ValueAxis | None, value: float) -> int:
    """-1 below the axis, 1 above it, else 0."""
    return 0 if axis is None else -1 if value < axis.low else 1 if value > axis.high else 0


def _edge_marks(values: Sequence[tuple[float, Value]], axis: ValueAxis | None, frame: Frame) -> list[str]:
    """Triangles at the edge with the values, as far as they have room."""
    parts: list[str] = []
    free = -math.inf
    written = 0
    marks = sorted(values, key=lambda entry: entry[0])[:DOTS]
    following = [place for place, _ in marks[1:]] + [frame.width]
    for (place, value), next_place in zip(marks, following, strict=False):
        above = _beyond(axis, value.value) > 0
        tip = frame.up[1] if above else frame.up[0]
        parts.append(svg.triangle((place, tip), 8 if above else -8, status_colour(value.status), value.note))
        words = formatting.number(value.value)
        room = len(words) * svg.CHARACTER
        is_left = place + 14 + room > next_place
        if place - (14 + room if is_left else 0) > free and written < _MOST_LABELS:
            at = place - 7 if is_left else place + 7, tip + (9 if above else -2)
            parts.append(svg.text(at, words, "end" if is_left else "start"))
            free = place + (8 if is_left else room + 14)
            written = written + 1
        else:
            free = max(free, place + 8)
    return parts


def spread(values: Sequence[Value], highlights: set[int]) -> list[Value]:
    """At most about `DOTS` of the values: the `highlights`, as far as they fit, and a part of the others."""
    if len(values) <= DOTS:
        return list(values)
    first = [value for value in values if value.at in highlights][-DOTS // 2 :]
    every = math.ceil(len(values) / (DOTS - len(first)))
    return sorted({value.at: value for value in [*values[::every], *first]}.values(), key=lambda dot: dot.at)


def curves(
    lines: Sequence[Curve],
    band: Quantiles | None,
    names: tuple[str, str],
    axis: ValueAxis | None = None,
    size: tuple[float, float] = (WIDTH, HEIGHT),
) -> str:
    """One line for each curve; with a band, the quantiles of those that are not drawn.

    Without an axis, it is that of the curves.
    """
    finite_curves = [_finite_curve(line) for line in lines]
    axis = axis or lines_axis(([value for _, value in line.points] for line in finite_curves), None)
    frame = Frame(*size)
    steps = [step for line in finite_curves for step, _ in line.points] + ([] if band is None else list(band.steps))
    x = replace(scale(steps, *frame.across), is_whole=True)
    y = metric_scale(axis, *frame.up)
    parts = frame.draw(x, y, names)
    parts += _band(band, x, y) if band is not None and band.steps else []
    point_limit = max(8, POINTS_OF_CURVES // max(1, len(finite_curves)))
    has_few_lines = len(finite_curves) <= _FEW_CURVES
    for line in finite_curves:
        points = thinned([(x(step), y(value)) for step, value in line.points], point_limit)
        opacity = 1.0 if has_few_lines or line.strong else 0.85
        dots = [svg.dot(point, line.colour, words=line.name) for point in points[:1]] if len(points) == 1 else []
        parts += dots or [svg.path(points, line.colour, 2.6 if line.strong else 1.3, opacity, line.name)]
    entries = [("best", BEST)] if any(line.strong for line in finite_curves) else []
    statuses = dict.fromkeys(line.status for line in finite_curves if line.status and not line.strong)
    entries += [(status, status_colour(status)) for status in statuses]
    parts += legend(entries, frame.width - frame.right, 13, frame.width * 0.62)
    return svg.drawing(*size, parts, f"{names[1]} by {names[0]}")


def parallel(dimensions: Sequence[Dimension], values: Sequence[float | None], names: Sequence[str]) -> str:
    """One line for each trial through its parameters; the last of `dimensions` is mostly the metric.

    `values` are from 0, drawn faint, to 1, drawn strong: one for each line, as `names` are. The strong ones are drawn
    last. At most the last ten dimensions are drawn.
    """
    # The last ones: the report has the most important parameters beside the metric.
    dimensions = dimensions[-MOST_AXES:]
    frame = Frame(WIDTH, HEIGHT, left=40, right=50, top=34, bottom=16)
    places = scale(list(range(len(dimensions))), *frame.across)
    scales = [_scale_of(dimension, frame) for dimension in dimensions]
    parts: list[str] = []
    drawn = _strongest_last(values)
    # One of thousands of lines cannot be followed: the ten best stand out from an even sample.
    best = {number for number, _ in drawn[-_BEST_LINES:]}
    faintness = max(0.5, min(1.0, 100 / max(1, len(drawn))))
    for at, strength in drawn:
        points = [
            (places(number), axis_scale(value))
            for number, (axis_scale, dimension) in enumerate(zip(scales, dimensions, strict=True))
            if (value := dimension.values[at]) is not None and not math.isnan(value)
        ]
        opacity = 1.0 if at in best and strength >= 0.9 else max(0.75, strength) * faintness
        parts.append(svg.path(points, ramp_colour(strength), 1 + 1.2 * strength, opacity, names[at]))
    for number, (axis_scale, dimension) in enumerate(zip(scales, dimensions, strict=True)):
        parts += _axis(places(number), axis_scale, dimension, frame, len(dimensions))
    return svg.drawing(frame.width, frame.height, parts, f"{formatting.count(len(values), 'trial')} by parameter")


def _strongest_last(values: Sequence[float | None]) -> list[tuple[int, float]]:
    """The lines that are drawn with their strengths: of many the strongest, and an even sample of the others."""
    strengths = [max(0.0, min(1.0, numbers[0])) if (numbers := finite([value])) else 0.0 for value in values]
    order = sorted(range(len(strengths)), key=strengths.__getitem__)
    if len(order) > DOTS:
        # All lines of thousands of trials are one area. So the ten best stand out from an even sample of the others.
        weaker = order[:-_BEST_LINES]
        best = order[-_BEST_LINES:]
        order = [*weaker[:: math.ceil(len(weaker) / (DOTS - _BEST_LINES))], *best]
    return [(at, strengths[at]) for at in order]


def timeline(spans: Sequence[Span], names: tuple[str, str]) -> str:
    """A row for each slot, with a bar for each thing that it did."""
    rows = list(dict.fromkeys(span.row for span in spans))
    shown = rows[:MOST_ROWS]
    frame = Frame(WIDTH, 64 + 18.0 * max(1, len(shown)), left=120)
    x = scale([0.0, *(span.end for span in spans)], *frame.across)
    top = frame.top + 4
    bottom = frame.height - frame.bottom
    parts = [svg.line((frame.left, bottom), (frame.across[1], bottom))]
    for place, label in x.ticks(7):
        parts += [svg.line((place, top), (place, bottom), 0.12), svg.text((place, bottom + 15), label, "middle")]
    parts += [svg.text((frame.left - 6, top + 18 * at + 12), svg.clean(row, 17), "end") for at, row in enumerate(shown)]
    place_of = {row: top + 18 * at + 2 for at, row in enumerate(shown)}
    pixel = x.value(frame.left + 1) - x.value(frame.left)
    for bar in joined([span for span in spans if span.row in place_of], pixel):
        start = x(bar.start)
        end = x(bar.end)
        parts.append(
            svg.bar((start, place_of[bar.row]), (end - start, 14), status_colour(bar.kind), bar.note or bar.kind)
        )
    kinds = list(dict.fromkeys(span.kind for span in spans))
    parts += legend([(kind, status_colour(kind)) for kind in kinds], frame.across[1], 13, frame.width * 0.7)
    hidden = f"; {len(rows) - len(shown)} more rows" if len(rows) > len(shown) else ""
    parts.append(svg.text((WIDTH / 2, frame.height - 5), names[0] + hidden, "middle"))
    parts.append(svg.text((6, 13), names[1]))
    return svg.drawing(frame.width, frame.height, parts, f"{names[1]} by {names[0]}")


def joined(spans: Sequence[Span], width: float) -> list[Span]:
    """Those of a row and kind joined that are shorter than `width` and closer than that; of too many the longest."""
    rows: dict[str, list[Span]] = {}
    counts: dict[str, int] = {}
    for span in sorted(spans, key=lambda interval: interval.start):
        row = rows.setdefault(span.row, [])
        previous = row[-1] if row else None
        short = span.end - span.start < width
        # Joined, and not left out: of thousands of short trials a slot seemed to have gaps where it had none.
        if previous is not None and short and previous.kind == span.kind and span.start - previous.end < width:
            counts[span.row] += 1
            note = f"{formatting.count(counts[span.row], 'generation')}: {span.kind}"
            row[-1] = previous._replace(end=max(previous.end, span.end), note=note)
        else:
            counts[span.row] = 1
            row.append(span)
    together = [span for row in rows.values() for span in row]
    return sorted(together, key=lambda interval: interval.start - interval.end)[:MOST_BARS]


def bars(values: Sequence[Share], title: str) -> str:
    """A horizontal bar for each name with its interval, and the numbers beside it; of many the first forty."""
    shown = [share for share in values if len(finite([share.share, share.low, share.high])) == 3][:MOST_ROWS]
    frame = Frame(WIDTH, 34 + 22.0 * max(1, len(shown)), left=190, right=130)
    x = Scale(0.0, max([1e-9, *(min(1.0, share.high) for share in shown)]), *frame.across)
    parts = [svg.text((6, 13), title)]
    for at, share in enumerate(shown):
        middle = frame.top + 22 * at + 9
        words = f"{share.share:.0%} ({share.low:.0%} to {share.high:.0%})"
        size = max(0.0, x(share.share) - frame.left), 14
        parts.append(svg.text((frame.left - 8, middle + 4), svg.clean(share.name, 28), "end"))
        parts.append(svg.bar((frame.left, middle - 7), size, SERIES[0], f"{share.name}: {words}"))
        parts.append(svg.line((x(share.low), middle), (x(share.high), middle), 0.9))
        parts += [svg.line((x(end), middle - 4), (x(end), middle + 4), 0.9) for end in (share.low, share.high)]
        parts.append(svg.text((frame.across[1] + 8, middle + 4), words))
    return svg.drawing(frame.width, frame.height, parts, title)


def stairs(points: Sequence[Point], right: float) -> list[Point]:
    """The line that stays at each value up to the next one, and at the last up to `right`."""
    corners: list[Point] = []
    for point in points:
        corners += [(point[0], corners[-1][1])] if corners else []
        corners.append(point)
    return [*corners, (right, corners[-1][1])] if corners else []


def _finite_curve(of: Curve) -> Curve:
    return of._replace(points=[(step, value[0]) for step, number in of.points if (value := finite([number]))])


def _band(of: Quantiles, x: Scale, y: Scale) -> list[str]:
    upper = thinned([(x(step), y(value)) for step, value in zip(of.steps, of.high, strict=True)], DOTS)
    lower = thinned([(x(step), y(value)) for step, value in zip(of.steps, of.low, strict=True)], DOTS)
    middle = thinned([(x(step), y(value)) for step, value in zip(of.steps, of.middle, strict=True)], DOTS)
    return [svg.area(upper, lower, FAINT, of.name), svg.path(middle, FAINT, 1.5, 0.8, of.name)]


def _scale_of(dimension: Dimension, frame: Frame) -> Scale:
    if dimension.metric is not None:
        return metric_scale(dimension.metric, *frame.up, margin=0.0)
    if dimension.choices:
        return scale([0.0, max(1.0, len(dimension.choices) - 1)], *frame.up)
    axis_scale = scale(dimension.values, *frame.up, log=dimension.log)
    return replace(axis_scale, is_whole=dimension.is_whole, listed=dimension.ticks)


def _axis(place: float, axis_scale: Scale, of: Dimension, frame: Frame, number: int) -> list[str]:
    bottom, top = frame.up
    width = max(5, int((frame.across[1] - frame.across[0]) / max(1, number - 1) / svg.CHARACTER) - 1)
    parts = [svg.line((place, bottom), (place, top), 0.6), svg.text((place, 18), svg.clean(of.name, width), "middle")]
    labels = [(axis_scale(at), label) for at, label in enumerate(of.choices)] if of.choices else axis_scale.ticks(5)
    limit = max(4, min(12, width - 2))
    return parts + [svg.text((place + 4, at + 4), svg.clean(label, limit), opacity=1.0) for at, label in labels[:12]]
