"""The TensorFlow side of a stream: chunks of whole steps come from NumPy, and are cut in TensorFlow."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keras
import tensorflow as tf
from numpy.typing import NDArray

from sparktrain.training.data.batch_columns import Selection
from sparktrain.training.frameworks.tensorflow.data import pipeline

Chunks = Callable[[int, Sequence[str]], Iterator[dict[str, NDArray[Any]]]]


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
