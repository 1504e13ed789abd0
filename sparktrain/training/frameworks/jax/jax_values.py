"""Collectives on users' values: Python numbers, arrays of NumPy and of JAX, and pytrees of them."""

from typing import Any

import jax
import numpy as np

from sparktrain.training.collectives.ring import Ring


def allreduce(ring: Ring, value: Any, *, average: bool = True) -> Any:
    """The mean, or the sum, over all members of a number, an array, or of each in a pytree.

    Each value keeps its kind; means of integers and booleans are float64, or float32 where JAX has no 64 bits. All
    members call it, with equal shapes and types; it blocks until they do. Raises RingError, and TypeError for a value
    that is not a number.
    """
    leaves, structure = jax.tree.flatten(value)
    reduced = ring.allreduce([_countable(leaf, average) for leaf in leaves], average=average, name="value")
    return jax.tree.unflatten(structure, map(_kind, leaves, reduced))


def broadcast(ring: Ring, value: Any) -> Any:
    """The value of rank 0, on every member; kinds and rules as for `allreduce`. Booleans stay booleans."""
    leaves, structure = jax.tree.flatten(value)
    sent = ring.broadcast([_number(leaf) for leaf in leaves], name="value")
    return jax.tree.unflatten(structure, map(_kind, leaves, sent))


def allgather(ring: Ring, value: Any) -> Any:
    """Concatenate the members' arrays by rank, along their first axis, which may differ in length.

    Numbers give an array with one element for each member. All members call it; it blocks until they do. Raises
    RingError, and TypeError for a value that is not a number.
    """
    array = _number(value)
    gathered = ring.allgather(array if array.ndim else array.reshape(1), name="value")
    return jax.numpy.asarray(gathered) if isinstance(value, jax.Array) else gathered


def _countable(value: Any, average: bool) -> Any:
    array = _number(value)
    if array.dtype.kind in "iub":
        return array.astype(np.float64 if average else np.int64 if array.dtype == bool else array.dtype)
    return array


def _number(value: Any) -> Any:
    array = np.asarray(value)  # 64 bits for Python's numbers, where JAX takes 32
    if array.dtype.kind not in "biufcV":  # V: the types of ml_dtypes, such as bfloat16
        raise TypeError(f"a value of type {type(value).__name__} cannot travel in a ring; pass numbers or arrays")
    return array


def _kind(original: Any, array: Any) -> Any:
    if isinstance(original, bool | int | float):
        return array.item()
    return jax.numpy.asarray(array) if isinstance(original, jax.Array) else array
