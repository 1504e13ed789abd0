"""Casts tensors of types that a collective does not take to a type that it takes, without loss."""

from collections.abc import Callable, Collection

import tensorflow as tf

Back = Callable[[tf.Tensor], tf.Tensor]


def carry(tensor: tf.Tensor, dtypes: Collection[tf.DType]) -> tuple[tf.Tensor, Back]:
    """`tensor` as one of `dtypes`, and the cast back to its own; complex numbers get one more axis, of 2.

    Sums of integers wrap as those of their own type do. Raises TypeError for a type without such a cast.
    """
    dtype = tensor.dtype
    if dtype in dtypes:
        return tensor, lambda result: result
    if dtype in _SAME_BITS:
        return tf.bitcast(tensor, _SAME_BITS[dtype]), lambda result: tf.bitcast(result, dtype)
    wider = next((candidate for candidate in _wider(dtype) if candidate in dtypes), None)
    if wider is None:
        raise TypeError(f"a tensor of type {dtype.name} cannot travel in a ring; cast it to a number's type first")
    return tf.cast(tensor, wider), lambda result: tf.cast(result, dtype)


_SAME_BITS = {tf.uint64: tf.int64, tf.complex64: tf.float32, tf.complex128: tf.float64}


def _wider(dtype: tf.DType) -> tuple[tf.DType, ...]:
    if dtype.is_bool:
        return (tf.uint8, tf.int32)
    if dtype.is_integer:
        return (tf.int32, tf.int64) if dtype.size < tf.int32.size else (tf.int64,)
    return (tf.float32,) if dtype.is_floating and dtype.size < tf.float32.size else ()
