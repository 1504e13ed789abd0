"""Checks the first step of an optimizer, or of a tape, that a `tf.function` may trace."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from sparktrain.training.collectives.ring import Ring
from sparktrain.training.frameworks.keras.start_check import StartCheck, some


class FirstStep(StartCheck):
    """See base class. A step may be traced in place of run."""

    def __init__(self, ring: Ring, narrow: tf.DType | None) -> None:
        """`narrow` is the type in which gradients are sent; None for their own."""
        super().__init__(ring, 1e-6 if narrow is None else 1e-2)  # a narrow type has rounded the gradients
        self._eager = False
        """Whether an eager step was compared."""
        self._traced: Any = None
        """Whether a traced step was. Made beforehand where that is possible: a function that makes a variable is traced
        twice."""
        if tf.executing_eagerly() and ring.size > 1 and not ring.mirrored:
            self._traced = tf.Variable(False, trainable=False)

    def check_start(self, variables: Sequence[Any], values: Sequence[Any] | None = None) -> None:
        """See base class. Also while a function is traced."""
        with tf.init_scope():
            super().check_start(variables, values)

    def compare(self, gradients: Sequence[Any], means: Sequence[Any]) -> None:
        """See base class. Also while a function is traced; sparse gradients are left out."""
        pairs = [(grad, mean) for grad, mean in zip(gradients, means, strict=True) if _dense(grad) and _dense(mean)]
        if pairs:
            self._look_once(lambda: some(pairs))

    def compare_sums(self, gradients: Sequence[Any]) -> None:
        """As `compare`, for gradients that no ring averages: in the first step the members average sums of each."""
        # Operations for all gradients of a model take longer to trace than the step itself.
        dense = some([gradient for gradient in gradients if _dense(gradient)])

        def pairs() -> list[tuple[Any, Any]]:
            sums = tf.stack([tf.cast(tf.reduce_sum(tf.abs(gradient)), tf.float64) for gradient in dense])
            [mean] = self.ring.allreduce([sums], average=True, name="first-gradients")
            return [(sums, mean)]

        if dense:
            self._look_once(pairs)

    def _look_once(self, pairs: Callable[[], Sequence[tuple[Any, Any]]]) -> None:
        """Compare `pairs()`, of this member's values and the means of all, in the first step alone."""
        if self.ring.size == 1 or self.ring.mirrored:
            return
        # On all members, not only on the chief: another graph would be optimized differently, to other last bits.
        if tf.executing_eagerly():
            if not self._eager:
                self._eager = True
                self._report(self._are_averaged(pairs()).numpy())
            return
        if self._traced is None:
            with tf.init_scope():
                self._traced = tf.Variable(False, trainable=False)

        def look() -> tf.Tensor:
            with tf.control_dependencies([self._traced.assign(True)]):
                return tf.numpy_function(self._report, [self._are_averaged(pairs())], tf.bool)

        tf.cond(self._traced, lambda: False, look)

    def _are_averaged(self, pairs: Sequence[tuple[Any, Any]]) -> tf.Tensor:
        largest = [tf.reduce_max(tf.abs(mean)) for _, mean in pairs]
        apart = [tf.reduce_max(tf.abs(tf.cast(grad, mean.dtype) - mean)) for grad, mean in pairs]
        near = [gap <= tf.cast(self.tolerance, gap.dtype) * peak for gap, peak in zip(apart, largest, strict=True)]
        return tf.reduce_all(near) & tf.reduce_any([peak > 0 for peak in largest])

    def _report(self, is_same: Any) -> Any:
        self.report(bool(is_same))
        return np.bool_(is_same)


def _dense(gradient: Any) -> bool:
    return isinstance(gradient, tf.Tensor) and gradient.dtype.is_floating and gradient.shape.num_elements() != 0
