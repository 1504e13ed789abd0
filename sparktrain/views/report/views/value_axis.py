"""The axis of a metric: its ends, whether it is logarithmic, and how many values lie beyond it. Pure.

One trial that diverged must not flatten all others, and no value may vanish: an axis ends where most values do, and a
chart marks each value beyond it at its edge.
"""

import math
from bisect import bisect_right
from collections.abc import Iterable, Sequence

from msgspec import Struct

_REACH = 6.0
"""How far the axis reaches beyond the median, as a multiple of the distance from the best value to the median."""
_SHARES = (0.5, 0.75, 0.9)
_GAP = 1.0
_STRETCH = 2.0
"""A value beyond that is still shown where the gap to its neighbour is below `_GAP` lengths of the axis, up to
`_STRETCH` lengths in all."""
_MOST_SHOWN = 0.85
_MOST_STRETCH = 20.0
"""This part of the values is shown, where the axis gets no longer than that multiple for it."""
_WORTH = 2.0
"""Values are left outside only where the axis would be longer than this multiple with them."""
_MOST_WHOLE = 2.0**53
_LOG_RATIO = 100.0
"""Positive values that span more than this factor get a logarithmic axis."""
_LEAST = 4
"""Of fewer values, none is called far away."""


class ValueAxis(Struct, frozen=True, omit_defaults=True):
    """The axis of a metric."""

    low: float
    high: float
    log: bool = False
    integer: bool = False
    """All values are whole numbers, and so are its ticks."""
    below: int = 0
    """Values below `low`, which a chart marks at its edge."""
    above: int = 0
    """Values above `high`."""


def value_axis(values: Iterable[float | None], mode: str | None) -> ValueAxis | None:
    """The axis of these values, without what is missing or infinite; None where none is left.

    `mode` is `min` or `max`: the better end is always on the axis. Where it is None, both ends may be cut. The axis is
    logarithmic only where smaller values are not worse: an accuracy would lose its upper end.
    """
    ordered = sorted(float(value) for value in values if value is not None and math.isfinite(value))
    if not ordered:
        return None
    log = mode != "max" and _spans_powers(ordered)
    shown = _without_far(ordered, list(map(math.log, ordered)) if log else ordered, mode)
    if log and not _spans_powers(shown):  # what is left needs none
        log = False
        shown = _without_far(ordered, ordered, mode)
    return _axis(ordered, shown[0], shown[-1], log)


def lines_axis(lines: Iterable[Iterable[float | None]], mode: str | None) -> ValueAxis | None:
    """The axis of curves: a curve is far from the others by its worst value, for the first steps of all are bad."""
    finite = [[float(value) for value in line if value is not None and math.isfinite(value)] for line in lines]
    finite = [line for line in finite if line]
    if not finite:
        return None
    ordered = sorted(value for line in finite for value in line)
    highest = value_axis(map(max, finite), mode)
    lowest = value_axis(map(min, finite), mode)
    assert highest is not None
    assert lowest is not None
    low = lowest.low if lowest.below else ordered[0]
    high = highest.high if highest.above else ordered[-1]
    shown = [value for value in ordered if low <= value <= high]
    return _axis(ordered, shown[0], shown[-1], log=mode != "max" and _spans_powers(shown))


def _axis(ordered: Sequence[float], low: float, high: float, log: bool) -> ValueAxis:
    return ValueAxis(
        low,
        high,
        log,
        integer=max(abs(ordered[0]), abs(ordered[-1])) < _MOST_WHOLE and all(value.is_integer() for value in ordered),
        below=sum(value < low for value in ordered),
        above=sum(value > high for value in ordered),
    )


def _spans_powers(ordered: Sequence[float]) -> bool:
    """All values are positive, and eight of ten span two powers of ten: one terrible value makes no log axis."""
    return ordered[0] > 0 and _quantile(ordered, 0.9) / _LOG_RATIO >= _quantile(ordered, 0.1)


def _without_far(ordered: Sequence[float], scaled: Sequence[float], mode: str | None) -> Sequence[float]:
    """The values without those far away from most; all of them where the axis gains little by that."""
    stretch = _MOST_STRETCH if scaled is ordered else 1.0  # logarithms of losses have no long tail
    mirrored = [-value for value in reversed(scaled)]
    end = len(scaled) if mode == "max" else _end(scaled, mode, stretch)
    start = 0 if mode == "min" else len(scaled) - _end(mirrored, "min" if mode else None, stretch)
    # An infinite length is one that overflows: the values themselves are finite.
    inside = scaled[start:end]
    is_worth_it = inside and scaled[-1] / _WORTH - scaled[0] / _WORTH > inside[-1] - inside[0]
    return ordered[start:end] if is_worth_it else ordered


def _end(ordered: Sequence[float], mode: str | None, stretch: float) -> int:
    """How many values lie below the first gap at the upper end. Of few values, all do."""
    if len(ordered) < _LEAST:
        return len(ordered)
    for share in _SHARES:  # where half are the same, the median shows no distance
        middle = _quantile(ordered, share)
        # Where the better end is not known, the first value may be as far away as the last.
        first = ordered[0] if mode == "min" else _quantile(ordered, 1 - share)
        if middle > first:
            return _gap(ordered, first, middle + _REACH * (middle - first), stretch)
    return len(ordered)


def _gap(ordered: Sequence[float], first: float, reach: float, stretch: float) -> int:
    """How many values the axis from `first` to `reach` has, and those behind it that follow closely."""
    end = bisect_right(ordered, reach)
    limit = first + _STRETCH * (reach - first)
    while end < len(ordered):
        last = ordered[end - 1]
        value = ordered[end]
        if value > limit or value - last > _GAP * (last - first):
            break
        end += 1
    # Values of a skewed distribution are no accidents: most of them are shown, though the others move together.
    wide = stretch * (ordered[end - 1] - first)
    while end < _MOST_SHOWN * len(ordered) and ordered[end] - first <= wide:
        end += 1
    return end


def _quantile(ordered: Sequence[float], share: float) -> float:
    """The value below which that share lies, one of those in the list."""
    return ordered[math.floor(share * (len(ordered) - 1) + 1e-9)]
