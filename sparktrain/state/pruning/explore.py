"""Explore of population based training (arXiv 1711.09846, section 4.1.2): parameters near those of another trial."""

import copy
import random
from collections.abc import Mapping, Sequence
from typing import Any

from sparktrain.config.distribution import Distribution, drawn

Leaf = Distribution | tuple[Any, ...]
"""What a value is chosen from: a distribution, or a list."""


def explored(
    params: Mapping[str, Any],
    leaves: Sequence[tuple[str, Leaf]],
    resample: float,
    factors: Sequence[float],
    source: random.Random,
) -> dict[str, Any]:
    """`params` with another value of each leaf; its path in nested dicts has dots.

    With probability `resample` a value is drawn from the leaf. Else a number is multiplied by one of `factors`, and
    stays within its range; where that changes nothing, it moves by the smallest step. A choice or a list moves to a
    neighbour.
    """
    # The donor's parameters may hold lists and dicts, which both trials would share.
    new_params = copy.deepcopy(dict(params))
    for path, leaf in leaves:
        holder, key = _place(new_params, path)
        if holder is None:
            continue
        if source.random() < resample:
            holder[key] = drawn(leaf, source)
        else:
            holder[key] = _perturbed(holder[key], leaf, source.choice(list(factors)), source)
    return new_params


def _place(params: dict[str, Any], path: str) -> tuple[dict[str, Any] | None, str]:
    """The dict that holds the value at `path`, and its key there; keys may have dots themselves."""
    if path in params:
        return params, path
    for key, value in params.items():
        if path.startswith(f"{key}.") and isinstance(value, dict):
            location = _place(value, path[len(key) + 1 :])
            if location[0] is not None:
                return location
    return None, path


def _perturbed(value: Any, leaf: Leaf, factor: float, source: random.Random) -> Any:
    if isinstance(leaf, tuple):
        return _neighbour(value, leaf, source)
    match leaf.kind:
        case "choice":
            return _neighbour(value, leaf.arguments, source)
        case "normal":
            return value * factor
        case "uniform" | "loguniform":
            return _within(value * factor, *leaf.arguments)
        case "quniform":
            low, _, step = leaf.arguments
            index = _moved(round((value - low) / step), round((value * factor - low) / step), factor)
            return leaf.at_step(int(_within(index, 0, leaf.steps)))
    return int(_within(_moved(value, round(value * factor), factor), *leaf.arguments))


def _moved(before: int, after: int, factor: float) -> int:
    """`after`, or the next whole number on the side of `factor` where rounding has left it at `before`."""
    return after if after != before else before + (1 if factor > 1 else -1)


def _neighbour(value: Any, values: Sequence[Any], source: random.Random) -> Any:
    places = [place for place, candidate in enumerate(values) if candidate == value and type(candidate) is type(value)]
    place = (places or [0])[0] + source.choice((-1, 1))
    return values[place if 0 <= place < len(values) else max(0, min(len(values) - 1, place))]


def _within(value: float, low: float, high: float) -> float:
    return min(high, max(low, value))
