"""Values that a training function returns beside its numbers, as JSON within bounds: the journal keeps them. Pure."""

import json
import math
from collections.abc import Mapping
from typing import Any

from sparktrain.training.agent_pipe import sendable

MAX_VALUES = 100
"""The most values that a trial keeps."""
MAX_NAME = 200
"""Characters of a name."""
MAX_TEXT = 2000
"""Characters of a text; a longer one is cut."""
MAX_ITEMS = 2000
"""The most items of a list or dict, with all that is nested in it; a larger one becomes its type and length."""
MAX_DEPTH = 8
"""How deep lists and dicts are nested."""
MAX_BYTES = 2**17
"""Bytes of all values together as JSON."""
_LARGEST = 2**63
_CUT = "..."


def bounded(values: Mapping[Any, Any]) -> tuple[dict[str, Any], int]:
    """`values` in JSON's own types, and how many of them were left out because they are too many or too large.

    None, booleans, numbers and texts stay, and so do lists, tuples and dicts of them. Of any other object the name of
    its type is kept: no method of the user's objects is called, and nothing is pickled.
    """
    kept_values: dict[str, Any] = {}
    size = 0
    for key, value in values.items():
        name = _name(key)
        plain = _Copy().of(value)
        size += len(json.dumps({name: plain}))
        if len(kept_values) == MAX_VALUES or size > MAX_BYTES:
            return kept_values, len(values) - len(kept_values)
        kept_values[name if name not in kept_values else f"{name} ({type(key).__name__})"] = plain
    return kept_values, 0


class _TooLargeError(Exception):
    pass


class _Copy:
    """Copies one value; ends after so many items, for lists may hold millions, each other, or themselves."""

    def __init__(self) -> None:
        self._remaining_items = MAX_ITEMS

    def of(self, value: Any) -> Any:
        """The copy; the type and length of a list or dict that is too large."""
        try:
            return self._json_value(value, MAX_DEPTH)
        except _TooLargeError:
            return f"{type(value).__name__} of {len(value):,}"

    def _json_value(self, value: Any, depth: int) -> Any:
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, str):
            return _text(value, MAX_TEXT)
        if isinstance(value, int):
            return int(value) if -_LARGEST <= value < _LARGEST else type(value).__name__
        if isinstance(value, float):
            return float(value) if math.isfinite(value) else None
        if isinstance(value, list | tuple | dict):
            self._remaining_items -= len(value)
            if self._remaining_items < 0 or not depth:
                raise _TooLargeError
            if isinstance(value, dict):
                return {_name(key): self._json_value(item, depth - 1) for key, item in value.items()}
            return [self._json_value(item, depth - 1) for item in value]
        return _numpy_scalar(value)


def _numpy_scalar(value: Any) -> Any:
    """A scalar of numpy in Python's type; of any other object the name of its type."""
    kind = type(value)
    if kind.__module__ != "numpy" or getattr(value, "ndim", None) != 0:
        return kind.__name__
    item = value.item()
    if isinstance(item, float) and not math.isfinite(item):
        return None
    return item if isinstance(item, bool | int | float) else kind.__name__


def _name(key: Any) -> str:
    if isinstance(key, str):
        return _text(key, MAX_NAME)
    plain = key is None or (isinstance(key, bool | int | float) and abs(key) < _LARGEST)
    return str(key) if plain else type(key).__name__


def _text(text: str, most: int) -> str:
    text = sendable(str(text[:most]))
    return text if len(text) < most else f"{text[: most - len(_CUT)]}{_CUT}"
