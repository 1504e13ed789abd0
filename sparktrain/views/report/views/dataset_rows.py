"""The datasets of a run as rows of a table: what each is, and its columns by their types."""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from sparktrain.base import formatting

_ELSEWHERE = ("kind", "columns", "rows")


class ColumnGroup(Struct, frozen=True):
    """The columns of one type, in their order."""

    type: str
    names: tuple[str, ...]


class DatasetRow(Struct, frozen=True, omit_defaults=True):
    """One dataset."""

    name: str
    kind: str
    """Such as `dataframe` or `parquet`."""
    columns: tuple[ColumnGroup, ...] = ()
    rows: int | None = None
    """None where the plan does not have their number: a DataFrame is counted when it is written."""
    facts: dict[str, str] = {}
    """What else identifies it, such as the digest of its files."""

    @property
    def summary(self) -> str:
        """The dataset on one line, without the names of columns."""
        parts = [self.kind]
        if self.rows is not None:
            parts.append(formatting.count(self.rows, "row"))
        parts.append(formatting.count(sum(len(group.names) for group in self.columns), "column"))
        return ", ".join([*parts, *(f"{name} {value}" for name, value in self.facts.items())])

    @property
    def columns_text(self) -> str:
        """The columns on one line."""
        return "; ".join(f"{group.type} {', '.join(group.names)}" for group in self.columns)


def dataset_rows(data: Mapping[str, Any]) -> tuple[DatasetRow, ...]:
    """The datasets of a plan, in the order of the call."""
    return tuple(_row(name, entry) for name, entry in data.items() if isinstance(entry, Mapping))


def _row(name: str, entry: Mapping[str, Any]) -> DatasetRow:
    # A line for each column filled the page, and the comparison of runs.
    groups: dict[str, list[str]] = {}
    for column, kind in entry.get("columns", {}).items():
        groups.setdefault(str(kind), []).append(column)
    rows = entry.get("rows")
    return DatasetRow(
        name=name,
        kind=str(entry.get("kind", "")),
        columns=tuple(ColumnGroup(kind, tuple(names)) for kind, names in groups.items()),
        rows=rows if isinstance(rows, int) else None,
        facts={key: _text(value) for key, value in entry.items() if key not in _ELSEWHERE and value},
    )


def _text(value: object) -> str:
    return ", ".join(f"{key} {part}" for key, part in value.items()) if isinstance(value, Mapping) else str(value)
