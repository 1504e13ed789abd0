"""The parameters of a run as axes of a chart: their kinds, ends and scales; nested parameters by their paths."""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from msgspec import Struct

from sparktrain.config.distribution import Distribution
from sparktrain.runs import flat_params
from sparktrain.runs.results_json import json_value
from sparktrain.search.sampled_space import Leaf

MOST_AXES = 40
"""More parameters are not drawn."""
_MOST_CATEGORIES = 40
_MOST_TICKS = 12
_LOG_RATIO = 100.0
"""Positive values of no declared scale that span more than this factor get a logarithmic axis."""
_LOG_KINDS = ("loguniform", "lograndint")
_LISTED_KINDS = ("choice", "quniform", "randint", "lograndint")
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
    integer: bool = False
    """All its values are whole numbers, and so are its ticks."""
    ticks: tuple[float, ...] = ()
    """The values of a list of a few numbers, ascending: an axis has its ticks there. Else none."""
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
        low = self.low
        high = self.high
        at = float(value)  # type: ignore[arg-type] # is_number has looked
        if self.log:
            low = math.log(low)
            high = math.log(high)
            at = math.log(at)
        return 0.5 if high == low else (at - low) / (high - low)


def flat(params: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters by their paths, in JSON's types; a list is one value."""
    return {path: json_value(value) for path, value in flat_params.flat(params).items()}


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
    text = value if isinstance(value, str) else json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    return text[:_LONGEST_TEXT]


def axes_of(cases: Iterable[Mapping[str, Any]], leaves: Mapping[str, Leaf] | None = None) -> tuple[Axis, ...]:
    """The axes of the parameters that differ between cases, which are flat, in the order in which names first come.

    `leaves` are the lists and distributions of the space by their paths, as far as they are known: they decide on the
    scale and on the ticks of an axis. Its ends are those of the cases.
    """
    columns: dict[str, list[Any]] = {}
    for case in cases:
        for name, value in case.items():
            columns.setdefault(name, []).append(value)
    axes = (_axis(name, values, (leaves or {}).get(name)) for name, values in columns.items())
    return tuple(axis for axis in axes if axis is not None)[:MOST_AXES]


def _axis(name: str, values: Sequence[Any], leaf: Leaf | None) -> Axis | None:
    """None where all values are the same, or there are too many texts."""
    if all(is_number(value) for value in values):
        low = float(min(values))
        high = float(max(values))
        if low == high:
            return None
        integer = all(float(value).is_integer() for value in values) and max(-low, high) < 2**53
        ticks = _ticks(values, leaf)
        return Axis(name, "number", low, high, low > 0 and _is_log(leaf, ticks, high / low), integer, ticks)
    texts = set(map(as_text, values))
    listed = _listed(leaf) or sorted(texts)
    order = [text for text in dict.fromkeys(map(as_text, listed)) if text in texts]
    order += sorted(texts.difference(order))
    return Axis(name, "category", values=tuple(order)) if 1 < len(order) <= _MOST_CATEGORIES else None


def _is_log(leaf: Leaf | None, ticks: Sequence[float], ratio: float) -> bool:
    """As the distribution declares; a list such as 16, 32, 64 is, too; of no declaration by how far values span."""
    # The distribution first: log-distributed parameters had linear axes where the values of a few trials span less.
    if isinstance(leaf, Distribution) and leaf.kind != "choice":
        return leaf.kind in _LOG_KINDS
    if leaf is None or len(ticks) < 3 or ticks[0] <= 0:
        return ratio >= _LOG_RATIO
    return _unevenness([math.log(tick) for tick in ticks]) < _unevenness(ticks)


def _unevenness(ordered: Sequence[float]) -> float:
    """The largest step between neighbours divided by the smallest."""
    steps = [upper - lower for lower, upper in pairwise(ordered)]
    return max(steps) / min(steps)


def _listed(leaf: Leaf | None) -> tuple[Any, ...]:
    """The values of a list, or of a distribution that counts them; none where there are too many for ticks."""
    if isinstance(leaf, Distribution):
        is_listed = leaf.kind in _LISTED_KINDS and (leaf.size or 0) <= _MOST_CATEGORIES
        return leaf.values or () if is_listed else ()
    return leaf or ()


def _ticks(values: Sequence[float], leaf: Leaf | None) -> tuple[float, ...]:
    """The listed values between the ends of those that trials have; without a list, a few different whole ones."""
    low = min(values)
    high = max(values)
    listed = {float(value) for value in _listed(leaf) if is_number(value) and low <= value <= high}
    if leaf is None and all(float(value).is_integer() for value in values):
        listed = set(map(float, values))
    return tuple(sorted(listed)) if 1 < len(listed) <= _MOST_TICKS else ()
