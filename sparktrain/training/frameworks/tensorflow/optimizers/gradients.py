"""Averages dense and sparse gradients over all members, at full or half width."""

from collections.abc import Sequence
from typing import Any, TypeAlias

import tensorflow as tf

from sparktrain.config.param_values import shown
from sparktrain.errors import SpecError
from sparktrain.training.collectives.ring import Ring
from sparktrain.training.frameworks.tensorflow.collectives.bucketing import averaged, divided

Gradient: TypeAlias = Any
"""A tf.Tensor, a tf.IndexedSlices, or None."""

DENSE_BYTES = 4 * 2**20
"""Where rows are added up, a sparse gradient of a larger variable is sent as rows, of a smaller one as a whole.

Measured between two members, 8,192 rows: with 5 MiB both take the same (TensorFlow 26 and 23 ms, Horovod 15 and 15 ms);
with 49 MiB rows take 16 and 20 ms, the whole 247 and 79 ms.
"""

TAPE = "tape"
GRADIENTS = "gradients"
AVERAGES = (TAPE, GRADIENTS)
"""The names, or the starts of them, of the collectives that average gradients."""
_WIDTHS = {"none": None, "fp16": tf.float16, "bf16": tf.bfloat16}


def width(compression: object) -> tf.DType | None:
    """The type in which gradients are sent; None for their own. Raises SpecError."""
    if isinstance(compression, str) and compression in _WIDTHS:
        return _WIDTHS[compression]
    raise SpecError(f"compression ({shown(compression)}) must be one of {', '.join(map(repr, _WIDTHS))}")


def averaged_gradients(
    ring: Ring,
    gradients: Sequence[Gradient],
    narrow: tf.DType | None,
    name: str,
    *,
    single: bool = False,
    beside: Sequence[tf.Tensor] = (),
) -> tuple[list[Gradient], list[tf.Tensor]]:
    """The mean over all members of each gradient, None stays None; and the sum of what travels `beside` them.

    All members pass gradients of the same shapes, None at the same places. With `single`, a sparse gradient stays
    sparse, with each occurrence of a row of all members, as in one process with the whole batch: some Keras optimizers
    treat these otherwise than their sum. Without it, the rows are added up, and gradients of small variables become
    dense, which is less to send. `narrow` is the type in which they are sent. Blocks until all members call it. Raises
    RingError when called eagerly.
    """
    if ring.size == 1:
        return list(gradients), list(beside)
    reduced: list[Gradient] = list(gradients)
    rows = _sparse_ones(gradients, single)
    dense = {i: tf.convert_to_tensor(grad) for i, grad in enumerate(gradients) if grad is not None and i not in rows}
    means, sums = _dense(ring, list(dense.values()), narrow, name, beside)
    for index, mean in zip(dense, means, strict=True):
        reduced[index] = mean
    for index in rows:
        reduced[index] = _sparse(ring, gradients[index], narrow, f"{name}-rows", single)
    return reduced, sums


def _sparse_ones(gradients: Sequence[Gradient], single: bool) -> list[int]:
    """Which gradients are sent as rows."""
    sparse = [index for index, grad in enumerate(gradients) if isinstance(grad, tf.IndexedSlices)]
    return [index for index in sparse if single or _rows(gradients[index])]


def _rows(gradient: tf.IndexedSlices) -> bool:
    """Whether the gradient is so large that it is sent as rows."""
    shape = tf.get_static_value(gradient.dense_shape) if gradient.dense_shape is not None else None
    if shape is None:
        return True
    return bool(shape.prod() * gradient.values.dtype.size > DENSE_BYTES)


def _dense(
    ring: Ring, tensors: list[tf.Tensor], narrow: tf.DType | None, name: str, beside: Sequence[tf.Tensor]
) -> tuple[list[tf.Tensor], list[tf.Tensor]]:
    """The means of `tensors`, and the sums of what travels `beside` them."""
    if narrow is None and not beside:
        return ring.allreduce(tensors, average=True, name=name), []
    # Divide first: the sum of many members may exceed the range of the narrow type.
    sent = tensors if narrow is None else [_narrowed(divided(tensor, ring.members()), narrow) for tensor in tensors]
    sums = ring.allreduce([*sent, *beside], average=False, name=name)
    totals = sums[: len(tensors)]
    if narrow is None:
        return averaged(totals, ring.members()), sums[len(tensors) :]
    means = [tf.cast(total, tensor.dtype) for total, tensor in zip(totals, tensors, strict=True)]
    return means, sums[len(tensors) :]


def _sparse(
    ring: Ring, gradient: tf.IndexedSlices, narrow: tf.DType | None, name: str, single: bool
) -> tf.IndexedSlices:
    rows = divided(gradient.values, ring.members()), gradient.indices
    if not single:
        rows = _summed(*rows)
    values = rows[0] if narrow is None else _narrowed(rows[0], narrow)
    all_values = tf.cast(ring.allgather(values, name=f"{name}-values"), gradient.values.dtype)
    all_indices = ring.allgather(rows[1], name=f"{name}-indices")
    if not single:
        all_values, all_indices = _summed(all_values, all_indices)
    return tf.IndexedSlices(all_values, all_indices, dense_shape=gradient.dense_shape)


def _narrowed(tensor: tf.Tensor, narrow: tf.DType) -> tf.Tensor:
    return tf.cast(tensor, narrow) if tensor.dtype.is_floating and tensor.dtype.size > narrow.size else tensor


def _summed(values: tf.Tensor, indices: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Each index once, with the sum of its values."""
    unique_indices, places = tf.unique(indices)
    return tf.math.unsorted_segment_sum(values, places, tf.size(unique_indices)), unique_indices
