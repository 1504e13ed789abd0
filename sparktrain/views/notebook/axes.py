"""Scales from values to places, with ticks at round values, and the frame that a plot is drawn in. Pure."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from rich.cells import cell_len

from sparktrain.views.notebook import svg
from sparktrain.views.notebook.svg import Point
from sparktrain.views.report.views.value_axis import ValueAxis

LARGEST = 1e300
"""Values beyond are drawn as this one, so that differences stay finite."""
_LABEL = 9
_LEGEND_GAP = 12.0


def finite(values: Iterable[float | None]) -> list[float]:
    """The values that can be drawn."""
    return [max(-LARGEST, min(LARGEST, value)) for value in values if value is not None and math.isfinite(value)]


def round_step(span: float, most: int) -> float:
    """1, 2 or 5 times a power of ten, so that at most about `most` steps make the span."""
    rough = max(span / max(1, most), 5e-324)
    power = 10.0 ** max(-300, math.floor(math.log10(rough)))
    return next((factor * power for factor in (1, 2, 5) if factor * power >= rough), 10 * power)


def ticks(low: float, high: float, most: int = 5, is_whole: bool = False) -> list[float]:
    """Round values from `low` to `high`, both finite; `low` alone where they are the same. `is_whole`: no fractions."""
    step = round_step(high - low, most)
    step = max(1.0, float(round(step))) if is_whole else step
    if high <= low or low + step == low:
        return [low]
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [count * step for count in range(first, min(last, first + 3 * most) + 1)]


def powers(low: float, high: float, most: int = 5) -> list[float]:
    """Powers of ten from `low` to `high`, both positive; their ends where there is none between them."""
    first = math.ceil(math.log10(low) - 1e-9)
    last = math.floor(math.log10(high) + 1e-9)
    every = max(1, math.ceil((last - first + 1) / most))
    return [10.0**power for power in range(first, last + 1, every)] or [low, high]


def tick_label(value: float, step: float) -> str:
    """A value at a tick, with the digits that distinguish it from its neighbours."""
    if value == 0 or abs(value) < abs(step) * 1e-9:
        return "0"
    if abs(value) >= 1e6 or abs(value) < 1e-4:
        return f"{value:.3g}"
    decimals = max(0, -math.floor(math.log10(step) + 1e-9)) if step > 0 else 6
    return f"{value:.{min(decimals, 8)}f}" if step > 0 else f"{value:.6g}"


@dataclass(frozen=True)
class Scale:
    """From a value to a place in pixels."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False
    is_whole: bool = False
    """Its values are whole numbers, and so are its ticks."""
    listed: tuple[float, ...] = ()
    """Where its ticks are; empty for round values."""

    def __call__(self, value: float) -> float:
        """The place of a value; one outside is at the end that is nearer, and NaN is at the start."""
        if math.isnan(value):
            return self.start
        value = max(self.low, min(self.high, value))
        low = self.low
        high = self.high
        if self.log:
            low = math.log(low)
            high = math.log(high)
            value = math.log(value)
        part = 0.5 if high <= low else (value - low) / (high - low)
        return self.start + part * (self.end - self.start)

    def value(self, place: float) -> float:
        """The value at a place, also beyond either end."""
        part = (place - self.start) / (self.end - self.start)
        if self.log:
            low = math.log(self.low)
            high = math.log(self.high)
            return max(5e-324, math.exp(max(-700.0, min(700.0, low + part * (high - low)))))
        return self.low + part * (self.high - self.low)

    def ticks(self, most: int = 5) -> list[tuple[float, str]]:
        """Places and labels of the ticks."""
        if self.listed:
            return [(self(value), f"{value:.6g}") for value in self.listed]
        if self.log:
            return [(self(value), f"{value:.3g}") for value in powers(self.low, self.high, most)]
        values = ticks(self.low, self.high, most, self.is_whole)
        step = min((b - a for a, b in pairwise(values)), default=0.0)
        return [(self(value), tick_label(value, step)) for value in values]


def metric_scale(axis: ValueAxis | None, start: float, end: float, margin: float = 0.04) -> Scale:
    """The scale of a metric, from the axis that all views of it share; see `scale` for `margin`."""
    if axis is None:
        return Scale(0.0, 1.0, start, end)
    axis_scale = scale([axis.low, axis.high], start, end, log=axis.log, margin=margin)
    return replace(axis_scale, is_whole=axis.integer)


def scale(values: Iterable[float | None], start: float, end: float, *, log: bool = False, margin: float = 0.0) -> Scale:
    """The scale that shows all `values`; `log` is for positive ones.

    `margin` is the part of the axis that stays free at either end.
    """
    finite_values = finite(values)
    if not finite_values:
        return Scale(0.0, 1.0, start, end)
    low = min(finite_values)
    high = max(finite_values)
    if low == high:
        around = abs(low) * 0.05 or 0.5
        return Scale(low - around, high + around, start, end)
    free = margin * (end - start)
    inner = Scale(low, high, start + free, end - free, log and low > 0)
    return Scale(inner.value(start), inner.value(end), start, end, inner.log)


@dataclass(frozen=True)
class Frame:
    """The area of a plot between its axes."""

    width: float
    height: float
    left: float = 58.0
    right: float = 14.0
    top: float = 24.0
    bottom: float = 36.0

    @property
    def across(self) -> Point:
        """Where the horizontal axis starts and ends."""
        return self.left, self.width - self.right

    @property
    def up(self) -> Point:
        """Where the vertical axis starts, at the bottom, and ends."""
        return self.height - self.bottom, self.top

    def draw(self, x: Scale, y: Scale, names: tuple[str, str]) -> list[str]:
        """Both axes with ticks, grid lines and names."""
        (left, right), (bottom, top) = self.across, self.up
        parts = [svg.line((left, bottom), (right, bottom)), svg.line((left, bottom), (left, top))]
        for place, label in x.ticks(7):
            parts += [svg.line((place, bottom), (place, bottom + 4)), svg.text((place, bottom + 15), label, "middle")]
        for place, label in y.ticks(5):
            parts.append(svg.line((left, place), (right, place), 0.12))
            parts.append(svg.text((left - 6, place + 4), svg.clean(label, _LABEL), "end"))
        wide = int((right - left) / svg.CHARACTER)
        parts.append(svg.text(((left + right) / 2, self.height - 5), svg.clean(names[0], wide), "middle"))
        parts.append(svg.text((6, 13), svg.clean(names[1], wide // 2), opacity=0.85))
        return parts


def legend(entries: Sequence[tuple[str, str]], right: float, top: float, room: float) -> list[str]:
    """Names of series with their colours on one line that ends at `right`; those without room are left out."""
    parts: list[str] = []
    for words, colour in reversed(entries):
        name = svg.clean(words, 28)
        size = cell_len(name) * svg.CHARACTER + 14
        if size > room:
            break
        parts += [svg.bar((right - size, top - 8), (9, 9), colour), svg.text((right - size + 13, top), name)]
        right = right - size - _LEGEND_GAP
        room = room - size - _LEGEND_GAP
    return parts


def thinned(points: Sequence[Point], most: int) -> list[Point]:
    """At most about `most` of the points of a line: the lowest and the highest of each stretch, so that peaks stay."""
    if len(points) <= max(4, most):
        return list(points)
    stretch = math.ceil(len(points) / max(1, (most - 2) // 2))
    extremes: list[Point] = []
    for start in range(0, len(points), stretch):
        part = points[start : start + stretch]
        ends = {part.index(min(part, key=lambda point: point[1])), part.index(max(part, key=lambda point: point[1]))}
        extremes += [part[at] for at in sorted(ends)]
    return list(dict.fromkeys([points[0], *extremes, points[-1]]))
