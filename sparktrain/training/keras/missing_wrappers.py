"""What a training function has forgotten to tell its gang: found in its first step, or when it has returned.

Each finding names the line to write. What would train something else is an error; what may be meant is a line in the
chief's log.
"""

import hashlib
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any
from weakref import WeakSet

import numpy as np
import tensorflow as tf

from sparktrain.errors import OutOfStepError
from sparktrain.training.collectives.op_names import as_written
from sparktrain.training.collectives.ring import Ring
from sparktrain.training.keras import keras_patches
from sparktrain.training.notices import notice

SHOWN = 3
"""How many variables a message names."""


class FirstStep:
    """Looks at the first step of one optimizer, or of the first tape, in a ring of several members."""

    def __init__(self, ring: Ring, narrow: tf.DType | None) -> None:
        self._ring = ring
        self._tolerance = 1e-6 if narrow is None else 1e-2  # a narrow type has rounded the gradients
        self._begun = False
        self._looked: Any = None

    def begin(self, variables: Sequence[Any]) -> None:
        """Raise OutOfStepError, on all members, where they begin with different `variables`.

        All members call it at their first step, eagerly or as they trace it; again, it does nothing. It waits for all,
        and reads the weights once.
        """
        if self._begun or self._ring.size == 1 or not variables:
            return
        self._begun = True
        with tf.init_scope():
            own = [digest(each.numpy()) for each in variables]
            found = self._ring.allgather(tf.constant(own, tf.int64), name="first-weights").numpy()
        if len(found) != self._ring.size * len(own):
            raise OutOfStepError("the members of the gang train different numbers of variables: build the same model")
        if said := unequal(found.reshape(self._ring.size, -1), [*map(_path, variables)]):
            raise OutOfStepError(
                f"{said} before the first step: the members would train models of their own. Pass "
                "callbacks=ctx.keras_callbacks() to fit(); before a loop of your own, call "
                "model.set_weights(ctx.broadcast(model.get_weights()))"
            )

    def compare(self, gradients: Sequence[Any], means: Sequence[Any]) -> None:
        """Tell the chief's log when all members have the same gradients in the first step, which are not all zero."""
        pairs = [(own, mean) for own, mean in zip(gradients, means, strict=True) if _dense(own) and _dense(mean)]
        if self._ring.size == 1 or self._ring.mirrored or not pairs:
            return
        # Of all members, not of the chief alone: another graph would be optimized in another way, to other last bits.
        if tf.executing_eagerly():
            if self._looked is None:
                self._looked = True
                self._tell(self._same(pairs).numpy())
            return
        if self._looked is None:
            with tf.init_scope():
                self._looked = tf.Variable(False, trainable=False)

        def look() -> tf.Tensor:
            with tf.control_dependencies([self._looked.assign(True)]):
                return tf.numpy_function(self._tell, [self._same(pairs)], tf.bool)

        tf.cond(self._looked, lambda: False, look)

    def _same(self, pairs: Sequence[tuple[Any, Any]]) -> tf.Tensor:
        largest = [tf.reduce_max(tf.abs(mean)) for _, mean in pairs]
        apart = [tf.reduce_max(tf.abs(tf.cast(own, mean.dtype) - mean)) for own, mean in pairs]
        near = [one <= tf.cast(self._tolerance, one.dtype) * most for one, most in zip(apart, largest, strict=True)]
        return tf.reduce_all(near) & tf.reduce_any([most > 0 for most in largest])

    def _tell(self, same: Any) -> Any:
        if same and self._ring.rank == 0:
            notice(
                "all members had the same gradients in the first step, and so the same batch: each "
                f"example is trained on {self._ring.size} times. Give each member its part of the data, by "
                "model.fit(ctx.shard(data), ...)"
            )
        return np.bool_(same)


class Strays:
    """Optimizers that have updated weights of this member alone, while it belongs to a gang."""

    def __init__(self) -> None:
        self.newest: Any = None
        """The optimizer; kept to the end, with the weights that it has trained."""

    def watch(self) -> None:
        """From now on, note each Keras optimizer that applies gradients without a ring."""
        from keras.src.optimizers.base_optimizer import BaseOptimizer

        _watching.add(self)
        keras_patches.replace(BaseOptimizer, "apply", _watched)

    def compare(self, ring: Ring) -> None:
        """Tell the chief's log when such an optimizer leaves the members with different weights.

        All members call it once their training function has returned; it waits for all. Raises RingError.
        """
        variables = [] if self.newest is None else self.newest._trainable_variables
        mine = [len(variables), digest(*(each.numpy() for each in variables))]
        found = ring.allgather(tf.constant([mine], tf.int64), name="last-weights").numpy()
        if ring.rank == 0 and found[:, 0].all() and len(set(found[:, 1].tolist())) > 1:
            notice(
                f"the members of the gang end with different weights: optimizer {self.newest.name!r} does "
                "not know the gang, and each member has trained for itself; what counts is the chief's alone. Compile "
                "the model with optimizer=ctx.distribute(...)"
            )


_watching: "WeakSet[Strays]" = WeakSet()


def _watched(plain: Callable[..., None]) -> Callable[..., None]:
    @as_written
    def apply(optimizer: Any, grads: Any, trainable_variables: Any = None) -> Any:
        if "apply" not in vars(optimizer):  # where a ring's reducer is
            for each in _watching:
                each.newest = optimizer
        return plain(optimizer, grads, trainable_variables)

    return apply


def unequal(table: np.ndarray[Any, Any], names: Sequence[str]) -> str:
    """Which ranks differ, and in what; empty where none does. `table` has a row for each rank, a column for a name."""
    columns = [index for index in range(len(names)) if len(set(table[:, index].tolist())) > 1]
    if not columns:
        return ""
    rows = [tuple(row) for row in table.tolist()]
    usual, _ = Counter(rows).most_common(1)[0]
    others = ", ".join(str(rank) for rank, row in enumerate(rows) if row != usual)
    shown = ", ".join(repr(names[index]) for index in columns[:SHOWN])
    more = f" and {len(columns) - SHOWN} more" if len(columns) > SHOWN else ""
    return f"rank {others} differs from the others in {shown}{more}"


def digest(*arrays: Any) -> int:
    """Of the bytes of arrays, as a number of 64 bits."""
    found = hashlib.blake2b(digest_size=8)
    for each in arrays:
        found.update(np.ravel(each).view(np.uint8).data)
    return int.from_bytes(found.digest(), "little", signed=True)


def _path(variable: Any) -> str:
    return str(getattr(variable, "path", variable.name))


def _dense(gradient: Any) -> bool:
    return isinstance(gradient, tf.Tensor) and gradient.dtype.is_floating and gradient.shape.num_elements() != 0
