"""Formats values for people: on one line, and harmless to a terminal."""

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from rich.cells import cell_len, set_cell_size

ELLIPSIS = "…"
_NAME_LIMITS = (24, 16, 10, 6)
_VALUE_LIMIT = 24
_WHOLE_LIMIT = 1e15
"""Whole numbers from here on are not exact as floats, and are written with an exponent."""
_DAY_S = 86400
_UNITS = ("KiB", "MiB", "GiB", "TiB")


def plain(text: str) -> str:
    """`text` on one line, with whatever could move a cursor or hide something written as an escape.

    What comes from a training function, its parameters and its log goes through here before it is shown.
    """
    text = text.expandtabs(4)
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def first_line(error: BaseException) -> str:
    """The first line of the text of `error`, or its type where it has none."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip()


def shorten(text: str, width: int) -> str:
    """`text`, its end replaced when it takes more than `width` places of a terminal."""
    return text if cell_len(text) <= width else set_cell_size(text, max(0, width - 1)).rstrip() + ELLIPSIS


def number(value: float) -> str:
    """Format a metric with enough digits to distinguish trials, and the same width for similar values."""
    size = abs(value)
    if not math.isfinite(value):
        return str(value)
    if value and (size < 0.001 or size >= 1e6):
        return f"{value:.3e}"
    if size >= 1000 and float(value).is_integer():
        return _whole_number(value)
    return f"{value:.4f}" if size < 10 else f"{value:.2f}" if size < 1000 else f"{value:.1f}"


def number_format(column: Iterable[float]) -> Callable[[float], str]:
    """How the numbers of `column` are formatted: as integers where each is a whole number, else by `number`.

    NaN and infinity are formatted by their names either way, and do not make a column of whole numbers another one.
    """
    finite = [number for number in column if math.isfinite(number)]
    is_whole = bool(finite) and all(float(number).is_integer() and abs(number) < _WHOLE_LIMIT for number in finite)
    return _whole_number if is_whole else number


def _whole_number(value: float) -> str:
    return f"{value:.0f}" if math.isfinite(value) else str(value)


def value(of: Any) -> str:
    """Format the value of a parameter."""
    if isinstance(of, float):
        return f"{of:.6g}"
    if isinstance(of, list | tuple):
        return f"[{', '.join(map(value, of))}]"
    return plain(str(of))


def params(of: Mapping[str, Any], width: int | None = None) -> str:
    """Parameters as `lr=0.1 units=64`; within `width`, names and values are shortened first, then the end goes."""
    if width is None:
        return " ".join(f"{plain(name)}={value(item)}" for name, item in of.items())
    text = params(of)
    for limit in _NAME_LIMITS:
        if cell_len(text) <= width:
            return text
        pairs = [(shorten(plain(name), limit), shorten(value(item), _VALUE_LIMIT)) for name, item in of.items()]
        text = " ".join(f"{name}={item}" for name, item in pairs)
    return shorten(text, width)


def short_host(host: str) -> str:
    """The host without its domain, unless it is an address."""
    name = plain(host)
    return name if name.replace(".", "").isdigit() or ":" in name else name.partition(".")[0]


def clock(seconds: float) -> str:
    """Format a running time, to the second: `0:07`, `12:31`, `27:00:00`."""
    minutes, whole_seconds = divmod(int(max(0.0, seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{whole_seconds:02d}" if hours else f"{minutes}:{whole_seconds:02d}"


def duration(seconds: float) -> str:
    """Format an elapsed time: `0.4 s`, `42 s`, `12:31`."""
    if seconds < 59.5:
        return f"{seconds:.1f} s" if seconds < 9.95 else f"{seconds:.0f} s"
    return clock(seconds + 0.5)


def long_duration(seconds: float) -> str:
    """As `duration`, and from two days on `2.5 days`, as pages show it."""
    return duration(seconds) if seconds < 2 * _DAY_S - 0.5 else f"{seconds / _DAY_S:.1f} days"


def run_time(seconds: float, wall_seconds: float) -> str:
    """How long a run took: under its drivers, and in all where it had none for a time."""
    took = duration(seconds)
    return took if wall_seconds < seconds + 1.0 else f"{took} under its drivers, {duration(wall_seconds)} in all"


def count(of: int, noun: str) -> str:
    """`1 trial`, `2 trials`."""
    return f"{of} {noun}" if of == 1 else f"{of} {noun}s"


def ago(seconds: float) -> str:
    """Format how long ago something was: `3 s ago`, `12:31 ago`, `3 days ago`."""
    if seconds >= 2 * _DAY_S:
        return f"{seconds / _DAY_S:.0f} days ago"
    return f"{duration(round(max(0.0, seconds)))} ago" if seconds >= 9.5 else f"{max(0.0, seconds):.0f} s ago"


def size(of: int) -> str:
    """Bytes: `0 bytes`, `17.3 KiB`, `1.5 GiB`."""
    if of < 1024:
        return count(of, "byte")
    power = min(len(_UNITS), (of.bit_length() - 1) // 10)
    return f"{of / 1024**power:.1f} {_UNITS[power - 1]}"
