"""When a member enters and leaves the collectives of traced functions, which run no Python that could note it."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from sparktrain.base.clock import SystemClock, now_ns
from sparktrain.training.collectives.step_notes import CALLS, Table

_HOST = "/CPU:0"


def write_row(rows: Any, index: tf.Tensor, row: tf.Tensor) -> tf.Operation:
    """Write a row of a variable: an index without dimensions takes fewer operations than `scatter_nd_update`."""
    return tf.raw_ops.ResourceScatterUpdate(resource=rows.handle, indices=index, updates=row)


class CallTimes:
    """The times of the traced collectives of one ring, in a variable. For the thread that trains."""

    def __init__(self) -> None:
        self._count: Any = None
        self._rows: Any = None

    def start(self, tensors: Sequence[tf.Tensor]) -> tf.Tensor:
        """An operation that yields when `tensors` are there. The collective does not wait for it."""
        self.prepare()
        with tf.device(_HOST):
            # A tensor of a GPU is there once the host has it: its kernel has only been started before.
            on_host = [tf.identity(tensor) for tensor in tensors] if self._has_gpus else tensors
        with tf.control_dependencies(on_host), tf.device(_HOST):
            return tf.timestamp()

    def end(self, started: tf.Tensor, results: Sequence[tf.Tensor], number: tf.Tensor | None) -> None:
        """Note when `results` are there, of a collective with this `start`.

        `number`: of the collective, where the graph has it already; each operation costs microseconds.
        """
        with tf.control_dependencies(results), tf.device(_HOST):
            row = tf.stack([started, tf.timestamp()])
            count = self._count.assign_add(1) if number is None else number
            write_row(self._rows, count % CALLS, row)

    def newest(self) -> Table:
        """The newest ones, in nanoseconds of the monotonic clock: shape (n, 2)."""
        if self._rows is None:
            return np.zeros((0, 2), np.int64)
        rows = self._rows.numpy()
        wall_s = SystemClock().wall()
        clock_ns = now_ns()
        return np.asarray((rows[rows[:, 0] > 0] - wall_s) * 1e9, np.int64) + clock_ns

    def prepare(self) -> None:
        """Make the variable. A function that is traced first without it is traced twice, as with any variable."""
        if self._rows is None:
            with tf.init_scope(), tf.device(_HOST):
                self._has_gpus = bool(tf.config.list_logical_devices("GPU"))
                self._count = tf.Variable(-1, trainable=False, dtype=tf.int64)
                self._rows = tf.Variable(np.zeros((CALLS, 2)), trainable=False, dtype=tf.float64)
