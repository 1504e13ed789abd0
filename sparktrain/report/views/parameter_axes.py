"""The parameters of a run as axes of a chart: their kinds, ends and scales; nested parameters by their paths."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from sparktrain.runs import hparam_columns
from sparktrain.runs.results_json import json_value

MOST_AXES = 40
"""More parameters are not drawn."""
_MOST_CATEGORIES = 40
_LOG_RATIO = 100.0
"""Positive values that span more than this factor get a logarithmic axis."""
_LONGEST_TEXT = 200


class Axis(Struct, frozen=True, omit_defaults=True):
    """One parameter."""

    name: str
    """Its name; of a nested one its path, such as `optimizer.lr`."""
    kind: str
    """`number` or `category`."""
    low: float | None = None
    high: float | None = None
    log: bool = False
    values: tuple[str, ...] = ()
    """The values of a category, as text."""

    def place(self, value: object) -> float | None:
        """Where a value is on the axis, from 0 to 1; None for one that it does not have."""
        if self.kind == "category":
            text = as_text(value)
            last = max(1, len(self.values) - 1)
            return self.values.index(text) / last if text in self.values else None
        if not is_number(value) or self.low is None or self.high is None:
            return None
        low, high, at = self.low, self.high, float(value)  # type: ignore[arg-type] # is_number has looked
        if self.log:
            low, high, at = math.log(low), math.log(high), math.log(at)
        return 0.5 if high == low else (at - low) / (high - low)


class ParallelView(Struct, frozen=True, omit_defaults=True):
    """Parallel coordinates: the values are those of the rows of trials."""

    axes: tuple[Axis, ...]
    trials: tuple[int, ...]
    """The trials that are drawn, the worst first: the best lies on top."""
    left_out: int = 0
    """Trials with a result that are not drawn."""


def flat(params: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters by their paths, in JSON's types; a list is one value."""
    return {path: json_value(value) for path, value in hparam_columns.flat(params).items()}


def is_number(value: object) -> bool:
    """Whether it is a finite number; a bool is none."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    try:
        return math.isfinite(float(value))
    except OverflowError:
        return False


def as_text(value: object) -> str:
    """The text of a category, as the page makes it of the same value."""
    text = value if isinstance(value, str) else _json_text(value)
    return text[:_LONGEST_TEXT]


def _json_text(value: object) -> str:
    import json

    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def axes_of(cases: Iterable[Mapping[str, Any]]) -> tuple[Axis, ...]:
    """The axes of the parameters that differ between cases, which are flat, in the order in which names first come."""
    columns: dict[str, list[Any]] = {}
    for case in cases:
        for name, value in case.items():
            columns.setdefault(name, []).append(value)
    found = (_axis(name, values) for name, values in columns.items())
    return tuple(axis for axis in found if axis is not None)[:MOST_AXES]


def _axis(name: str, values: Sequence[Any]) -> Axis | None:
    """None where all values are the same, or there are too many texts."""
    if all(is_number(value) for value in values):
        low, high = float(min(values)), float(max(values))
        if low == high:
            return None
        return Axis(name, "number", low, high, log=low > 0 and high / low >= _LOG_RATIO)
    texts = list(dict.fromkeys(as_text(value) for value in values))
    return Axis(name, "category", values=tuple(sorted(texts))) if 1 < len(texts) <= _MOST_CATEGORIES else None


def parallel_view(axes: tuple[Axis, ...], ranked: Sequence[int], most: int = 600) -> ParallelView:
    """Of `ranked` trials, the best first: the best half of `most`, and an even sample of the others."""
    shown = list(ranked)
    if len(shown) > most:
        best, rest = shown[: most // 2], shown[most // 2 :]
        stride = len(rest) / (most - most // 2)
        shown = best + [rest[int(place * stride)] for place in range(most - most // 2)]
    return ParallelView(axes, tuple(reversed(shown)), len(ranked) - len(shown))
