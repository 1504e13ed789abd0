"""What TensorFlow gives the data of a member, see `Framework.data`: chunks of NumPy, cut in TensorFlow."""

import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keras
import tensorflow as tf
from numpy.typing import NDArray

from sparktrain.training.data.assignment import Uneven
from sparktrain.training.data.batch_columns import Selection
from sparktrain.training.data.feed_cursors import note_division
from sparktrain.training.data.feed_request import FeedRequest
from sparktrain.training.data.row_cursor import RowCursor
from sparktrain.training.frameworks.tensorflow.data import class_weights, pipeline
from sparktrain.training.frameworks.tensorflow.data.shard import shard as shard

Chunks = Callable[[int, Sequence[str]], Iterator[dict[str, NDArray[Any]]]]
CHUNKS_AHEAD = 2


def row_feed(request: FeedRequest) -> Any:
    """The dataset of `TrainingData.to_tf`. Does not block. Raises SpecError, DataError."""
    share = request.share
    cursor = RowCursor(request.position, share)
    feed, names = _feed(request, cursor)
    if share.share.uneven is Uneven.DROP:
        note_division(feed, cursor, lambda smaller: _feed(request.divided(smaller), cursor)[0])
    identity = (share.rows, share.batch, request.seed, share.share.uneven, names)
    request.position.describe(feed.element_spec, zlib.crc32(repr(identity).encode()))
    return feed


def _feed(request: FeedRequest, cursor: RowCursor) -> tuple[Any, Any]:
    """The dataset, and the names of the columns in its batches."""
    share = request.share
    chunks = request.chunks(str(keras.backend.floatx()))
    selection = chunks.selection
    steps = share.steps
    weights = [("float32", ())] if chunks.padded else []
    specs = [*selection.types, *weights]
    types = [tf.string if kind == "object" else tf.as_dtype(kind) for kind, _ in specs]

    def read(number: Any, taken_rows: Any, skipped: Any, index: Any) -> Any:
        tensors = tf.numpy_function(chunks, [number, taken_rows, skipped, index], types)
        for tensor, (_, shape) in zip(tensors, specs, strict=True):
            tensor.set_shape([None, *shape])
        return _weighed(selection.batch(tensors[:-1]), tensors[-1]) if chunks.padded else selection.batch(tensors)

    def start_pass(number: Any, replayed: Any, skipped: Any, taken_rows: Any) -> Any:
        chunk_count = tf.numpy_function(chunks.remaining_chunks, [taken_rows, skipped], tf.int64)
        chunk_count.set_shape([])
        indices = tf.data.Dataset.range(chunk_count)
        rows = indices.map(pipeline.plain(lambda index: read(number, taken_rows, skipped, index)), num_parallel_calls=1)
        batches = rows.prefetch(CHUNKS_AHEAD).rebatch(share.batch)
        return class_weights.by_class(batches, request.class_weight)

    return pipeline.untuned(pipeline.passes(cursor, start_pass, steps)), selection.names


def _weighed(batch: Any, weights: Any) -> Any:
    x, y, *sample_weights = batch
    return x, y, sample_weights[0] * tf.cast(weights, sample_weights[0].dtype) if sample_weights else weights


def stream_feed(chunks: Chunks, select: Callable[[str], Selection], batch_size: int, *, ahead: bool) -> Any:
    """The dataset of `StreamData.to_tf`.

    `select` has the columns of a batch, with doubles as the type that it gets.
    `ahead`: read before the trainer asks. In a gang, members agree on steps by their ring, and all must call its
    collectives in the same order, so nothing reads ahead there. Raises SpecError, DataError.
    """
    selection = select(str(keras.backend.floatx()))
    specs = tuple(
        tf.TensorSpec([None, *shape], tf.string if kind == "object" else tf.as_dtype(kind))
        for kind, shape in selection.types
    )

    stack = selection.stack

    def read() -> Iterator[tuple[NDArray[Any], ...]]:
        for chunk in chunks(batch_size, selection.names):
            yield tuple(selection.arrays(chunk if stack is None else {**chunk, stack.KEY: stack.of(chunk)}))

    rows = tf.data.Dataset.from_generator(read, output_signature=specs)
    rows = rows.prefetch(2) if ahead else rows
    batches = rows.rebatch(batch_size, drop_remainder=True)
    batches = batches.map(pipeline.plain(lambda *tensors: selection.batch(tensors)), num_parallel_calls=1)
    return pipeline.untuned(batches)
