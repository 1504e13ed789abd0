"""Checks names and values of parameters from Python, files and the command line.

A value travels to executors and into result files as plain data, never as a pickle, so it must be plain data.
"""

import difflib
import json
import keyword
import math
import re
import sys
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any

from sparktrain.base.boundary import is_interrupt
from sparktrain.errors import SpecError

CONTEXT_NAME = "ctx"
"""The parameter for the context of a training function; no space may contain it."""

MAX_VALUE_BYTES = 2**20
MAX_VALUE_ITEMS = 100_000
MAX_VALUE_DEPTH = 32

_INTEGER = re.compile(r"[-+]?(0|[1-9][0-9]*)")
_NUMBER = re.compile(r"[-+]?((0|[1-9][0-9]*)(\.[0-9]*)?|\.[0-9]+)([eE][-+]?[0-9]+)?")
_NOT_FINITE = re.compile(r"[-+]?\.?(nan|inf|infinity)", re.IGNORECASE)
_WORDS = {"": None, "null": None, "true": True, "false": False}


def shown(value: object, limit: int = 80) -> str:
    """`repr(value)` for a message: on one line, without addresses, cut at `limit` characters."""
    try:
        text = repr(value)
    except BaseException as error:  # the value is the user's, and so is its __repr__
        if is_interrupt(error):
            raise
        text = f"<{type_name(value)}>"
    text = re.sub(r"\s*\n\s*| at 0x[0-9a-f]+", lambda match: " " if "\n" in match[0] else "", text)
    return text if len(text) <= limit else text[: limit - 3] + "..."


def type_name(value: object) -> str:
    """The name of the type of `value` as one would import it."""
    kind = type(value)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def described(value: object) -> str:
    """`value` and its type, for a message about a wrong type."""
    return f"{shown(value)} ({type_name(value)})"


def did_you_mean(word: object, allowed: Iterable[str]) -> str:
    """`"; did you mean 'metric'?"`, or nothing when no allowed word is near."""
    near = difflib.get_close_matches(str(word), list(allowed), n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


def check_name(name: object, subject: str) -> str:
    """`name` when a function can have a parameter of that name. Raises SpecError."""
    if not isinstance(name, str):
        raise SpecError(f"{subject}: the parameter name {described(name)} is not text; write {str(name)!r}")
    if name == CONTEXT_NAME:
        raise SpecError(
            f"{subject}: 'ctx' is not a hyperparameter: sparktrain passes its context by that name; choose another name"
        )
    first, *further = name.split(".")  # a script may have options with dots
    if not first.isidentifier() or keyword.iskeyword(name) or not all(re.fullmatch(r"\w+", part) for part in further):
        fitting = re.sub(r"[^\w.]", "_", name).strip("_.").replace("..", ".") or "name"
        proposal = f"_{fitting}" if fitting[0].isdigit() else f"{fitting}_" if keyword.iskeyword(fitting) else fitting
        raise SpecError(
            f"{subject}: {shown(name)} cannot be the name of a parameter of a Python function; "
            f"use letters, digits and underscores, such as {proposal!r}"
        )
    return name


def value_at(params: Any, path: str) -> Any:
    """The value of the leaf of a space at `path`, such as "optimizer.lr": names may have dots too. Raises KeyError."""
    if isinstance(params, Mapping):
        if path in params:
            return params[path]
        for dot in re.finditer(r"\.", path):
            if path[: dot.start()] in params:
                return value_at(params[path[: dot.start()]], path[dot.end() :])
    raise KeyError(path)


def value_list(values: object, subject: str) -> tuple[Any, ...]:
    """The values that one parameter takes, as plain data. Raises SpecError for anything but a list of at least one."""
    if not isinstance(values, str) and getattr(values, "ndim", None) == 1 and hasattr(values, "tolist"):
        values = values.tolist()  # a NumPy array or a pandas Series
    if isinstance(values, str | bytes) or not isinstance(values, Sequence):
        raise SpecError(f"{subject} is {described(values)}, a list is expected; {_as_list(values)}")
    if not values:
        raise SpecError(f"{subject} is an empty list, at least one value is needed; add a value or remove the name")
    return tuple(plain(value, subject) for value in values)


def check_equal_lengths(columns: Mapping[str, Sequence[object]], subject: str) -> None:
    """Raises SpecError, naming each length, unless all lists are equally long."""
    if len({len(column) for column in columns.values()}) > 1:
        lengths = ", ".join(f"{name!r} has {len(column)}" for name, column in columns.items())
        raise SpecError(
            f"{subject}: lists are taken position by position and must be equally long: {lengths}; "
            "make them equal, or use a grid for every combination"
        )


def _as_list(values: object) -> str:
    if isinstance(values, Mapping):
        return "write its values as a list"
    if isinstance(values, Set):
        return "a set has no order: write sorted(...)"
    if getattr(values, "ndim", 0) > 1:
        return "write rows as lists: list(array.tolist())"
    if isinstance(values, Iterable) and not isinstance(values, str | bytes):
        return "write list(...)"
    return f"write [{shown(values)}]"


def plain(value: object, subject: str) -> Any:
    """`value` as JSON returns it: None, bool, int, float, str, and lists and dicts of these.

    Tuples become lists and NumPy scalars become Python's. Raises SpecError for every other type, for numbers that are
    not finite or need more than 64 bits, and for values that are too large for a message.
    """
    converter = _Converter(subject)
    result = converter.convert(value, depth=0)
    if isinstance(result, str | list | dict) and len(json.dumps(result)) > MAX_VALUE_BYTES:
        raise SpecError(
            f"{subject} holds a value of {len(json.dumps(result)):,} bytes as JSON, {MAX_VALUE_BYTES:,} is the limit; "
            "put data into a file that executors can read, and pass its path"
        )
    return result


class _Converter:
    """Converts to plain data; counts items, because a list that contains itself has no end."""

    def __init__(self, subject: str) -> None:
        self.subject = subject
        self.items = 0

    def convert(self, value: object, depth: int) -> Any:
        self.items += 1
        if depth > MAX_VALUE_DEPTH or self.items > MAX_VALUE_ITEMS:
            raise SpecError(
                f"{self.subject} holds a value with more than {MAX_VALUE_ITEMS:,} items or {MAX_VALUE_DEPTH} levels; "
                "put data into a file that executors can read, and pass its path"
            )
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, list | tuple):
            return [self.convert(item, depth + 1) for item in value]
        if isinstance(value, Mapping):
            return {self.key(key): self.convert(item, depth + 1) for key, item in value.items()}
        return self.scalar(value)

    def key(self, key: object) -> str:
        if not isinstance(key, str):
            raise SpecError(f"{self.subject} holds a dict with the key {shown(key)}; keys are text: write {str(key)!r}")
        return self.text(key)

    def scalar(self, value: object) -> Any:
        value = _python_scalar(value)
        if isinstance(value, bool):
            return value
        if isinstance(value, int):
            return self.integer(value)
        if isinstance(value, float):
            return self.number(value)
        if isinstance(value, str):
            return self.text(value)
        raise SpecError(
            f"{self.subject} holds {described(value)}; a value is None, a bool, a number, text, "
            f"or a list or dict of these; {_in_place_of(value)}"
        )

    def integer(self, value: int) -> int:
        # The integers of MessagePack, in which values travel.
        if not -(2**63) <= value < 2**64:
            raise SpecError(f"{self.subject} holds {shown(value)}, integers have at most 64 bits; pass it as text")
        return int(value)

    def number(self, value: float) -> float:
        if not math.isfinite(value):
            raise SpecError(
                f"{self.subject} holds {value}, numbers must be finite; pass None or a large number for 'no limit'"
            )
        return float(value)

    def text(self, value: str) -> str:
        try:
            value.encode()
        except UnicodeEncodeError:
            raise SpecError(
                f"{self.subject} holds {shown(value)}, which is not Unicode text; remove lone surrogates"
            ) from None
        # The text itself also of a subclass, such as a member of an enum, with a __str__ of its own.
        return str.__str__(value)


def native(value: object) -> Any:
    """A scalar of NumPy as Python's, and a one-dimensional array as a list; every other value as it is."""
    if _is_of_numpy(value, "ndarray") and value.ndim <= 1:  # type: ignore[attr-defined] # it is an array
        return value.tolist()  # type: ignore[attr-defined]
    return _python_scalar(value)


def _python_scalar(value: object) -> object:
    if _is_of_numpy(value, "generic") and not _is_of_numpy(value, "datetime64"):
        return value.item()  # type: ignore[attr-defined] # it is a scalar
    return value


def _is_of_numpy(value: object, kind: str) -> bool:
    """Whether `value` is of a class of NumPy, which is not imported for that: a program with such a value has done so.

    While another thread imports NumPy the module is there without its classes.
    """
    numpy_class = getattr(sys.modules.get("numpy"), kind, None)
    return numpy_class is not None and isinstance(value, numpy_class)


def _in_place_of(value: object) -> str:
    if isinstance(value, type) or callable(value):
        return "pass a name and look it up in the training function"
    if getattr(value, "shape", ()) != ():
        return "pass value.tolist(), or load the data in the training function"
    if isinstance(value, Set):
        return "write sorted(...)"
    if isinstance(value, bytes | bytearray):
        return "pass text: value.decode()"
    return "pass text or numbers that the training function builds it from"


def typed(text: str, subject: str) -> Any:
    """The value that `text` means in a CSV cell, on the command line and unquoted in YAML.

    Integers, decimal numbers (`1e-3` too), `true` and `false`, and `null` or nothing; all else is text, as are `yes`,
    `007` and `1_000`. Raises SpecError for `nan` and `inf`.
    """
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    if _NOT_FINITE.fullmatch(text):
        raise SpecError(f"{subject} holds {text}, numbers must be finite; write null or a large number for 'no limit'")
    if _INTEGER.fullmatch(text):
        return _integer(text, subject)
    if _NUMBER.fullmatch(text):
        return plain(float(text), subject)
    return text


def _integer(text: str, subject: str) -> int:
    if len(text) > 21:  # int() refuses thousands of digits with its own error
        raise SpecError(f"{subject} holds {shown(text)}, integers have at most 64 bits; pass it as text")
    return int(plain(int(text), subject))
