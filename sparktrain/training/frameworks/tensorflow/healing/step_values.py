"""What a step of a model changes before its collective: kept so that the step can be repeated.

These are the statistics of layers, metrics, and seed generators. What each member has of its own among them also
travels with the gradients, so that the others can give it to the process that takes the place of a lost member.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from sparktrain.training.checkpoint.tensor_files import Array
from sparktrain.training.collectives.ring import Ring
from sparktrain.training.frameworks.keras import model_state
from sparktrain.training.frameworks.tensorflow.optimizers.gradients import Passenger

MEMBERS = "sent/members"
"""The name, in the files with a state, of all members' own values."""
TRAVEL_BYTES = 2**18
"""The most bytes of all members' own values that travel with each step, or, if that is more, `TRAVEL_SHARE`."""
TRAVEL_SHARE = 0.02
"""Of the bytes of the gradients."""


class StepValues(Passenger):
    """The values of one member. It belongs to the thread that trains."""

    def __init__(self, model: Any, ring: Ring, *, waits: bool = False) -> None:
        """`model` is built, with its metrics; `waits`: the rank of this process may change before its first step."""
        self._ring = ring
        # A process that waits traces its step before it knows its rank.
        self._rank: Any = tf.Variable(ring.rank, trainable=False) if waits else ring.rank
        self._waits = waits
        self._size = ring.size
        """Of the first ring: members have the same rows in a smaller one, and the rows of others are zeros there."""
        own = model_state.member_variables(model)
        seeds = {name: value for name, value in model_state.named(model).items() if name.startswith(model_state.SEEDS)}
        if (generator := model_state.global_generator()) is not None:
            seeds[model_state.GLOBAL_SEED] = generator.state
        changed = [*own.values(), *seeds.values()]
        self._pairs = [(variable, _shadow(variable)) for variable in changed]
        rate = model.optimizer._learning_rate
        self._rate = (rate, _shadow(rate)) if hasattr(rate, "assign") else None
        self._travelling = {name: value for name, value in own.items() if value.dtype == "float32"}
        self._sizes = [int(np.prod(variable.shape)) for variable in self._travelling.values()]
        # As rows of one tensor of the gradients' type: Horovod joins it to them, where another type costs an operation.
        nbytes = 4 * sum(self._sizes) * ring.size
        gradient_bytes = sum(4 * int(np.prod(variable.shape)) for variable in model.trainable_variables)
        self.travel = 0 < nbytes <= max(TRAVEL_BYTES, TRAVEL_SHARE * gradient_bytes)
        """Whether the own values of all members travel with the gradients."""
        self._members = tf.Variable(tf.zeros([ring.size, sum(self._sizes)]), trainable=False)

    @property
    def variables(self) -> list[Any]:
        """What a step changes before its collective."""
        return [variable for variable, _ in self._pairs]

    def keep(self) -> list[tf.Operation]:
        """The operations, for the start of a step that is traced, that keep the values before it."""
        pairs = self._pairs if self._rate is None else [*self._pairs, self._rate]
        return [shadow.assign(variable.value).op for variable, shadow in pairs]

    def keep_now(self) -> None:
        """Keep the values before a step that is not started."""
        for variable, shadow in self._pairs:
            shadow.assign(variable)

    def put_back(self) -> None:
        """Undo what the newest step has changed before its collective."""
        for variable, shadow in self._pairs:
            variable.assign(shadow)

    def has_same_rate(self) -> bool:
        """Whether the learning rate is that of the newest step."""
        return self._rate is None or float(self._rate[0].numpy()) == float(self._rate[1].numpy())

    def sent(self) -> tf.Tensor:
        """See base class. Zeros but for this member's row: the sum over the members has all rows, to the bit."""
        flat = tf.concat([tf.reshape(variable.value, [-1]) for variable in self._travelling.values()], 0)
        padded = tf.pad(flat[tf.newaxis], [[self._rank, self._size - self._rank - 1], [0, 0]])
        return tf.ensure_shape(padded, self._members.shape)

    def receive(self, total: tf.Tensor) -> None:
        """See base class."""
        self._members.assign(total)

    def of_member(self, rank: int) -> dict[str, Array]:
        """What member `rank` had of its own when it sent the gradients of the newest step; empty where none travels."""
        if not self.travel:
            return {}
        parts = np.split(self._members.numpy()[rank], np.cumsum(self._sizes)[:-1])
        return {
            name: part.copy().reshape(tuple(variable.shape))
            for part, (name, variable) in zip(parts, self._travelling.items(), strict=True)
        }

    @property
    def rows(self) -> tf.Variable:
        """The variable with `members`."""
        return self._members

    @property
    def members(self) -> Array:
        """The values of all members, a row each."""
        return np.array(self._members.numpy())

    def take_rank(self) -> None:
        """This process has its place, and with it the rank for its steps."""
        if self._waits:
            self._rank.assign(self._ring.rank)

    def assign_members(self, rows: Array) -> None:
        """Take `members` of another member."""
        self._members.assign(rows)


def shared_variables(model: Any, own: Mapping[str, Any]) -> dict[str, Any]:
    """The variables that are equal on all members after each step: weights, and those of the optimizer."""
    return {
        name: variable
        for name, variable in model_state.named(model).items()
        if name not in own and not name.startswith((model_state.SEEDS, model_state.METRICS))
    }


def _shadow(variable: Any) -> tf.Variable:
    return tf.Variable(variable.value, trainable=False, dtype=variable.value.dtype)
