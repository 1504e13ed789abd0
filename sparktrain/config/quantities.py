"""Numbers and times as a user gives them, checked."""

import math
import operator
import re
from datetime import timedelta
from numbers import Real
from typing import SupportsIndex, cast

from sparktrain.config.param_values import described, native, shown
from sparktrain.errors import SpecError

Duration = float | timedelta | str
"""Seconds, or a text such as "90s", "5m", "1h30m", "2d"."""

_PARTS = re.compile(r"(?:[0-9]+(?:\.[0-9]+)?[smhd])+")
_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)([smhd])")
_PLAIN_SECONDS = re.compile(r"[0-9]+(?:\.[0-9]+)?")
_UNIT_S = {"s": 1, "m": 60, "h": 3600, "d": 86400}

MIB = 2**20
_MEMORY = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([a-z]+)", re.IGNORECASE)
_UNIT_BYTES = {"mib": MIB, "gib": 2**30, "mb": 10**6, "gb": 10**9}


def seconds(value: Duration | None, name: str) -> float | None:
    """Seconds in `value`; None stays None. Raises SpecError, with `name` as its subject, unless finite and above 0."""
    if value is None:
        return None
    if isinstance(value, timedelta):
        result = value.total_seconds()
    elif isinstance(value, str):
        result = _seconds_of_text(value, name)
    elif isinstance(value := native(value), Real) and not isinstance(value, bool):
        result = _as_float(value)
    else:
        raise SpecError(f"{name} is {described(value)}; pass seconds, a timedelta, or text such as '90s', '5m' or '2h'")
    if not math.isfinite(result) or result <= 0:
        raise SpecError(f"{name} ({shown(value)}) must be above 0 and finite; leave it out for its default")
    return result


def _as_float(value: Real) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf


def _seconds_of_text(text: str, name: str) -> float:
    if _PLAIN_SECONDS.fullmatch(text.strip()):
        return float(text)
    if not _PARTS.fullmatch(text.strip()):
        raise SpecError(
            f"{name} ({shown(text)}) is not a duration; write a number and s, m, h or d, such as '90s', '5m' or '1h30m'"
        )
    return sum(float(number) * _UNIT_S[unit] for number, unit in _PART.findall(text))


def count(value: object, subject: str, least: int) -> int:
    """`value` when it is an integer of at least `least`. Raises SpecError."""
    value = native(value)
    try:
        result = operator.index(cast(SupportsIndex, value))
    except TypeError:
        result = None
    if result is None or isinstance(value, bool):
        raise SpecError(f"{subject} is {described(value)}, a whole number is expected; pass an int")
    if result < least:
        raise SpecError(f"{subject} ({shown(result)}) must be at least {least}; pass {least} or more")
    return result


def memory(value: object, name: str) -> int:
    """Bytes in `value`: an integer, or text such as "8GiB". Raises SpecError about `name` for less than 1 MiB."""
    example = "write a number and MiB, GiB, MB or GB, such as '8GiB'"
    if isinstance(value, str):
        match = _MEMORY.fullmatch(value.strip())
        unit = _UNIT_BYTES.get(match[2].lower()) if match is not None else None
        if match is None or unit is None:
            raise SpecError(f"{name} ({shown(value)}) is not an amount of memory: {example}")
        result = int(float(match[1]) * unit)
    elif isinstance(value := native(value), int) and not isinstance(value, bool):
        result = value
    else:
        raise SpecError(f"{name} is {described(value)}, an amount of memory is expected: {example}")
    if result < MIB:
        raise SpecError(f"{name} ({shown(value)}) must be at least 1 MiB: {example}")
    return result
