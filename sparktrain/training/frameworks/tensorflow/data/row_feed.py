"""The TensorFlow side of a dataset's rows: chunks of several batches come from NumPy, and are cut in TensorFlow."""

import zlib
from typing import Any

import keras
import tensorflow as tf

from sparktrain.training.data.feed_request import FeedRequest
from sparktrain.training.data.row_cursor import RowCursor
from sparktrain.training.frameworks.tensorflow.data import class_weights, pipeline

CHUNKS_AHEAD = 2


def row_feed(request: FeedRequest) -> Any:
    """The dataset of `TrainingData.to_tf`. Does not block. Raises SpecError, DataError."""
    share = request.share
    chunks = request.chunks(str(keras.backend.floatx()))
    selection = chunks.selection
    steps = share.steps
    cursor = RowCursor(request.position, share)
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
        return class_weights.by_class(batches, request.class_weight)

    feed = pipeline.untuned(pipeline.passes(cursor, start_pass, steps))
    identity = (share.rows, share.batch, request.seed, share.share.uneven, selection.names)
    request.position.describe(feed.element_spec, zlib.crc32(repr(identity).encode()))
    return feed


def _weighed(batch: Any, weights: Any) -> Any:
    x, y, *sample_weights = batch
    return x, y, sample_weights[0] * tf.cast(weights, sample_weights[0].dtype) if sample_weights else weights
