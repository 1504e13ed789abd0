"""The values of a step that is traced by TensorFlow, in variables beside those of the model: see `StepValues`."""

from typing import Any

import numpy as np
import tensorflow as tf

from sparktrain.training.checkpoint.tensor_files import Array
from sparktrain.training.collectives.ring import Ring
from sparktrain.training.frameworks.keras.healing.step_values import StepValues


class GraphValues(StepValues):
    """See base class."""

    def __init__(self, model: Any, ring: Ring, *, waits: bool = False) -> None:
        """See base class; `waits`: the rank of this process may change before its first step."""
        super().__init__(model, ring)
        # A process that waits traces its step before it knows its rank.
        self._rank: Any = tf.Variable(ring.rank, trainable=False) if waits else ring.rank
        self._waits = waits
        self._pairs = [(variable, _shadow(variable)) for variable in self._changed]
        self._rates = [] if self._rate is None else [(self._rate, _shadow(self._rate))]
        self._members = tf.Variable(tf.zeros([ring.size, sum(self._sizes)]), trainable=False)

    @property
    def variables(self) -> list[Any]:
        """What a step changes before its collective."""
        return self._changed

    def keep(self) -> list[tf.Operation]:
        """The operations, for the start of a step that is traced, that keep the values before it."""
        return [shadow.assign(variable.value).op for variable, shadow in [*self._pairs, *self._rates]]

    def keep_now(self) -> None:
        """Copy the values to the variables beside them, eagerly."""
        for variable, shadow in self._pairs:
            shadow.assign(variable)

    def put_back(self) -> None:
        """Return to the copies."""
        for variable, shadow in self._pairs:
            variable.assign(shadow)

    def has_same_rate(self) -> bool:
        """Whether the learning rate is that of the newest step that has kept it."""
        return all(float(rate.numpy()) == float(shadow.numpy()) for rate, shadow in self._rates)

    def sent(self) -> tf.Tensor:
        """See base class. Zeros but for this member's row: the sum over the members has all rows, to the bit."""
        flat = tf.concat([tf.reshape(variable.value, [-1]) for variable in self._travelling.values()], 0)
        padded = tf.pad(flat[tf.newaxis], [[self._rank, self._size - self._rank - 1], [0, 0]])
        return tf.ensure_shape(padded, self._members.shape)

    def receive(self, total: tf.Tensor) -> None:
        """Take the rows of all members, in the graph."""
        self._members.assign(total)

    @property
    def rows(self) -> tf.Variable:
        """The variable with `members`."""
        return self._members

    @property
    def members(self) -> Array:
        """The newest rows, in host memory."""
        return np.array(self._members.numpy())

    def assign_members(self, rows: Array) -> None:
        """Continue with the rows of another member."""
        self._members.assign(rows)

    def take_rank(self) -> None:
        """Have the traced step send this member's values in the row of its rank."""
        if self._waits:
            self._rank.assign(self._ring.rank)


def _shadow(variable: Any) -> tf.Variable:
    return tf.Variable(variable.value, trainable=False, dtype=variable.value.dtype)
