"""Collectives on users' values: Python numbers, numpy arrays, tensors, and nested lists and dicts of them."""

from typing import Any

import keras
import numpy as np
import tensorflow as tf

from sparktrain.errors import SpecError
from sparktrain.training.collectives.ring import Ring


def allreduce(ring: Ring, value: Any, *, average: bool = True) -> Any:
    """The mean, or the sum, over all members of a number, an array, a tensor, or of each in a list or dict.

    Each value keeps its kind; means of integers and booleans are float64. All members call it, with equal shapes and
    types; it blocks until they do. Raises RingError, and TypeError for a value that is not a number.
    """
    _check_waits(ring, "allreduce")
    kinds = tf.nest.flatten(value)
    tensors = [_number(leaf, average) for leaf in kinds]
    reduced = ring.allreduce(tensors, average=average, name="value")
    return _as(value, kinds, reduced)


def broadcast(ring: Ring, value: Any) -> Any:
    """The value of rank 0, on every member; kinds and rules as for `allreduce`. Booleans stay booleans."""
    _check_waits(ring, "broadcast")
    kinds = tf.nest.flatten(value)
    return _as(value, kinds, ring.broadcast([_tensor(leaf) for leaf in kinds], name="value"))


def allgather(ring: Ring, value: Any) -> Any:
    """Concatenate the members' arrays or tensors by rank, along their first axis, which may differ in length.

    Numbers give an array with one element for each member. All members call it; it blocks until they do. Raises
    RingError, and TypeError for a value that is not a number.
    """
    _check_waits(ring, "allgather")
    tensor = _tensor(value)
    if tensor.shape.rank == 0:
        tensor = tensor[tf.newaxis]
    gathered = ring.allgather(tensor, name="value")
    return gathered if tf.is_tensor(value) or isinstance(value, keras.Variable) else gathered.numpy()


def _check_waits(ring: Ring, operation: str) -> None:
    """Raise SpecError where members do not wait for each other."""
    if ring.ps_model is not None:
        raise SpecError(
            f"ctx.{operation}() in a gang with backend 'parameter-server': its members do not wait for each other; "
            "leave it out, or choose backend 'horovod' or 'tensorflow'"
        )


def _number(value: Any, average: bool) -> tf.Tensor:
    tensor = _tensor(value)
    is_integral = tensor.dtype.is_integer or tensor.dtype.is_bool
    return (
        tf.cast(tensor, tf.float64 if average else tf.int64 if tensor.dtype.is_bool else tensor.dtype)
        if is_integral
        else tensor
    )


def _tensor(value: Any) -> tf.Tensor:
    if isinstance(value, keras.Variable):
        return tf.convert_to_tensor(value.value)
    if tf.is_tensor(value) or isinstance(value, tf.Variable):
        return tf.convert_to_tensor(value)
    array = np.asarray(value)  # 64 bits for Python's numbers, where TensorFlow would take 32
    if array.dtype.kind not in "biufc" and array.dtype.name not in _OF_ML_DTYPES:
        raise TypeError(
            f"a value of type {type(value).__name__} cannot travel in a ring; pass numbers, arrays or tensors"
        )
    return tf.convert_to_tensor(array)


_OF_ML_DTYPES = ("bfloat16",)


def _as(structure: Any, kinds: list[Any], tensors: list[tf.Tensor]) -> Any:
    """`tensors` in the structure of `structure`, each as the kind of its original value."""
    return tf.nest.pack_sequence_as(structure, [_kind(*pair) for pair in zip(kinds, tensors, strict=True)])


def _kind(original: Any, tensor: tf.Tensor) -> Any:
    if isinstance(original, bool | int | float):
        return tensor.numpy().item()
    return tensor.numpy() if isinstance(original, np.ndarray | np.generic) else tensor
