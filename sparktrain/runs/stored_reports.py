"""The reports of a run that count, by trial: as a table of pandas with a column for each metric, or as objects."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from sparktrain.rundir.report_parts import INDEX, StepRow
from sparktrain.rundir.report_table import arranged, codes_of, column, report_starts, rows_of

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa
    from numpy.typing import NDArray


class StoredReports:
    """The reports that a driver has stored. Immutable, and pure."""

    def __init__(self, table: "pa.Table") -> None:
        """`table` has the rows of all parts, as `metric_log.read_parts` returns them."""
        self._all, self._superseded = arranged(table)
        self._current = self._all.filter(~self._superseded) if self._superseded.any() else self._all
        self._trials = column(self._current, "trial")

    @property
    def names(self) -> list[str]:
        """The names of all metrics, in the order of their first rows."""
        return _names(self._current)

    def of(self, trial: int) -> list[StepRow]:
        """The rows of a trial that count, in the order of their steps; of one step the lowest rank comes first."""
        return rows_of(self._slice(trial))

    def history(self, trial: int | None = None) -> "pd.DataFrame":
        """One row for each report that counts, of all trials or of one: `SweepResult.history` has the columns."""
        return as_frame(self._current if trial is None else self._slice(trial))

    def columns(self) -> "dict[str, NDArray[Any]]":
        """The columns of `history` of all trials, for code that needs no pandas: see `columns_of`."""
        return columns_of(self._current)

    def long_form(self) -> "pd.DataFrame":
        """One row for each metric of each report: `SweepResult.reports` has the columns."""
        frame: pd.DataFrame = self.long_table().to_pandas()
        return frame

    def long_table(self) -> "pa.Table":
        """The same as a table of Arrow."""
        import pyarrow as pa

        named = ~np.asarray(self._all["name"].is_null().to_numpy(zero_copy_only=False), np.bool_)
        table = self._all.append_column("superseded", pa.array(self._superseded)).filter(named)
        place = table.schema.get_field_index("name")
        return table.set_column(place, "name", table["name"].cast(pa.string()))

    def _slice(self, trial: int) -> "pa.Table":
        first, end = np.searchsorted(self._trials, [trial, trial + 1])
        return self._current.slice(int(first), int(end - first))


def as_frame(table: "pa.Table") -> "pd.DataFrame":
    """One row for each report, one column for each metric: NaN where a report has none of that name.

    The rows of a report must follow one another.
    """
    import pandas as pd

    columns: dict[str, Any] = columns_of(table)
    return pd.DataFrame({**columns, "time": pd.to_datetime(columns["time"], unit="us", utc=True)})


def columns_of(table: "pa.Table") -> "dict[str, NDArray[Any]]":
    """The columns of `as_frame`; `time` is in microseconds since 1970."""
    starts = report_starts(table)
    columns: dict[str, NDArray[Any]] = {name: column(table, name)[starts] for name in INDEX}
    reports = np.zeros(len(table), np.int64)
    reports[starts[1:]] = 1
    reports = np.cumsum(reports)
    codes, names = codes_of(table)
    values = np.asarray(table["value"].to_numpy(), np.float64)
    order = np.argsort(codes, kind="stable")
    present, firsts = np.unique(codes[order], return_index=True)
    groups = dict(zip(present.tolist(), np.split(order, firsts[1:]), strict=True)) if len(order) else {}
    groups.pop(-1, None)
    for rows in sorted(groups.values(), key=lambda rows: int(rows[0])):
        name = names[codes[rows[0]]]
        cells = np.full(len(starts), np.nan)
        cells[reports[rows]] = values[rows]
        columns[f"metrics.{name}" if name in INDEX else name] = cells
    return columns


def _names(table: "pa.Table") -> list[str]:
    codes, names = codes_of(table)
    present, firsts = np.unique(codes, return_index=True)
    ordered: Iterable[int] = (int(code) for _, code in sorted(zip(firsts, present, strict=True)) if code >= 0)
    return [names[code] for code in ordered]
