"""`BatchNormalization(synchronized=True)` in a ring: the moments of the batches of all members.

Keras synchronizes within TensorFlow's own strategies alone; a ring is none of them.
"""

from typing import Any

import keras
import tensorflow as tf

from sparktrain.training.collectives.op_names import as_written
from sparktrain.training.collectives.ring import Ring
from sparktrain.training.keras import keras_patches


def synchronize_batches(ring: Ring) -> None:
    """Have synchronized batch normalization know the ring, for the life of this process.

    To be called before the first step; every member takes part in each training step of such a layer. Again, or in a
    ring of one: does nothing.
    """
    if ring.size == 1:
        return

    def synchronized(plain: Any) -> Any:
        @as_written
        def moments(self: Any, inputs: Any, mask: Any) -> Any:
            if not self.synchronized:
                return plain(self, inputs, mask)
            return _moments(ring, inputs, mask, self._reduction_axes)

        return moments

    keras_patches.replace(keras.layers.BatchNormalization, "_moments", synchronized)


def _moments(ring: Ring, inputs: Any, mask: Any, axes: list[int]) -> tuple[Any, Any]:
    """Mean and variance over `axes`, and over all members, of the inputs that `mask` leaves."""
    counted = tf.ones_like(inputs)
    if mask is not None:
        counted *= tf.cast(mask, inputs.dtype)[..., tf.newaxis]
        inputs = tf.where(counted > 0, inputs, 0)
    sums = [tf.reduce_sum(each, axes) for each in (inputs, tf.square(inputs), counted)]
    total, squares, count = tf.unstack(_summed(ring, tf.stack(sums)))
    mean = tf.math.divide_no_nan(total, count)
    return mean, tf.maximum(tf.math.divide_no_nan(squares, count) - tf.square(mean), 0)


def _summed(ring: Ring, tensor: Any) -> Any:
    """The sum over all members, and so it is of its gradients: what a member has told the others, their losses use."""

    @tf.custom_gradient  # type: ignore[untyped-decorator] # TensorFlow has no types
    def summed(own: Any) -> tuple[Any, Any]:
        def gradient(upstream: Any) -> Any:
            return ring.allreduce([upstream], average=False, name="batch-moments-gradient")[0]

        return ring.allreduce([own], average=False, name="batch-moments")[0], gradient

    return summed(tensor)
