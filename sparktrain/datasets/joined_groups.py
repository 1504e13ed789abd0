"""Columns of several groups in memory. Numbers of one type are side by side, because a row of them is read at once."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from sparktrain.datasets.columns import Column, ColumnKind

_BLOCK_ROWS = 2048
"""So many rows are turned from columns into rows at a time: they stay in the processor's cache."""
_ALIGNMENT = 64
"""TensorFlow takes memory over at such addresses, and copies it from others."""

Arrays = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class Stack:
    """Columns of numbers that become one matrix, a column each."""

    names: tuple[str, ...]
    dtype: str

    KEY: ClassVar[str] = ""
    """The place of the matrix among columns by name: no column has it."""

    def of(self, arrays: Arrays) -> NDArray[Any]:
        """The matrix of columns of equal length."""
        matrix = empty((len(arrays[self.names[0]]), len(self.names)), self.dtype)
        np.stack([arrays[name] for name in self.names], axis=1, out=matrix, casting="unsafe")
        return matrix


class JoinedGroups:
    """Columns of several groups, and their stack. Any thread takes rows of them."""

    def __init__(
        self,
        groups: Sequence[int],
        starts: NDArray[np.int64],
        parts: Sequence[Arrays],
        columns: Sequence[Column],
        stack: Stack | None,
    ) -> None:
        """`groups` ascend, `starts` has the first row of each group of the dataset, and `parts` the columns of each."""
        self._first = starts[np.asarray(groups)]
        ends = np.cumsum([starts[group + 1] - starts[group] for group in groups])
        self._moved = np.concatenate([[0], ends[:-1]]) - self._first
        rows = int(ends[-1])
        alike: dict[str, list[str]] = {}
        for column in columns:
            alike.setdefault(column.dtype if column.kind is ColumnKind.NUMBER else column.name, []).append(column.name)
        single = [names[0] for names in alike.values() if len(names) == 1]
        several = [(kind, names) for kind, names in alike.items() if len(names) > 1]
        self._arrays = {name: np.concatenate([part[name] for part in parts]) for name in single}
        self._matrices = [(names, _matrix(names, kind, parts, rows)) for kind, names in several]
        self._stack = None if stack is None else _matrix(stack.names, stack.dtype, parts, rows)

    def take(self, rows: NDArray[np.int64]) -> Arrays:
        """The rows with these numbers of the dataset, by column, and the stack by `Stack.KEY`."""
        places = rows + self._moved[np.searchsorted(self._first, rows, side="right") - 1]
        arrays = {name: _picked(array, places) for name, array in self._arrays.items()}
        for names, matrix in self._matrices:
            turned = empty((len(names), len(rows)), matrix.dtype)
            np.copyto(turned, matrix.take(places, axis=0).T)
            arrays |= zip(names, turned, strict=True)
        if self._stack is not None:
            arrays[Stack.KEY] = _picked(self._stack, places)
        return arrays


def empty(shape: tuple[int, ...], kind: Any) -> NDArray[Any]:
    """An array without values, at an address that TensorFlow takes over."""
    if kind == "object":
        return np.empty(shape, kind)
    size = math.prod(shape) * np.dtype(kind).itemsize
    memory = np.empty(size + _ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % _ALIGNMENT
    array: NDArray[Any] = memory[start : start + size].view(kind).reshape(shape)
    return array


class RowTarget:
    """Takes rows in any order into one array. One thread writes."""

    def __init__(self, array: NDArray[Any]) -> None:
        """`array` is what `empty` has made."""
        self.array = array
        size = array[:1].nbytes
        self._cell: np.dtype[np.void] | None = None
        """A row as one item, which is copied at once."""
        if not array.dtype.hasobject and size:
            self._cell = np.dtype((np.void, size))
            self._cells = array.reshape(-1).view(self._cell)

    def write(self, rows: NDArray[Any], places: NDArray[np.int64]) -> None:
        """Write each row to its place."""
        if self._cell is None or not rows.flags.c_contiguous:
            self.array[places] = rows
        else:
            self._cells.put(places, rows.reshape(-1).view(self._cell))


def _picked(rows: NDArray[Any], places: NDArray[np.int64]) -> NDArray[Any]:
    picked_rows = empty((len(places), *rows.shape[1:]), rows.dtype)
    rows.take(places, axis=0, out=picked_rows, mode="clip")  # all are valid; else NumPy fills a copy of `picked_rows`
    return picked_rows


def _matrix(names: Sequence[str], kind: str, parts: Sequence[Arrays], rows: int) -> NDArray[Any]:
    """The columns `names` side by side."""
    matrix = np.empty((rows, len(names)), kind)
    at = 0
    for part in parts:
        length = len(part[names[0]])
        for start in range(0, length, _BLOCK_ROWS):
            block = matrix[at + start : at + min(length, start + _BLOCK_ROWS)]
            for index, name in enumerate(names):
                block[:, index] = part[name][start : start + _BLOCK_ROWS]
        at += length
    return matrix
