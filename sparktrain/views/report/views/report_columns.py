"""The reports of a run as columns of NumPy: a million of them in some tenths of a second, and in little memory."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from sparktrain.base.ids import CHIEF
from sparktrain.rundir.report_table import codes_of, column

if TYPE_CHECKING:
    import pyarrow as pa

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]


def _no_integers() -> Integers:
    return np.zeros(0, np.int64)


def _no_floats() -> Floats:
    return np.zeros(0, np.float64)


@dataclass(frozen=True)
class ReportColumns:
    """The reports of chiefs that count, by trial and step. All columns have the same length."""

    trial: Integers = field(default_factory=_no_integers)
    step: Integers = field(default_factory=_no_integers)
    metrics: dict[str, Floats] = field(default_factory=dict)
    """A column for each metric: NaN where a report has none of that name."""
    at: Floats = field(default_factory=_no_floats)
    """When, in seconds since 1970; 0 where that is not stored."""

    @classmethod
    def of(cls, table: "pa.Table | None") -> "ReportColumns":
        """The chiefs' rows of a table of the rows that count, sorted as `read_table` does: each step once."""
        if table is None or not len(table):
            return cls()
        chief = column(table, "rank") == CHIEF
        trial, step, time = (column(table, name)[chief] for name in ("trial", "step", "time"))
        codes, names = codes_of(table)
        codes = codes[chief]
        value = np.asarray(table["value"].to_numpy(), np.float64)[chief]
        first = np.ones(trial.size, np.bool_)
        first[1:] = (trial[1:] != trial[:-1]) | (step[1:] != step[:-1])
        report = np.cumsum(first) - 1
        metrics = {}
        for code in np.unique(codes[codes >= 0]).tolist():
            mask = codes == code
            metrics[names[code]] = np.full(int(first.sum()), np.nan)
            metrics[names[code]][report[mask]] = value[mask]
        return cls(trial[first], step[first], metrics, time[first] / 1e6)

    def of_trial(self, trial: int) -> slice:
        """Where the rows of a trial are."""
        first, last = np.searchsorted(self.trial, [trial, trial + 1])
        return slice(int(first), int(last))
