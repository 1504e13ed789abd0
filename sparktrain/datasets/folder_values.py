"""The types that Spark infers for the values of folders `name=value`, which it escapes as URLs are. Pure."""

import re
from collections.abc import Iterable, Sequence
from datetime import date
from decimal import Decimal
from typing import TYPE_CHECKING
from urllib.parse import unquote

from msgspec.structs import replace

from sparktrain.datasets.columns import Column, ColumnKind

if TYPE_CHECKING:
    import pyarrow as pa

OF_FOLDERS = "name of a folder"
_INTEGER = re.compile(r"[+-]?\d+")
_DECIMAL = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,9})?")
_DOUBLE = re.compile(rf"(?:{_DECIMAL.pattern})[fFdD]?|[+-]?(?:NaN|Infinity)")
_CLOCK = "(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]"
_TIME = re.compile(rf"{_CLOCK}(?:\.[0-9]{{1,6}})?")
_DATE = re.compile(rf"([0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}})( {_CLOCK}(?:\.[0-9])?)?")
_MOST_DIGITS = 38


def type_of(values: Iterable[str]) -> "pa.DataType":
    """The type of a column with these escaped values, as Arrow has that of Spark."""
    import pyarrow as pa  # a zygote, which reads manifests, has no use for it

    # The first one that has the types of all values is that of the column; it is text where none has.
    kinds = (
        ({"int"}, pa.int32()),
        ({"int", "long"}, pa.int64()),
        ({"int", "double"}, pa.float64()),
        ({"date"}, pa.date32()),
        ({"date", "timestamp"}, pa.timestamp("us", "UTC")),
        ({"time"}, pa.time64("ns")),
    )
    texts = dict.fromkeys(values)
    types = {_type(text) for text in texts}
    if "decimal" in types and types <= {"int", "long", "decimal"}:
        return pa.decimal128(max({"int": 10, "long": 20}.get(_type(text)) or _digits(text) for text in texts), 0)
    return next((kind for names, kind in kinds if types <= names), pa.string())


def value_of(text: str, column: Column) -> int | float | str:
    """The value that the escaped text of a folder stands for."""
    if column.kind is not ColumnKind.NUMBER:
        return unquote(text)
    return int(text) if column.dtype.startswith("int") else float(text.strip().rstrip("fFdD"))


def as_before(column: Column) -> Column:
    """The column as versions until 0.1 took it: a run that they have started has it so, and is resumed with it."""
    if column.source != OF_FOLDERS or column.kind is not ColumnKind.NUMBER:
        return column
    if column.dtype == "float64":
        return replace(column, kind=ColumnKind.TEXT, dtype="object")
    return replace(column, dtype="int64")


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
    text = unquote(text)  # Spark reads numbers alone as they are escaped
    if (match := _DATE.fullmatch(text)) is None:
        return "time" if _TIME.fullmatch(text) else "string"
    try:
        date.fromisoformat(match[1].replace("0000", "2000"))  # a leap year, too, which Python has
    except ValueError:
        return "string"
    return "date" if match[2] is None else "timestamp"


def _has_no_fraction(text: str) -> bool:
    """Whether the scale of the decimal is 0 or less, as Spark asks for, and its digits fit."""
    exponent = Decimal(text).as_tuple().exponent
    return isinstance(exponent, int) and exponent >= 0 and _digits(text) <= _MOST_DIGITS


def _digits(text: str) -> int:
    number = Decimal(text).as_tuple()
    return len(number.digits) + int(number.exponent)
