"""The columns of a dataset, as members see them. Pure, and without Arrow: zygotes and messages know them too."""

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any

from msgspec import Struct

from sparktrain.config.param_values import did_you_mean
from sparktrain.errors import DataError

_SHOWN_PROBLEMS = 20


class ColumnKind(StrEnum):
    """What a column gives in a batch of n rows."""

    NUMBER = "number"
    """Numbers or booleans: shape (n,)."""
    ARRAY = "array"
    """Lists of numbers of one shape: shape (n, *shape)."""
    BINARY = "binary"
    """Bytes: uint8 of shape (n, length) where all rows are equally long, else strings of bytes."""
    TEXT = "text"
    """Strings of bytes in UTF-8: shape (n,)."""


class Column(Struct, frozen=True):
    """One column of a dataset, after its rule was applied."""

    name: str
    """Fields of structs have the names of all levels, with dots."""
    kind: ColumnKind
    dtype: str
    """NumPy's name for the type of the values; `object` where they are bytes."""
    source: str
    """The type in the source, for people."""
    shape: tuple[int, ...] | None = ()
    """Of one row. None: not known yet, or of bytes that differ in length."""

    @property
    def nested(self) -> bool:
        """Whether rows are lists of lists."""
        return self.source.startswith("list<list<")

    @property
    def strings(self) -> bool:
        """Whether rows are strings of bytes, which are Python objects."""
        return self.kind is ColumnKind.TEXT or (self.kind is ColumnKind.BINARY and self.shape is None)


def chosen(columns: Sequence[Column], names: Iterable[str], subject: str) -> tuple[Column, ...]:
    """Those of `columns` with these names, in the order of the names. Raises DataError for unknown ones."""
    columns_by_name = {column.name: column for column in columns}
    chosen_names = tuple(names)
    check_known(chosen_names, columns_by_name, subject)
    return tuple(columns_by_name[name] for name in chosen_names)


def check_known(names: Iterable[str], column_names: Iterable[str], subject: str) -> None:
    """Check that all names are among the known ones. Raises DataError with the nearest to each that is not."""
    columns = list(column_names)
    missing = [name for name in names if name not in columns]
    if missing:
        problems = [f"{name!r}{did_you_mean(name, columns)}" for name in missing]
        listed = ", ".join(map(repr, columns))
        raise DataError(f"{subject} has no column {' and no column '.join(problems)}; its columns are {listed}")


def check_pad(columns: Sequence[Column], pad: Iterable[str], subject: str) -> None:
    """Check that all names of `pad` are columns of lists of numbers. Raises DataError."""
    for column in chosen(columns, pad, f"pad of {subject}"):
        if column.kind is not ColumnKind.ARRAY:
            raise DataError(
                f"pad of {subject}: column {column.name!r} is {column.source}, and only lists are padded: "
                "leave it out of pad="
            )
        if column.nested:
            raise DataError(
                f"pad of {subject}: column {column.name!r} is {column.source}, and only lists of numbers are padded: "
                "make lists of lists equally long in Spark"
            )


def check_alike(schemas: Mapping[str, Sequence[Column]]) -> None:
    """Check that a column has the same type in all datasets that have it. Raises DataError with all differences."""
    originals: dict[str, tuple[str, Column]] = {}
    problems: list[str] = []
    for dataset, columns in schemas.items():
        for column in columns:
            first, original = originals.setdefault(column.name, (dataset, column))
            if (original.kind, original.dtype) != (column.kind, column.dtype):
                problems.append(
                    f"data[{first!r}] and data[{dataset!r}] differ in column {column.name!r}: {original.source} and "
                    f"{column.source}"
                )
    if problems:
        raise DataError(
            one_a_line("the datasets do not fit together", [f"{problem}; cast one of them" for problem in problems])
        )


def one_a_line(start: str, problems: Sequence[str]) -> str:
    """All problems at once, one a line."""
    lines = [f"    {problem}" for problem in problems[:_SHOWN_PROBLEMS]]
    if (excess := len(problems) - _SHOWN_PROBLEMS) > 0:
        lines.append(f"    ... and {excess} more")
    return "\n".join([f"{start}:", *lines])


def described(columns: Iterable[Column]) -> dict[str, Any]:
    """The columns for people and for comparisons: name and type of each."""
    return {column.name: column.source for column in columns}
