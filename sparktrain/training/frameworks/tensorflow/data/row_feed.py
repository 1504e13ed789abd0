"""The TensorFlow side of a dataset's rows: chunks of several batches come from NumPy, and are cut in TensorFlow."""

import threading
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from sparktrain.config.param_values import described
from sparktrain.datasets.columns import Column, ColumnKind, chosen
from sparktrain.datasets.group_reader import GroupReader, array_specs
from sparktrain.datasets.joined_groups import Stack
from sparktrain.errors import DataError, SpecError
from sparktrain.training.data.assignment import Uneven
from sparktrain.training.data.ordered_reader import OrderedReader
from sparktrain.training.data.position import Position
from sparktrain.training.data.row_cursor import RowCursor
from sparktrain.training.data.row_order import RowOrder, RowShare
from sparktrain.training.frameworks.tensorflow.data import class_weights, pipeline

CHUNK_ROWS = 4096
"""About so many rows travel from NumPy to TensorFlow at a time: one by one takes a hundred times as long."""
CHUNKS_AHEAD = 2

Names = str | Sequence[str]


@dataclass(frozen=True)
class Selection:
    """Which columns make up the parts of a batch."""

    features: Names
    labels: Names | None
    weight: str | None
    stack: Stack | None
    """The features, where they become one matrix."""
    names: tuple[str, ...]
    """All columns, each once."""
    types: tuple[tuple[str, tuple[int, ...]], ...]
    """The type and the shape of a row of each array that travels: see `arrays`."""

    @classmethod
    def of(
        cls,
        columns: Sequence[Column],
        features: Names | None,
        labels: Names | None,
        weight: str | None,
        stack: bool,
        subject: str,
    ) -> "Selection":
        """The selection that the arguments of `to_tf` stand for. Raises DataError, SpecError."""
        _check_names(features, labels, weight, subject)
        target_names = {*_listed(labels), *_listed(weight)}
        feature_names = (
            tuple(column.name for column in columns if column.name not in target_names)
            if features is None
            else features
        )
        parts = [*_listed(feature_names), *_listed(labels), *_listed(weight)]
        if not _listed(feature_names):
            raise SpecError(f"{subject} has no columns left for features: name them in feature_columns")
        picked = chosen(columns, dict.fromkeys(parts), subject)
        if weight is not None:
            _check_weight(chosen(columns, [weight], subject)[0], subject)
        if stack:
            _check_stackable(picked[: len(_listed(feature_names))], subject)
        matrix = Stack(tuple(_listed(feature_names)), str(keras.backend.floatx())) if stack else None
        selection = cls(feature_names, labels, weight, matrix, tuple(column.name for column in picked), ())
        specs = array_specs(columns, selection.names)
        types = [(_type(specs[name][0]), specs[name][1]) for name in selection.single]
        stacked = [(matrix.dtype, (len(matrix.names),))] if matrix else []
        return replace(selection, types=(*stacked, *types))

    def arrays(self, columns: Mapping[str, NDArray[Any]]) -> list[NDArray[Any]]:
        """What travels to TensorFlow, of the columns by name: the stack, and each other column."""
        arrays = [columns[name] for name in ((Stack.KEY, *self.single) if self.stack else self.single)]
        return [
            np.ascontiguousarray(array.astype(kind, copy=False))
            for array, (kind, _) in zip(arrays, self.types, strict=True)
        ]

    def batch(self, tensors: Sequence[Any]) -> Any:
        """`(x, y, w)` as far as there are any, of the tensors of `arrays`; `x` alone without labels and weights."""
        single = dict(zip(self.single, tensors[1:] if self.stack else tensors, strict=True))
        x = tensors[0] if self.stack else _picked(self.features, single)
        if self.labels is None and self.weight is None:
            return x
        y = None if self.labels is None else _picked(self.labels, single)
        return (x, y) if self.weight is None else (x, y, single[self.weight])

    @property
    def single(self) -> tuple[str, ...]:
        """The columns that travel as they are."""
        target_names = dict.fromkeys([*_listed(self.labels), *_listed(self.weight)])
        return tuple(target_names) if self.stack else self.names


class _Chunks:
    """Reads the rows of a pass, several steps at a time. Any of TensorFlow's threads may call it."""

    def __init__(self, reader: GroupReader, selection: Selection, share: RowShare, seed: int | None) -> None:
        self.reader = reader
        self.selection = selection
        self.share = share
        self.seed = seed
        self.padded = share.share.uneven is Uneven.PAD
        """Whether the last array has a weight for each row."""
        self.steps = max(1, CHUNK_ROWS // share.batch)
        """Steps of a chunk."""
        self._pass: tuple[int, OrderedReader] | None = None
        self._turn = threading.Lock()

    def __call__(
        self, number: np.int64, taken_rows: np.int64, skipped: np.int64, index: np.int64
    ) -> list[NDArray[Any]]:
        with self._turn:  # the iterator of an abandoned pass may still read ahead
            return self._read(number, taken_rows, skipped, index)

    def _read(self, number: np.int64, taken_rows: np.int64, skipped: np.int64, index: np.int64) -> list[NDArray[Any]]:
        share = replace(self.share, taken_rows=int(taken_rows))
        first = int(skipped) + int(index) * self.steps
        last = min(share.steps, first + self.steps)
        positions = share.positions(first, last)
        arrays = self.selection.arrays(self._reader_of(int(number)).read(positions))
        return [*arrays, self._weights(share, first, last, len(positions))] if self.padded else arrays

    def remaining_chunks(self, taken_rows: np.int64, skipped: np.int64) -> np.int64:
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


def row_feed(
    reader: GroupReader,
    share: RowShare,
    selection: Selection,
    seed: int | None,
    position: Position,
    class_weight: Mapping[int, float] | None = None,
) -> Any:
    """The dataset of `TrainingData.to_tf`. Does not block. Raises SpecError."""
    if share.share.uneven is Uneven.PAD and selection.labels is None:
        raise SpecError("uneven='pad' gives rows a weight, and needs labels for that: name them in label_columns")
    steps = share.steps
    cursor = RowCursor(position, share)
    chunks = _Chunks(reader, selection, share, seed)
    weights = [("float32", ())] if chunks.padded else []
    specs = [*selection.types, *weights]
    types = [tf.string if kind == "object" else tf.as_dtype(kind) for kind, _ in specs]

    def read(number: Any, taken_rows: Any, skipped: Any, index: Any) -> Any:
        tensors = tf.numpy_function(chunks, [number, taken_rows, skipped, index], types)
        for tensor, (_, shape) in zip(tensors, specs, strict=True):
            tensor.set_shape([None, *shape])
        return _weighed(selection.batch(tensors[:-1]), tensors[-1]) if chunks.padded else selection.batch(tensors)

    def start_pass(number: Any, taken_rows: Any, skipped: Any) -> Any:
        chunk_count = tf.numpy_function(chunks.remaining_chunks, [taken_rows, skipped], tf.int64)
        chunk_count.set_shape([])
        indices = tf.data.Dataset.range(chunk_count)
        rows = indices.map(pipeline.plain(lambda index: read(number, taken_rows, skipped, index)), num_parallel_calls=1)
        batches = rows.prefetch(CHUNKS_AHEAD).rebatch(share.batch)
        return class_weights.by_class(batches, class_weight)

    feed = pipeline.untuned(pipeline.passes(cursor, start_pass, steps))
    identity = (share.rows, share.batch, seed, share.share.uneven, selection.names)
    position.describe(feed.element_spec, zlib.crc32(repr(identity).encode()))
    return feed


def _weighed(batch: Any, weights: Any) -> Any:
    x, y, *sample_weights = batch
    return x, y, sample_weights[0] * tf.cast(weights, sample_weights[0].dtype) if sample_weights else weights


def _picked(names: Names, tensors: Mapping[str, Any]) -> Any:
    return tensors[names] if isinstance(names, str) else {name: tensors[name] for name in names}


def _listed(names: Names | None) -> list[str]:
    return [] if names is None else [names] if isinstance(names, str) else list(names)


def _check_names(features: object, labels: object, weight: object, subject: str) -> None:
    if weight is not None and not isinstance(weight, str):
        raise SpecError(f"{subject}: weight_column is {described(weight)}, the name of one column is expected")
    for option, argument in (("feature_columns", features), ("label_columns", labels)):
        listed = [argument] if argument is None or isinstance(argument, str) else argument
        if not isinstance(listed, Sequence) or not all(name is None or isinstance(name, str) for name in listed):
            raise SpecError(
                f"{subject}: {option} is {described(argument)}, the name of a column or a list of names is expected"
            )
    if labels is not None and not labels:
        raise SpecError(f"{subject}: label_columns ({described(labels)}) names no column: leave it out, or name one")


def _check_weight(column: Column, subject: str) -> None:
    if column.kind is not ColumnKind.NUMBER:
        raise DataError(
            f"{subject}: weight_column {column.name!r} is {column.source}, and a weight is one number: name a column "
            "of numbers"
        )


def _type(kind: str) -> str:
    # As Keras does with arrays that `fit` gets.
    return str(keras.backend.floatx()) if kind == "float64" else kind


def _check_stackable(columns: Sequence[Column], subject: str) -> None:
    wrong = [column.name for column in columns if column.kind is not ColumnKind.NUMBER]
    if wrong:
        raise DataError(
            f"{subject}: stack joins columns of numbers, and {', '.join(map(repr, wrong))} are none: name the "
            f"others in feature_columns, or pass stack=False"
        )
