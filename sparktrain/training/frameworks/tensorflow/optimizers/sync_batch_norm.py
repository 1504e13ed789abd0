"""`BatchNormalization(synchronized=True)` in a ring: the moments of the batches of all members.

Keras itself synchronizes only within TensorFlow's strategies, and a ring is not one.
"""

from typing import Any

import keras
import tensorflow as tf

from sparktrain.training.collectives.ring import Ring
from sparktrain.training.frameworks.keras import keras_patches
from sparktrain.training.frameworks.tensorflow.collectives.op_names import as_written


def synchronize_batches(ring: Ring) -> None:
    """Make synchronized batch normalization use the ring, for the life of this process.

    Call it before the first step; every member takes part in each training step of such a layer. A second call does
    nothing, nor does one in a ring of one.
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
    # Sums and a count travel, and not moments: a mask may leave members different numbers of examples.
    sums = [tf.reduce_sum(tensor, axes) for tensor in (inputs, tf.square(inputs), counted)]
    total, squares, count = tf.unstack(_summed(ring, tf.stack(sums)))
    mean = tf.math.divide_no_nan(total, count)
    return mean, tf.maximum(tf.math.divide_no_nan(squares, count) - tf.square(mean), 0)


def _summed(ring: Ring, tensor: Any) -> Any:
    """The sum over all members; its gradients are summed too, because the losses of all members use the sum."""

    @tf.custom_gradient  # type: ignore[untyped-decorator] # TensorFlow has no types
    def summed(moments: Any) -> tuple[Any, Any]:
        def gradient(upstream: Any) -> Any:
            return ring.allreduce([upstream], average=False, name="batch-moments-gradient")[0]

        return ring.allreduce([moments], average=False, name="batch-moments")[0], gradient

    return summed(tensor)
