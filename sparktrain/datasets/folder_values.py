"""The types that Spark infers for the values of folders `name=value`. Pure."""

import re
from collections.abc import Iterable, Sequence
from datetime import date
from decimal import Decimal

from sparktrain.datasets.columns import Column, ColumnKind
from sparktrain.errors import DataError

OF_FOLDERS = "name of a folder"
_INTEGER = re.compile(r"[+-]?[0-9]+")
_DECIMAL = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,9})?")
_DOUBLE = re.compile(rf"(?:{_DECIMAL.pattern})[fFdD]?|[+-]?(?:NaN|Infinity)")
_TIME = re.compile(r"([0-9]{4}-[0-9]{2}-[0-9]{2})?(?: ?([0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]+)?)?))?")
_MOST_DIGITS = 38


def column_of(name: str, values: Iterable[str], subject: str) -> Column:
    """The column of these values: of whole numbers (int64), of numbers (float64), or of text.

    Raises DataError where Spark reads dates, times or decimals, which no tensor holds.
    """
    texts = tuple(dict.fromkeys(values))
    types = {_type(text) for text in texts}
    if types <= {"int", "long"}:
        return Column(name, ColumnKind.NUMBER, "int64", OF_FOLDERS)
    if types <= {"int", "double"}:
        return Column(name, ColumnKind.NUMBER, "float64", OF_FOLDERS)
    if types <= {"date", "timestamp"} or types == {"time"} or types <= {"int", "long", "decimal"}:
        kind = "decimals" if "decimal" in types else "dates and times"
        raise DataError(
            f"{subject}: column {name!r} comes from folders such as {name}={texts[0]}, which Spark reads as {kind}, "
            "and a tensor has none: leave it out with columns=, or name the folders by whole numbers"
        )
    return Column(name, ColumnKind.TEXT, "object", OF_FOLDERS)


def value_of(text: str, column: Column) -> int | float | str:
    """The value that the text of a folder stands for."""
    if column.kind is not ColumnKind.NUMBER:
        return text
    return int(text) if column.dtype == "int64" else float(text.strip().rstrip("fFdD"))


def differently_spelled(names: Sequence[str], in_files: Sequence[str]) -> tuple[str, str] | None:
    """A column of folders and one of files with names that are equal but for case, which Spark takes for one."""
    lower = {name.lower(): name for name in in_files if name not in names}
    return next(((name, lower[name.lower()]) for name in names if name.lower() in lower), None)


def _type(text: str) -> str:
    if _INTEGER.fullmatch(text) and -(2**63) <= int(text) < 2**63:
        return "int" if -(2**31) <= int(text) < 2**31 else "long"
    if _DECIMAL.fullmatch(text) and _has_no_fraction(text):
        return "decimal"
    if _DOUBLE.fullmatch(text.strip()):
        return "double"
    match = _TIME.fullmatch(text)
    if match is None or not text:
        return "string"
    if match[1] is None:
        return "time" if not text.startswith(" ") else "string"
    try:
        date.fromisoformat(match[1])
    except ValueError:
        return "string"
    return "date" if match[2] is None else "timestamp"


def _has_no_fraction(text: str) -> bool:
    """Whether the scale of the decimal is 0 or less, as Spark asks for, and its digits fit."""
    number = Decimal(text)
    exponent = number.as_tuple().exponent
    return isinstance(exponent, int) and exponent >= 0 and len(number.as_tuple().digits) + exponent <= _MOST_DIGITS
