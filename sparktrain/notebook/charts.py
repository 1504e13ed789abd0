"""The kinds of plots of a run, each as one SVG of a limited size. Pure: they know no run, only values."""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from sparktrain import formatting
from sparktrain.notebook import svg
from sparktrain.notebook.axes import Frame, Scale, finite, legend, scale, thinned
from sparktrain.notebook.svg import BEST, COLOURS, FAILED, FAINT, Point

WIDTH, HEIGHT = 680.0, 300.0
SMALL = 420.0, 190.0
DOTS = 400
"""Most trials that are drawn one by one; of more, the best and a part of the others that are spread evenly."""
POINTS_OF_CURVES = 12_000
"""Most points of all curves of a plot together."""
MOST_BARS = 2_000
_BEST_LINES = 10
"""Lines of parallel coordinates that stand out."""
MOST_ROWS = 40
MOST_AXES = 10
_KINDS = {"trained": COLOURS[0], "succeeded": BEST, "failed": FAILED, "lost": FAILED, "stopped": COLOURS[1]}
KIND_COLOURS: Mapping[str, str] = {**_KINDS, "pruned": FAINT, "running": COLOURS[0], "paused": COLOURS[4]}
"""The colour of what became of a trial; another word has the first colour of series."""


class Value(NamedTuple):
    """The value of one trial."""

    at: int
    """Its place from left to right: the number of the trial, or how many ended before it."""
    value: float
    note: str = ""
    """What the pointer shows."""
    colour: str = COLOURS[0]


class Curve(NamedTuple):
    """One line of values by step."""

    name: str
    points: Sequence[Point]
    strong: bool = False
    """Whether it stands out; the others are faint where there are many."""


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
    log: bool | None = None


class Span(NamedTuple):
    """One bar of a timeline, in seconds from the start of the run."""

    row: str
    start: float
    end: float
    kind: str
    note: str = ""


def history(
    values: Sequence[Value], best: Sequence[Point], names: tuple[str, str], size: tuple[float, float] = (WIDTH, HEIGHT)
) -> str:
    """The value of each trial, and the line of the best so far."""
    known = [each for each in values if finite([each.value])]
    shown = spread(known, {int(at) for at, _ in best})
    frame = Frame(*size)
    x = scale([each.at for each in known], *frame.across, log=False, margin=0.02)
    y = scale([each.value for each in known] + [value for _, value in best], *frame.up, margin=0.04)
    parts = frame.draw(x, y, names)
    parts += [svg.dot((x(v.at), y(v.value)), v.colour, 2.5, v.note, 0.75) for v in shown]
    steps = stairs([(x(at), y(value)) for at, value in best], frame.across[1])
    parts += [svg.path(thinned(steps, DOTS), BEST, 1.8)] if steps else []
    entries = [("best so far", BEST)] if steps else []
    parts += legend(entries, frame.width - frame.right, 13, frame.width / 2)
    return svg.drawing(*size, parts, f"{names[1]} of {formatting.count(len(values), 'trial')}")


def spread(values: Sequence[Value], kept: set[int]) -> list[Value]:
    """At most about `DOTS` of the values: those `kept`, as far as they fit, and a part of the others."""
    if len(values) <= DOTS:
        return list(values)
    first = [each for each in values if each.at in kept][-DOTS // 2 :]
    every = math.ceil(len(values) / (DOTS - len(first)))
    return sorted({each.at: each for each in [*values[::every], *first]}.values(), key=lambda each: each.at)


def curves(
    lines: Sequence[Curve], band: Quantiles | None, names: tuple[str, str], size: tuple[float, float] = (WIDTH, HEIGHT)
) -> str:
    """One line for each curve; with a band, the quantiles of those that are not drawn."""
    whole = [_finite_curve(line) for line in lines]
    frame = Frame(*size)
    ends = [] if band is None else [*zip(band.steps, band.low, strict=False), *zip(band.steps, band.high, strict=False)]
    places = [point for line in whole for point in line.points] + ends
    x = scale([place[0] for place in places], *frame.across, log=False)
    y = scale([place[1] for place in places], *frame.up, margin=0.04)
    parts = frame.draw(x, y, names)
    parts += _band(band, x, y) if band is not None and band.steps else []
    most = max(8, POINTS_OF_CURVES // max(1, len(whole)))
    few = len(whole) <= len(COLOURS)
    for number, line in enumerate(whole):
        colour = COLOURS[number % len(COLOURS)]
        points = thinned([(x(step), y(value)) for step, value in line.points], most)
        opacity = 1.0 if few or line.strong else 0.45
        dots = [svg.dot(point, colour, words=line.name) for point in points[:1]] if len(points) == 1 else []
        parts += dots or [svg.path(points, colour, 2.2 if line.strong else 1.2, opacity, line.name)]
    if few:
        entries = [(line.name, COLOURS[number]) for number, line in enumerate(whole)]
        parts += legend(entries, frame.width - frame.right, 13, frame.width * 0.62)
    return svg.drawing(*size, parts, f"{names[1]} by {names[0]}")


def parallel(dimensions: Sequence[Dimension], values: Sequence[float | None], names: Sequence[str]) -> str:
    """One line for each trial through its parameters; the last of `dimensions` is mostly the metric.

    `values` are from 0, drawn faint, to 1, drawn strong: one for each line, as `names` are. The strong ones are drawn
    last. At most the last ten dimensions are drawn.
    """
    dimensions = dimensions[-MOST_AXES:]
    frame = Frame(WIDTH, HEIGHT, left=40, right=50, top=34, bottom=16)
    places = scale(list(range(len(dimensions))), *frame.across, log=False)
    scales = [scale(_room(each), *frame.up, log=False if each.choices else each.log) for each in dimensions]
    parts: list[str] = []
    drawn = _strongest_last(values)
    best = {number for number, _ in drawn[-_BEST_LINES:]}
    faintness = max(0.25, min(1.0, 100 / max(1, len(drawn))))
    for at, strength in drawn:
        points = [
            (places(number), own(value))
            for number, (own, each) in enumerate(zip(scales, dimensions, strict=True))
            if (value := each.values[at]) is not None and not math.isnan(value)
        ]
        is_best = at in best and strength >= 0.9
        colour, opacity = (BEST, 0.95) if is_best else (COLOURS[0], (0.2 + 0.7 * strength**2) * faintness)
        parts.append(svg.path(points, colour, 1 + strength, opacity, names[at]))
    for number, (own, each) in enumerate(zip(scales, dimensions, strict=True)):
        parts += _axis(places(number), own, each, frame, len(dimensions))
    return svg.drawing(frame.width, frame.height, parts, f"{formatting.count(len(values), 'trial')} by parameter")


def _strongest_last(values: Sequence[float | None]) -> list[tuple[int, float]]:
    """The lines that are drawn with their strengths: of many the strongest, and an even sample of the others."""
    known = [max(0.0, min(1.0, each[0])) if (each := finite([value])) else 0.0 for value in values]
    order = sorted(range(len(known)), key=known.__getitem__)
    if len(order) > DOTS:
        rest, best = order[:-_BEST_LINES], order[-_BEST_LINES:]
        order = [*rest[:: math.ceil(len(rest) / (DOTS - _BEST_LINES))], *best]
    return [(at, known[at]) for at in order]


def timeline(spans: Sequence[Span], names: tuple[str, str]) -> str:
    """A row for each slot, with a bar for each thing that it did."""
    rows = list(dict.fromkeys(each.row for each in spans))
    shown = rows[:MOST_ROWS]
    frame = Frame(WIDTH, 64 + 18.0 * max(1, len(shown)), left=120)
    x = scale([0.0, *(each.end for each in spans)], *frame.across, log=False)
    top, bottom = frame.top + 4, frame.height - frame.bottom
    parts = [svg.line((frame.left, bottom), (frame.across[1], bottom))]
    for place, label in x.ticks(7):
        parts += [svg.line((place, top), (place, bottom), 0.12), svg.text((place, bottom + 15), label, "middle")]
    parts += [svg.text((frame.left - 6, top + 18 * at + 12), svg.clean(row, 17), "end") for at, row in enumerate(shown)]
    place_of = {row: top + 18 * at + 2 for at, row in enumerate(shown)}
    pixel = x.value(frame.left + 1) - x.value(frame.left)
    for each in joined([each for each in spans if each.row in place_of], pixel):
        start, end = x(each.start), x(each.end)
        parts.append(
            svg.bar((start, place_of[each.row]), (end - start, 14), colour_of(each.kind), each.note or each.kind)
        )
    kinds = list(dict.fromkeys(each.kind for each in spans))
    parts += legend([(kind, colour_of(kind)) for kind in kinds], frame.across[1], 13, frame.width * 0.7)
    hidden = f"; {len(rows) - len(shown)} more rows" if len(rows) > len(shown) else ""
    parts.append(svg.text((WIDTH / 2, frame.height - 5), names[0] + hidden, "middle"))
    parts.append(svg.text((6, 13), names[1]))
    return svg.drawing(frame.width, frame.height, parts, f"{names[1]} by {names[0]}")


def joined(spans: Sequence[Span], width: float) -> list[Span]:
    """Those of a row and kind joined that are shorter than `width` and closer than that; of too many the longest."""
    found: dict[str, list[Span]] = {}
    counts: dict[str, int] = {}
    for each in sorted(spans, key=lambda each: each.start):
        row = found.setdefault(each.row, [])
        before = row[-1] if row else None
        short = each.end - each.start < width
        if before is not None and short and before.kind == each.kind and each.start - before.end < width:
            counts[each.row] += 1
            note = f"{formatting.count(counts[each.row], 'generation')}: {each.kind}"
            row[-1] = before._replace(end=max(before.end, each.end), note=note)
        else:
            counts[each.row] = 1
            row.append(each)
    together = [each for row in found.values() for each in row]
    return sorted(together, key=lambda each: each.start - each.end)[:MOST_BARS]


def bars(values: Sequence[tuple[str, float]], title: str) -> str:
    """A horizontal bar for each name, from 0 to 1, with the number beside it; of many the first forty."""
    shown = [(name, max(0.0, min(1.0, value))) for name, value in values if finite([value])][:MOST_ROWS]
    frame = Frame(WIDTH, 34 + 20.0 * max(1, len(shown)), left=170, right=60)
    x = Scale(0.0, max([1e-9, *(value for _, value in shown)]), *frame.across)
    parts = [svg.text((6, 13), title)]
    for at, (name, value) in enumerate(shown):
        top = frame.top + 20 * at
        parts.append(svg.text((frame.left - 8, top + 12), svg.clean(name, 25), "end"))
        parts.append(svg.bar((frame.left, top + 1), (x(value) - frame.left, 14), COLOURS[0], f"{name}: {value:.1%}"))
        parts.append(svg.text((x(value) + 6, top + 12), f"{value:.0%}"))
    return svg.drawing(frame.width, frame.height, parts, title)


def colour_of(kind: str) -> str:
    """The colour of what became of a trial."""
    return KIND_COLOURS.get(kind, COLOURS[0])


def stairs(points: Sequence[Point], right: float) -> list[Point]:
    """The line that stays at each value up to the next one, and at the last up to `right`."""
    found: list[Point] = []
    for point in points:
        found += [(point[0], found[-1][1])] if found else []
        found.append(point)
    return [*found, (right, found[-1][1])] if found else []


def _finite_curve(of: Curve) -> Curve:
    return of._replace(points=[(step, value[0]) for step, each in of.points if (value := finite([each]))])


def _band(of: Quantiles, x: Scale, y: Scale) -> list[str]:
    upper = thinned([(x(step), y(value)) for step, value in zip(of.steps, of.high, strict=True)], DOTS)
    lower = thinned([(x(step), y(value)) for step, value in zip(of.steps, of.low, strict=True)], DOTS)
    middle = thinned([(x(step), y(value)) for step, value in zip(of.steps, of.middle, strict=True)], DOTS)
    return [svg.area(upper, lower, FAINT, of.name), svg.path(middle, FAINT, 1.5, 0.8, of.name)]


def _room(of: Dimension) -> list[float | None]:
    return [0.0, float(len(of.choices) - 1)] if len(of.choices) > 1 else list(of.values)


def _axis(place: float, own: Scale, of: Dimension, frame: Frame, number: int) -> list[str]:
    bottom, top = frame.up
    width = max(5, int((frame.across[1] - frame.across[0]) / max(1, number - 1) / svg.CHARACTER) - 1)
    parts = [svg.line((place, bottom), (place, top), 0.6), svg.text((place, 18), svg.clean(of.name, width), "middle")]
    labels = [(own(at), label) for at, label in enumerate(of.choices)] if of.choices else own.ticks(5)
    limit = max(4, min(12, width - 2))
    return parts + [svg.text((place + 4, at + 4), svg.clean(label, limit), opacity=1.0) for at, label in labels[:12]]
