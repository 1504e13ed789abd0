"""Finds calls of `ctx` that a training function has forgotten: in its first step, or when it has returned.

Each finding names the line to write. A call that changes what is trained is an error; an omission that may be intended
is a line in the chief's log.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar
from weakref import WeakSet

import numpy as np
import tensorflow as tf

from sparktrain.errors import OutOfStepError
from sparktrain.training.collectives.ring import Ring
from sparktrain.training.frameworks.keras import keras_patches
from sparktrain.training.frameworks.keras.weight_digests import digest, unequal
from sparktrain.training.frameworks.tensorflow.collectives.op_names import as_written
from sparktrain.training.notices import notice

T = TypeVar("T")

SHOWN = 3
"""How many variables a message names."""
COMPARED = 8
"""How many gradients of a model show whether all members had the same batch: operations for all of them take longer to
trace than the step itself."""


class FirstStep:
    """Checks the first step of one optimizer, or of the first tape, in a ring of several members."""

    def __init__(self, ring: Ring, narrow: tf.DType | None) -> None:
        self._ring = ring
        self._tolerance = 1e-6 if narrow is None else 1e-2  # a narrow type has rounded the gradients
        self._started = False
        self._eager = False
        """Whether an eager step was compared."""
        self._compared: Any = None
        """Whether a traced step was. Made beforehand where that is possible: a function that makes a variable is traced
        twice."""
        if tf.executing_eagerly() and ring.size > 1 and not ring.mirrored:
            self._compared = tf.Variable(False, trainable=False)

    def check_start(self, variables: Sequence[Any]) -> None:
        """Raise OutOfStepError, on all members, if they start with different `variables`.

        All members call it at their first step, eagerly or while they trace it; it blocks until they do, and reads the
        weights once. Later calls do nothing.
        """
        if self._started or self._ring.size == 1 or not variables:
            return
        self._started = True
        with tf.init_scope():
            digests = [digest(variable.numpy()) for variable in variables]
            gathered = self._ring.allgather(tf.constant(digests, tf.int64), name="first-weights").numpy()
        if len(gathered) != self._ring.size * len(digests):
            raise OutOfStepError("the members of the gang train different numbers of variables: build the same model")
        if difference := unequal(gathered.reshape(self._ring.size, -1), [*map(_path, variables)]):
            raise OutOfStepError(
                f"{difference} before the first step: the members would train models of their own. Pass "
                "callbacks=ctx.keras_callbacks() to fit(); before a loop of your own, call "
                "model.set_weights(ctx.broadcast(model.get_weights()))"
            )

    def compare(self, gradients: Sequence[Any], means: Sequence[Any]) -> None:
        """Print to the chief's log when all members have the same gradients, not all zero, in the first step."""
        pairs = [(grad, mean) for grad, mean in zip(gradients, means, strict=True) if _dense(grad) and _dense(mean)]
        if pairs:
            self._look_once(lambda: _some(pairs))

    def compare_sums(self, gradients: Sequence[Any]) -> None:
        """As `compare`, for gradients that no ring averages: in the first step the members average sums of each."""
        # Operations for all gradients of a model take longer to trace than the step itself.
        dense = _some([gradient for gradient in gradients if _dense(gradient)])

        def pairs() -> list[tuple[Any, Any]]:
            sums = tf.stack([tf.cast(tf.reduce_sum(tf.abs(gradient)), tf.float64) for gradient in dense])
            [mean] = self._ring.allreduce([sums], average=True, name="first-gradients")
            return [(sums, mean)]

        if dense:
            self._look_once(pairs)

    def _look_once(self, pairs: Callable[[], Sequence[tuple[Any, Any]]]) -> None:
        """Compare `pairs()`, of this member's values and the means of all, in the first step alone."""
        if self._ring.size == 1 or self._ring.mirrored:
            return
        # On all members, not only on the chief: another graph would be optimized differently, to other last bits.
        if tf.executing_eagerly():
            if not self._eager:
                self._eager = True
                self._report(self._is_averaged(pairs()).numpy())
            return
        if self._compared is None:
            with tf.init_scope():
                self._compared = tf.Variable(False, trainable=False)

        def look() -> tf.Tensor:
            with tf.control_dependencies([self._compared.assign(True)]):
                return tf.numpy_function(self._report, [self._is_averaged(pairs())], tf.bool)

        tf.cond(self._compared, lambda: False, look)

    def _is_averaged(self, pairs: Sequence[tuple[Any, Any]]) -> tf.Tensor:
        largest = [tf.reduce_max(tf.abs(mean)) for _, mean in pairs]
        apart = [tf.reduce_max(tf.abs(tf.cast(grad, mean.dtype) - mean)) for grad, mean in pairs]
        near = [gap <= tf.cast(self._tolerance, gap.dtype) * peak for gap, peak in zip(apart, largest, strict=True)]
        return tf.reduce_all(near) & tf.reduce_any([peak > 0 for peak in largest])

    def _report(self, is_same: Any) -> Any:
        if is_same and self._ring.rank == 0:
            notice(
                "all members had the same gradients in the first step, and so the same batch: each "
                f"example is trained on {self._ring.size} times. Give each member its part of the data, by "
                "model.fit(ctx.shard(data), ...)"
            )
        return np.bool_(is_same)


class UndistributedOptimizers:
    """Detects optimizers that have updated only the weights of this member of a gang."""

    def __init__(self) -> None:
        self.newest: Any = None
        """The newest such optimizer, with the weights that it has trained."""

    def watch(self) -> None:
        """Start to note each Keras optimizer that applies gradients without a ring."""
        from keras.src.optimizers.base_optimizer import BaseOptimizer

        _watching.add(self)
        keras_patches.replace(BaseOptimizer, "apply", _watched)

    def compare(self, ring: Ring) -> None:
        """Print to the chief's log when such an optimizer leaves the members with different weights.

        All members call it once their training function has returned; it blocks until they do. Raises RingError.
        """
        variables = [] if self.newest is None else self.newest._trainable_variables
        mine = [len(variables), digest(*(variable.numpy() for variable in variables))]
        gathered = ring.allgather(tf.constant([mine], tf.int64), name="last-weights").numpy()
        if ring.rank == 0 and gathered[:, 0].all() and len(set(gathered[:, 1].tolist())) > 1:
            notice(
                f"the members of the gang end with different weights: optimizer {self.newest.name!r} does "
                "not know the gang, and each member has trained for itself; what counts is the chief's alone. Compile "
                "the model with optimizer=ctx.distribute(...)"
            )


_watching: "WeakSet[UndistributedOptimizers]" = WeakSet()


def _watched(plain: Callable[..., None]) -> Callable[..., None]:
    @as_written
    def apply(optimizer: Any, grads: Any, trainable_variables: Any = None) -> Any:
        if "apply" not in vars(optimizer):  # a distributed optimizer has its own
            for watcher in _watching:
                watcher.newest = optimizer
        return plain(optimizer, grads, trainable_variables)

    return apply


def _some(values: Sequence[T]) -> Sequence[T]:
    """At most `COMPARED` of them, over the whole length."""
    return values[:: max(1, -(-len(values) // COMPARED))]


def _path(variable: Any) -> str:
    return str(getattr(variable, "path", variable.name))


def _dense(gradient: Any) -> bool:
    return isinstance(gradient, tf.Tensor) and gradient.dtype.is_floating and gradient.shape.num_elements() != 0
