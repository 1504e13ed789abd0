"""The hyperparameters of a run as columns, each with values of one kind. Pure."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from sparktrain.config.distribution import Distribution
from sparktrain.runs.flat_params import flat
from sparktrain.search.space_json import stored_leaves
from sparktrain.views.board.report_events import ColumnValue, HParamColumn


class HParamColumns:
    """All columns of a run. A column keeps its kind: TensorBoard cannot compare numbers with text."""

    def __init__(self) -> None:
        self._columns: dict[str, HParamColumn] = {}

    @property
    def all(self) -> tuple[HParamColumn, ...]:
        """The columns, in the order in which they were seen."""
        return tuple(self._columns.values())

    def see_space(self, document: Mapping[str, Any] | None) -> None:
        """Add columns for all parameters of a stored space, the conditional ones too."""
        if not document:
            return
        if document["kind"] == "cases":
            self.see(document["values"])
            return
        for name, leaf in stored_leaves(dict(document)).items():
            self._see(name, _values(leaf))

    def see(self, trials: Iterable[Mapping[str, Any]]) -> None:
        """Add columns for parameters of trials that have none yet."""
        values: dict[str, list[Any]] = {}
        for params in trials:
            for name, value in flat(params).items():
                values.setdefault(name, []).append(value)
        for name, column_values in values.items():
            self._see(name, column_values)

    def cells(self, params: Mapping[str, Any]) -> dict[str, ColumnValue]:
        """The values of a trial. A value that does not fit its column, such as None among numbers, has no cell."""
        row: dict[str, ColumnValue] = {}
        for name, value in flat(params).items():
            column = self._columns.get(name)
            if column is not None and column.kind is str:
                row[name] = _text(value)
            elif column is not None and _kind_of(value) is column.kind:
                row[name] = value if column.kind is bool else float(value)
        return row

    def _see(self, name: str, values: Sequence[Any]) -> None:
        filled_values = [value for value in values if value is not None]
        if name in self._columns or not filled_values:
            return
        kinds = {_kind_of(value) for value in filled_values}
        kind = kinds.pop() if len(kinds) == 1 else str
        listed = tuple(dict.fromkeys(map(_text, values))) if kind is str else ()
        self._columns[name] = HParamColumn(name, kind, listed)


def _values(leaf: Any) -> tuple[Any, ...]:
    """Values by which the kind of a leaf shows: the list itself, the options of a choice, or a number of a range."""
    if not isinstance(leaf, Distribution):
        return tuple(leaf)
    return leaf.arguments if leaf.kind == "choice" else (0.0,)


def _kind_of(value: Any) -> type[bool] | type[float] | type[str]:
    if isinstance(value, bool):
        return bool
    return float if isinstance(value, int | float) and not math.isnan(value) else str


def _text(value: Any) -> str:
    if value is None or isinstance(value, str):
        return str(value)
    return msgspec.json.encode(value, enc_hook=str).decode()
