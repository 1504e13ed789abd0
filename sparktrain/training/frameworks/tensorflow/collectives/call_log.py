"""Logs the collectives that this member has started, eagerly or in a graph, for others to compare.

The members call the same collectives in the same order: those with one number are one collective, or the function has
a mistake.
"""

import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from sparktrain.base.clock import SystemClock, now_ns
from sparktrain.training.collectives.eager_call_log import LOGGED_CALLS, RETURNED, CollectiveCall
from sparktrain.training.collectives.step_notes import CALLS, Table

_HOST = "/CPU:0"
_SHOWN = 3
_LAST = ("last-weights", "closing")
"""Collectives in which a member waits for the others once its function has returned."""


class CallLog:
    """The collectives of one ring. `note` is for the thread that trains, `newest` for any thread."""

    def __init__(self) -> None:
        self._sites: list[tuple[str, str]] = []
        """Key and text of each place in the program that starts a collective."""
        self._site_numbers: dict[tuple[str, str], int] = {}
        self._count: Any = None
        self._rows: Any = None
        self._newest: Any = None

    def note(self, kind: str, name: str, tensors: Sequence[tf.Tensor]) -> Any:
        """An operation that logs the start of a collective; in a graph, run it first."""
        site = (_key(kind, name, tensors), _shown(kind, name, tensors))
        number = self._site_numbers.setdefault(site, len(self._sites))
        if number == len(self._sites):
            self._sites.append(site)
        # In variables, because a traced step runs no Python that could note its calls.
        self.prepare()
        count = self._count.assign_add(1)
        self._newest = count
        row = tf.stack([count, tf.constant(number, tf.int64), _elements(kind, tensors)])
        return write_row(self._rows, count % LOGGED_CALLS, row)

    def number(self) -> tf.Tensor | None:
        """The number of the collective that was noted last, if that was in the function that is being traced."""
        is_here = getattr(self._newest, "graph", None) is tf.compat.v1.get_default_graph()
        return self._newest if is_here else None

    def prepare(self) -> None:
        """Make the variables: a function that makes one while it is traced is traced twice."""
        if self._count is None:
            with tf.init_scope():
                self._count = tf.Variable(-1, trainable=False, dtype=tf.int64)
                self._rows = tf.Variable([[-1, 0, 0]] * LOGGED_CALLS, trainable=False, dtype=tf.int64)

    def restart(self) -> None:
        """Count from 0 again, as all members do that join a ring together. Called eagerly."""
        if self._count is not None:
            self._count.assign(-1)
            self._rows.assign([[-1, 0, 0]] * LOGGED_CALLS)

    def newest(self) -> dict[int, CollectiveCall]:
        """The newest collectives, by number."""
        if self._rows is None:
            return {}
        rows = self._rows.numpy().tolist()
        return {number: self._call(number, site, elements) for number, site, elements in rows if number >= 0}

    def _call(self, number: int, site: int, elements: int) -> CollectiveCall:
        key, shown = self._sites[site]
        return CollectiveCall(number, f"{key} {elements}", shown)


def _key(kind: str, name: str, tensors: Sequence[tf.Tensor]) -> str:
    """In a graph shapes may be known on one member and not on another: there the key has the number of elements."""
    shapes = [_shape(kind, tensor) if tf.executing_eagerly() else "" for tensor in tensors]
    parts = [f"{tensor.dtype.name}{shape}" for tensor, shape in zip(tensors, shapes, strict=True)]
    return f"{kind} {name} {len(parts)} {zlib.crc32(' '.join(parts).encode())}"


def _shown(kind: str, name: str, tensors: Sequence[tf.Tensor]) -> str:
    if name in _LAST:
        return RETURNED
    parts = [f"{tensor.dtype.name}{_shape(kind, tensor)}" for tensor in tensors]
    tail = f" and {len(parts) - _SHOWN} more" if len(parts) > _SHOWN else ""
    return f"{kind} {name!r} of {', '.join(parts[:_SHOWN])}{tail}"


def _shape(kind: str, tensor: tf.Tensor) -> str:
    """The members' parts of what is gathered may differ in length."""
    if tensor.shape.rank is None:
        return "[...]"
    sides = ["?" if side is None else str(side) for side in tensor.shape]
    return f"[{', '.join(['*', *sides[1:]] if kind == 'allgather' else sides)}]"


def _elements(kind: str, tensors: Sequence[tf.Tensor]) -> Any:
    if kind == "allgather" or not tensors:
        return tf.constant(0, tf.int64)
    return tf.add_n([tf.size(tensor, tf.int64) for tensor in tensors])


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
