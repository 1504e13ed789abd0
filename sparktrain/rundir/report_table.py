"""Reports as one table: which rows count, in the order of their steps. Pure."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from sparktrain.rundir.report_parts import COLUMNS, StepRow

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

_LAST_STEP = np.iinfo(np.int64).max


def current(table: "pa.Table") -> "pa.Table":
    """The rows that count, sorted by trial, step and rank, each once.

    A generation that resumes, or starts again, reports steps that the one before it had reported too: the newer one
    wins. So a row counts when no later generation of its trial has a row of the same step or of an earlier one.
    """
    rows, superseded = arranged(table)
    return rows.filter(~superseded) if superseded.any() else rows


def arranged(table: "pa.Table") -> tuple["pa.Table", "NDArray[np.bool_]"]:
    """All rows, sorted by trial, step, rank and generation, each once, and which of them a newer generation replaces.

    A row that is there twice was written twice, because its store did not answer the first time. A member that has
    restarted alone may report a step again in its generation: its newest report of that step counts.
    """
    if len(table) == 0:
        return table, np.zeros(0, np.bool_)
    trial, generation, rank, step = (column(table, name) for name in COLUMNS[:4])
    order = _order(trial, step, rank, generation)
    if order is not None:
        table = table.take(order)
        trial, generation, rank, step = (array[order] for array in (trial, generation, rank, step))
    starts = _starts(trial, step, rank, generation)
    mask = _newest_cells_mask(table, starts)
    superseded = _superseded(trial, generation, step)
    return (table, superseded) if mask.all() else (table.filter(mask), superseded[mask])


def report_starts(table: "pa.Table") -> "NDArray[np.int64]":
    """The index of the first row of each report, of a table in which the rows of a report follow one another."""
    return np.flatnonzero(_starts(*(column(table, name) for name in COLUMNS[:5])))


def rows_of(table: "pa.Table") -> list[StepRow]:
    """The reports as objects, of a table in which the rows of a report follow one another: for few of them."""
    trial, generation, rank, step, time = (column(table, name) for name in COLUMNS[:5])
    names = table["name"].to_pylist()
    values = table["value"].to_pylist()
    starts = report_starts(table).tolist()
    rows = []
    for first, end in zip(starts, [*starts, len(table)][1:], strict=True):
        for metrics in _reports(names[first:end], values[first:end]):
            of_trial, of_generation, of_rank, at = (int(array[first]) for array in (trial, generation, rank, step))
            rows.append(StepRow(of_trial, of_generation, of_rank, at, int(time[first]) / 1e6, metrics))
    return rows


def _reports(names: Sequence[str | None], values: Sequence[float]) -> list[dict[str, float | str]]:
    """The metrics of a report, or of each of its copies."""
    reports: list[dict[str, float | str]] = [{}]
    for name, value in zip(names, values, strict=True):
        if name is None or name in reports[-1]:
            reports.append({})
        if name is not None:
            reports[-1][name] = value
    return reports if names[0] is not None else reports[1:]


def column(table: "pa.Table", name: str) -> "NDArray[np.int64]":
    """A column of integers, or the times in microseconds since 1970."""
    import pyarrow as pa

    cells = table[name].cast(pa.int64()) if name == "time" else table[name]
    return np.asarray(cells.to_numpy(), np.int64)


def codes_of(table: "pa.Table") -> tuple["NDArray[np.int64]", list[str]]:
    """The name of each row as an index into the names, -1 for none."""
    import pyarrow as pa

    # Each part has a dictionary of its own: the same code means another name in another part.
    names = table["name"].unify_dictionaries().combine_chunks()
    if isinstance(names, pa.ChunkedArray):
        names = names.chunk(0) if names.num_chunks else pa.array([], pa.string()).dictionary_encode()
    return np.asarray(names.indices.fill_null(-1), np.int64), names.dictionary.to_pylist()


def _order(*keys: "NDArray[np.int64]") -> "NDArray[np.int64] | None":
    """The stable order by these keys, the first one first; None for rows that have it."""
    varying = [key for key in keys if (key != key[0]).any()]
    return np.lexsort(varying[::-1]) if varying else None


def _starts(*keys: "NDArray[np.int64]") -> "NDArray[np.bool_]":
    """Whether a row differs from the one before it in any key."""
    starts = np.zeros(len(keys[0]), np.bool_)
    starts[:1] = True
    for key in keys:
        starts[1:] |= key[1:] != key[:-1]
    return starts


def _newest_cells_mask(table: "pa.Table", starts: "NDArray[np.bool_]") -> "NDArray[np.bool_]":
    """Which rows to keep, of those of a step that follow one another: its newest report, and each metric once."""
    time = column(table, "time")
    steps = np.cumsum(starts) - 1
    ends = np.append(np.flatnonzero(starts)[1:], len(starts)) - 1
    codes, names = codes_of(table)
    newest = np.flatnonzero(time == time[ends][steps])
    cells = steps[newest] * (len(names) + 1) + codes[newest] + 1
    mask = np.zeros(len(starts), np.bool_)
    mask[newest[np.unique(cells, return_index=True)[1]]] = True
    return mask


def _superseded(
    trial: "NDArray[np.int64]", generation: "NDArray[np.int64]", step: "NDArray[np.int64]"
) -> "NDArray[np.bool_]":
    """Which rows, sorted by trial and step, a later generation of their trial replaces."""
    mask = np.zeros(len(trial), np.bool_)
    if generation.min() == generation.max():
        return mask
    width = int(generation.max()) + 1
    pairs, first, place = np.unique(trial * width + generation, return_index=True, return_inverse=True)
    limits = np.full(len(pairs), _LAST_STEP)
    limited = np.zeros(len(pairs), np.bool_)
    starts = step[first]
    for index in range(len(pairs) - 2, -1, -1):
        if pairs[index] // width == pairs[index + 1] // width:
            limited[index] = True
            limits[index] = min(limits[index + 1], starts[index + 1])
    return limited[place] & (step >= limits[place])
