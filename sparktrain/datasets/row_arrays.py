"""Arrays of rows, at addresses that frameworks take over, and what fills them."""

import math
import weakref
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

_BLOCK_BYTES = 2**17
"""So many bytes of rows are gathered at a time: NumPy's copy of them stays in the processor's cache."""
_ALIGNMENT = 64
"""TensorFlow takes memory over at such addresses, and copies it from others."""

_REUSED_BITS = range(17, 23)
"""Memory of up to 2**17 to 2**22 bytes is used again. Less of it costs little, and more would be kept for too long."""
_FREE: dict[int, deque[NDArray[np.uint8]]] = {bits: deque(maxlen=4) for bits in _REUSED_BITS}
"""Blocks of 2**bits bytes without a user: as many as chunks that a feed has at a time. Its operations are atomic."""

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


def empty(shape: tuple[int, ...], kind: Any) -> NDArray[Any]:
    """An array without values, at an address that TensorFlow takes over."""
    return np.empty(shape, kind) if kind == "object" else empties([(shape, kind)])[0]


def empties(specs: Sequence[tuple[tuple[int, ...], Any]]) -> list[NDArray[Any]]:
    """As `empty`, arrays of these shapes and types of numbers in one block of memory: the kernel maps it at once."""
    sizes = [math.prod(shape) * np.dtype(kind).itemsize for shape, kind in specs]
    starts = list(accumulate((size + -size % _ALIGNMENT for size in sizes), initial=0))
    memory = _memory(starts[-1] + _ALIGNMENT)
    first = -memory.__array_interface__["data"][0] % _ALIGNMENT
    return [
        memory[first + start : first + start + size].view(kind).reshape(shape)
        for (shape, kind), start, size in zip(specs, starts[:-1], sizes, strict=True)
    ]


def _memory(size: int) -> NDArray[np.uint8]:
    """Bytes without values. Their block is used again once nothing refers to them.

    glibc returns memory of this size to the kernel, which clears it for the next chunk: in a feed of wide rows that
    took a fifth of the processor time.
    """
    bits = max(size - 1, 0).bit_length()
    if bits not in _FREE:
        return np.empty(size, np.uint8)
    blocks = _FREE[bits]
    try:
        block = blocks.pop()
    except IndexError:
        block = np.empty(1 << bits, np.uint8)
    # Views of an array refer to its owner. Here that is no array: so they refer to these bytes, and keep the block.
    memory = np.frombuffer(block.data, np.uint8, size)
    weakref.finalize(memory, blocks.append, block).atexit = False
    return memory


def run_of(places: NDArray[np.int64]) -> slice | None:
    """The slice that has these places, where they ascend by one; None for others, and for none."""
    if not len(places) or places[-1] - places[0] + 1 != len(places) or (np.diff(places) != 1).any():
        return None
    return slice(int(places[0]), int(places[-1]) + 1)


class RowTarget:
    """Takes rows in any order into one array. One thread writes."""

    def __init__(self, array: NDArray[Any]) -> None:
        """`array` is what `empty` has made."""
        self.array = array
        self._cells = None if array.dtype.hasobject or not array.nbytes else _cells(array)

    def write(self, rows: NDArray[Any], places: NDArray[np.int64]) -> None:
        """Write each row to its place."""
        if self._cells is None or not rows.flags.c_contiguous:
            self.array[places] = rows
        else:
            self._cells.put(places, _cells(rows))


class ScatteredRows:
    """Rows of several arrays by one index, without a copy of the arrays. Any thread takes rows of them.

    The memory between the arrays belongs to others: an index has the address of a row, and nothing else is read.
    """

    def __init__(self, arrays: Sequence[NDArray[Any]], order: NDArray[np.int64]) -> None:
        """`order` has the numbers of rows of all arrays, one after the other. A row has at least one byte."""
        size = row_bytes(arrays[0])
        contiguous = [np.ascontiguousarray(array) for array in arrays]
        starts = [array.__array_interface__["data"][0] for array in contiguous]
        first = min(starts)
        last = max(start + array.nbytes for start, array in zip(starts, contiguous, strict=True))
        memory: Any = pa.foreign_buffer(first, last - first, base=contiguous)
        # A cell starts at every byte, because the distance of two arrays is no multiple of a row.
        self._cells: NDArray[np.void] = np.ndarray(
            (max(0, last - first - size + 1),), np.dtype((np.void, size)), memory, strides=(1,)
        )
        offsets = [start - first + size * np.arange(len(array)) for start, array in zip(starts, arrays, strict=True)]
        self._offsets = np.concatenate(offsets)[order]
        self._step = max(1, _BLOCK_BYTES // size)

    def take(self, places: slice | NDArray[np.int64], rows: NDArray[Any]) -> None:
        """Copy the rows at these places of the order into `rows`, which `empty` has made."""
        offsets = self._offsets[places]
        cells = _cells(rows)
        for start in range(0, len(offsets), self._step):
            block = slice(start, start + self._step)
            cells[block] = self._cells[offsets[block]]


def row_bytes(rows: NDArray[Any]) -> int:
    """The bytes of one row."""
    return rows.dtype.itemsize * math.prod(rows.shape[1:])


def _cells(rows: NDArray[Any]) -> NDArray[np.void]:
    """Rows as one item each, which is copied at once."""
    cells: NDArray[np.void] = rows.reshape(-1).view(np.dtype((np.void, row_bytes(rows))))
    return cells
