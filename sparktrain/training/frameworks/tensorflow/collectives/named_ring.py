"""What the rings of frameworks share: operations that are matched by name, noted for others, and cast for the way."""

from abc import abstractmethod
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.data.ops.iterator_ops import OwnedIterator

from sparktrain.errors import RingError
from sparktrain.state.topology import Formation
from sparktrain.training.collectives.gang_ring import GangRing
from sparktrain.training.frameworks.tensorflow.collectives.bucketing import carry, in_chunks
from sparktrain.training.frameworks.tensorflow.collectives.call_log import CallLog, CallTimes
from sparktrain.training.frameworks.tensorflow.collectives.op_names import PREFIX, OpNames, as_written

HOST = "/CPU:0"


class NamedRing(GangRing):
    """See base class."""

    calls: CallLog
    _ends_with_error = False
    """Whether an operation that has failed ends all others of the process."""

    def __init__(
        self, formation: Formation, timeout_s: float, moved: Collection[tf.DType], *, resizes: bool = False
    ) -> None:
        """`timeout_s` is that of an operation, 0 for none; `moved` are the types that `_copy` and `_gathered` take.

        `resizes`: the ring may get another size, which functions that are traced already must use.
        """
        self._resizes = resizes
        self._traced_size: tf.Variable | None = None
        """The size for traced functions, where it may change."""
        super().__init__(formation)
        self.timeout_s = timeout_s
        self.calls = CallLog()
        self._times = CallTimes()
        self.notes.traced = self._times.newest
        self._batches = CallTimes()
        self.notes.traced_feeds = self._batches.newest
        self._moved = moved
        self._names = OpNames()
        self.passenger: Any = None
        """What travels with the gradients of tapes; None for nothing. Set it before a step is traced."""

    def prepare(self) -> None:
        """Create what collectives in a function need: tracing it would take twice as long."""
        self._times.prepare()
        self.calls.prepare()

    def members(self) -> int | tf.Tensor:
        """The size, to divide by: a tensor where a function is traced, and the size may change."""
        if not self._resizes or tf.executing_eagerly():
            return self.size
        if self._traced_size is None:
            with tf.init_scope(), tf.device(HOST):
                self._traced_size = tf.Variable(float(self.size), trainable=False, dtype=tf.float64)
        return self._traced_size.read_value()

    def take_place(self, formation: Formation) -> None:
        """See base class."""
        super().take_place(formation)
        if self._traced_size is not None:
            self._traced_size.assign(float(self.size))

    @as_written
    def broadcast(self, tensors: Sequence[tf.Tensor], *, name: str) -> list[tf.Tensor]:
        """See base class."""
        return self._lasting(
            lambda: self._timed(tensors, lambda: self._broadcast(tensors, name)), lambda: list(tensors), name
        )

    def _broadcast(self, tensors: Sequence[tf.Tensor], name: str) -> list[tf.Tensor]:
        with self._operation("broadcast", name, tensors) as unique:
            carried = [carry(tensor, self._moved) for tensor in tensors]
            sent = in_chunks(
                [tensor for tensor, _ in carried], lambda flat, label: self._copy(flat, f"{unique}.copy.{label}")
            )
            return [back(tensor) for tensor, (_, back) in zip(sent, carried, strict=True)]

    @as_written
    def allgather(self, tensor: tf.Tensor, *, name: str) -> tf.Tensor:
        """See base class."""
        [gathered] = self._lasting(
            lambda: self._timed([tensor], lambda: [self._allgather(tensor, name)]),
            lambda: [tf.concat([tensor] * self.size, 0)],
            name,
        )
        return gathered

    def _allgather(self, tensor: tf.Tensor, name: str) -> tf.Tensor:
        with self._operation("allgather", name, [tensor]) as unique:
            if not tensor.shape.rank:
                raise ValueError(f"allgather {name!r}: a tensor of shape {tensor.shape} has no first axis; give it one")
            carried, back = carry(tensor, self._moved)
            # No slash in a name: Horovod takes what follows the last one, and two operations would have one name.
            return back(self._gathered(carried, f"{unique}.gather"))

    def note_batches(self, noting: bool) -> bool:
        """See base class."""
        if noting:
            self._batches.prepare()
        note_batches(self._batches if noting else None)
        return True

    def most_averages(self, names: Collection[str]) -> int:
        """The most collectives of these `names`, together, in one function."""
        return self._names.most_uses(names)

    def tensor(self, array: "np.ndarray[Any, Any]") -> tf.Tensor:
        """See base class."""
        return tf.constant(array)

    def _end(self) -> None:
        """See base class. The members wait for each other, so that none ends while another still needs it."""
        with suppress(RingError):
            self.allreduce([tf.zeros([1])], average=False, name="closing")
            self._shut_down()

    def _lasting(
        self, operate: Callable[[], list[tf.Tensor]], echo: Callable[[], list[tf.Tensor]], name: str
    ) -> list[tf.Tensor]:
        """The result of `operate`, or of `echo`, as `Continuity` has it."""
        if tf.executing_eagerly():
            self._times.prepare()  # fit has eager collectives before its step is traced
            return self.continuity.call(operate, echo, name)
        self.traced_names.add(name)
        return echo() if self.continuity.alone else operate()

    def _timed(self, tensors: Sequence[tf.Tensor], operate: Callable[[], list[tf.Tensor]]) -> list[tf.Tensor]:
        """The result of `operate`; notes how long this member waits for it once `tensors` are there."""
        if tf.executing_eagerly():
            entered_ns = self.notes.now_ns()
            results = operate()
            self.notes.call(entered_ns)
            return results
        with tf.name_scope(PREFIX):
            started = self._times.start(tensors)
        results = operate()
        with tf.name_scope(PREFIX):
            self._times.end(started, results, self.calls.number())
        return results

    @abstractmethod
    def _copy(self, flat: tf.Tensor, name: str) -> tf.Tensor:
        """The chief's tensor."""

    @abstractmethod
    def _gathered(self, tensor: tf.Tensor, name: str) -> tf.Tensor:
        """The tensors of all members, one after the other along their first axis."""

    def _shut_down(self) -> None:
        """Leave what connects the members, once all of them have come to that."""

    @contextmanager
    def _operation(self, kind: str, name: str, tensors: Sequence[tf.Tensor], device: str = HOST) -> Iterator[str]:
        """Note an operation, and name it uniquely. Raises RingError where it fails."""
        try:
            with tf.name_scope(PREFIX), tf.device(HOST):
                noted = self.calls.note(kind, name, tensors)
            with tf.name_scope(PREFIX), tf.device(device), tf.control_dependencies([noted]):
                yield self._names.unique(name)
        # Horovod, too, raises TensorFlow's UnknownError for every loss, and its own HorovodInternalError never.
        except tf.errors.OpError as error:
            self._closed = self._closed or self._ends_with_error
            late = f", has not called it for {self.timeout_s:g} s" if self.timeout_s else ""
            raise self._failed(name, error.message, late) from error


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
