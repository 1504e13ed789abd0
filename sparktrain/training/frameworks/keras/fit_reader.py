"""What the running `fit` reads its batches from, and how a resumed epoch leaves out those that are trained."""

import itertools
import sys
import traceback
from typing import Any

import keras
from keras.src.trainers.data_adapters.array_data_adapter import ArrayDataAdapter


def fit_reader() -> Any:
    """The iterator over epochs of the `fit` on the stack; None where there is none."""
    for frame, _ in traceback.walk_stack(sys._getframe()):
        reader = frame.f_locals.get("epoch_iterator")
        if reader is not None and isinstance(frame.f_locals.get("self"), keras.Model):
            return reader
    return None


def element_spec(reader: Any) -> Any:
    """The element spec of its batches; None where only a batch shows that, as outside TensorFlow."""
    return getattr(getattr(reader, "_distributed_dataset", None), "element_spec", None)


def is_ordered(reader: Any) -> bool:
    """Whether each epoch has the same batches in the same order: arrays, and `shuffle=False`."""
    # An epoch of `steps_per_epoch` starts where the one before it ended.
    adapter = getattr(reader, "data_adapter", None)
    return isinstance(adapter, ArrayDataAdapter) and not adapter._shuffle and reader.steps_per_epoch is None


def skip(reader: Any, batches: int) -> None:
    """Leave out the first `batches` of the epoch that `reader` starts next."""
    all_batches = reader._get_iterator

    def remaining() -> Any:
        del reader._get_iterator  # the next epoch has all of them
        source = all_batches()
        # TensorFlow's `fit` needs an iterator of its own kind, which reads within its graph.
        return source.skip(batches) if hasattr(source, "skip") else itertools.islice(source, batches, None)

    reader._get_iterator = remaining


def number_from(reader: Any, first: int) -> None:
    """Have callbacks get `first` as the number of the first batch of the epoch that `reader` starts next."""
    all_steps = reader._enumerate_iterator

    def numbered() -> Any:
        del reader._enumerate_iterator  # the next epoch counts from 0
        return ((start + first, last + first, source) for start, last, source in all_steps())

    reader._enumerate_iterator = numbered
