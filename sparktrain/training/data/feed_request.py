"""What a feed of a dataset's rows is made of: the arguments of `to_tf` and `to_torch`, for the frameworks."""

import math
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparktrain.datasets.columns import Column
from sparktrain.datasets.group_reader import GroupReader
from sparktrain.errors import SpecError
from sparktrain.training.data.assignment import BatchShare, Uneven
from sparktrain.training.data.batch_columns import Names, Selection
from sparktrain.training.data.ordered_reader import OrderedReader
from sparktrain.training.data.position import Position
from sparktrain.training.data.row_order import RowOrder, RowShare

CHUNK_ROWS = 4096
"""About so many rows travel from NumPy to a framework at a time: one by one takes a hundred times as long."""
CHUNK_BYTES = 2**22
"""A chunk has no more of wide rows, or one batch: a feed holds several chunks in memory."""


class RowChunks:
    """Reads the rows of a pass, several steps at a time. Any thread may call it."""

    def __init__(self, reader: GroupReader, selection: Selection, share: RowShare, seed: int | None) -> None:
        """`share` is that of a pass from its start; without a seed the rows keep the order of the dataset."""
        self.reader = reader
        self.selection = selection
        self.share = share
        self.seed = seed
        self.padded = share.share.uneven is Uneven.PAD
        """Whether the last array has a weight for each row."""
        row_bytes = sum(np.dtype(kind).itemsize * math.prod(shape) for kind, shape in selection.types)
        self.steps = max(1, min(CHUNK_ROWS, CHUNK_BYTES // max(1, row_bytes)) // share.batch)
        """Steps of a chunk."""
        self._pass: tuple[int, OrderedReader] | None = None
        self._turn = threading.Lock()

    def __call__(
        self, number: np.int64 | int, taken_rows: np.int64 | int, skipped: np.int64 | int, index: np.int64 | int
    ) -> list[NDArray[Any]]:
        """Chunk `index` of the rest of pass `number`, after `skipped` steps: the arrays of the selection, and weights.

        Blocks. Raises as `GroupReader.take`.
        """
        with self._turn:  # the iterator of an abandoned pass may still read ahead
            return self._read(int(number), int(taken_rows), int(skipped) + int(index) * self.steps)

    def _read(self, number: int, taken_rows: int, first: int) -> list[NDArray[Any]]:
        share = replace(self.share, taken_rows=taken_rows)
        last = min(share.steps, first + self.steps)
        positions = share.positions(first, last)
        arrays = self.selection.arrays(self._reader_of(number).read(positions))
        return [*arrays, self._weights(share, first, last, len(positions))] if self.padded else arrays

    def remaining_chunks(self, taken_rows: np.int64 | int, skipped: np.int64 | int) -> np.int64:
        """The number of chunks in the rest of a pass."""
        steps = replace(self.share, taken_rows=int(taken_rows)).steps - int(skipped)
        return np.int64(-(-steps // self.steps))

    def _weights(self, share: RowShare, first: int, last: int, rows: int) -> NDArray[np.float32]:
        """1 for rows, 0 for what fills up the last step."""
        weights = np.ones(rows, np.float32)
        offset = (last - 1 - first) * share.batch
        weights[offset + share.real(last - 1) :] = 0.0
        return weights

    def _reader_of(self, number: int) -> OrderedReader:
        if self._pass is None or self._pass[0] != number:
            order = RowOrder(self.reader.group_rows, self.reader.group_sizes, self.seed, number)
            self._pass = number, OrderedReader(self.reader, order, self.selection.single, self.selection.stack)
        return self._pass[1]


@dataclass(frozen=True, kw_only=True)
class FeedRequest:
    """The rows of one member, and which columns make up its batches."""

    name: str
    """Of the dataset."""
    schema: Sequence[Column]
    reader: GroupReader
    share: RowShare
    feature_columns: Names | None
    label_columns: Names | None
    weight_column: str | None
    stack: bool
    seed: int | None
    """None: the rows keep the order of the dataset."""
    position: Position
    class_weight: Mapping[int, float] | None = None

    def chunks(self, floats: str) -> RowChunks:
        """The rows in chunks of several batches; doubles become `floats`, NumPy's name of a type.

        Raises SpecError and DataError for columns that make up no batch.
        """
        selection = Selection.of(
            self.schema,
            features=self.feature_columns,
            labels=self.label_columns,
            weight=self.weight_column,
            stack=self.stack,
            subject=self.subject,
            floats=floats,
        )
        if self.share.share.uneven is Uneven.PAD and self.label_columns is None:
            raise SpecError("uneven='pad' gives rows a weight, and needs labels for that: name them in label_columns")
        return RowChunks(self.reader, selection, self.share, self.seed)

    def divided(self, share: BatchShare) -> "FeedRequest":
        """The same rows for another share of them."""
        return replace(self, share=replace(self.share, share=share))

    @property
    def subject(self) -> str:
        """The dataset in messages."""
        return f"data[{self.name!r}]"
