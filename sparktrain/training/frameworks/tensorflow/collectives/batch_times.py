"""How long the traced steps of `fit` wait for their batches, which TensorFlow reads within the graph."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf
from tensorflow.python.data.ops.iterator_ops import OwnedIterator

from sparktrain.training.frameworks.tensorflow.collectives.call_times import CallTimes
from sparktrain.training.frameworks.tensorflow.collectives.op_names import as_written


class BatchTimes:
    """In place of the method by which a function that is traced gets a batch of an iterator."""

    def __init__(self, get_next: Callable[[Any], Any]) -> None:
        self._get_next = get_next
        self.times: CallTimes | None = None
        """Where to note it; None outside of `fit` and in its validation."""

    @as_written
    def __call__(self, iterator: Any) -> Any:
        """The next batch."""
        times = self.times
        if times is None or tf.executing_eagerly():
            return self._get_next(iterator)
        started = times.start([])
        with tf.control_dependencies([started]):
            batch = self._get_next(iterator)
        times.end(started, tf.nest.flatten(batch, expand_composites=True), None)
        return batch


def note_batches(times: CallTimes | None) -> None:
    """Have functions that are traced from now on note the waits for their batches in `times`; None: no more."""
    if times is not None and _installed is None:
        _install()
    if _installed is not None:
        _installed.times = times


_installed: BatchTimes | None = None


def _install() -> None:
    global _installed
    replacement = BatchTimes(OwnedIterator.get_next)
    _installed = replacement
    OwnedIterator.get_next = lambda iterator: replacement(iterator)
