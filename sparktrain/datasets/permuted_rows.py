"""Rows of several groups in an order that is given. Only what is small is moved to that order in memory."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparktrain.datasets.row_arrays import Arrays, ScatteredRows, Stack, empties, row_bytes

NARROW_BYTES = 64
"""Up to so many bytes in a row, a column is permuted as a whole: its rows are in the processor's cache meanwhile."""


class PermutedRows:
    """The columns of several groups in one order. Any thread takes rows of them.

    Narrow columns are in this order in memory. Rows of wide ones stay in the memory of their groups, and are gathered
    from there when they are taken.
    """

    def __init__(
        self, parts: Sequence[Arrays], order: NDArray[np.int64], names: Sequence[str], stack: Stack | None
    ) -> None:
        """`parts` has the columns of each group, `order` numbers of rows of all groups, one group after the other."""
        self._names = names
        self._stack = stack
        columns = {name: [part[name] for part in parts] for name in parts[0]}
        narrow = {name: arrays for name, arrays in columns.items() if row_bytes(arrays[0]) <= NARROW_BYTES}
        self._narrow = _permuted(narrow, order)
        self._wide = {
            name: ScatteredRows(arrays, order) for name, arrays in columns.items() if name not in self._narrow
        }
        self._specs = [(columns[name][0].shape[1:], columns[name][0].dtype) for name in names]

    def take(self, places: slice | NDArray[np.int64]) -> Arrays:
        """Copies of the rows at these places of the order, by column, and the stack by `Stack.KEY`."""
        length = places.stop - places.start if isinstance(places, slice) else len(places)
        arrays = dict(zip(self._names, empties([((length, *shape), kind) for shape, kind in self._specs]), strict=True))
        for name, rows in arrays.items():
            if name in self._wide:
                self._wide[name].take(places, rows)
            else:
                _copy(self._narrow[name], places, rows)
        if self._stack is not None:
            arrays[Stack.KEY] = self._stack.of({name: self._narrow[name][places] for name in self._stack.names})
        return arrays


def _permuted(columns: dict[str, list[NDArray[Any]]], order: NDArray[np.int64]) -> Arrays:
    """Each column in this order. They share a block of memory, and use another one in turn for their own order."""
    shapes = [(len(order), *arrays[0].shape[1:]) for arrays in columns.values()]
    types = [arrays[0].dtype for arrays in columns.values()]
    permuted = dict(zip(columns, empties(list(zip(shapes, types, strict=True))), strict=True))
    block = np.empty(max((rows.nbytes for rows in permuted.values()), default=0), np.uint8)
    for name, rows in permuted.items():
        column = block[: rows.nbytes].view(rows.dtype).reshape(rows.shape)
        np.concatenate(columns[name], out=column)
        _copy(column, order, rows)
    return permuted


def _copy(column: NDArray[Any], places: slice | NDArray[np.int64], rows: NDArray[Any]) -> None:
    if isinstance(places, slice):
        np.copyto(rows, column[places])
    else:
        column.take(places, axis=0, out=rows, mode="clip")  # all are valid; else NumPy fills a copy of `rows`
