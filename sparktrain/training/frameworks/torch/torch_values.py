"""Collectives on users' values: Python numbers, NumPy's arrays, tensors, and nested lists and dicts of them."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch

from sparktrain.training.collectives.ring import Ring


def allreduce(ring: Ring, value: Any, *, average: bool = True) -> Any:
    """The mean, or the sum, over all members of a number, an array, a tensor, or of each in a list or dict.

    Each value keeps its kind; means of integers and booleans are float64. All members call it, with equal shapes and
    types; it blocks until they do. Raises RingError, and TypeError for a value that is not a number.
    """
    leaves = _leaves(value)
    reduced = ring.allreduce([_number(leaf, average) for leaf in leaves], average=average, name="value")
    return _packed(value, leaves, reduced)


def broadcast(ring: Ring, value: Any) -> Any:
    """The value of rank 0, on every member; kinds and rules as for `allreduce`. Booleans stay booleans."""
    leaves = _leaves(value)
    return _packed(value, leaves, ring.broadcast([_tensor(leaf) for leaf in leaves], name="value"))


def allgather(ring: Ring, value: Any) -> Any:
    """Concatenate the members' arrays or tensors by rank, along their first axis, which may differ in length.

    Numbers give an array with one element for each member. All members call it; it blocks until they do. Raises
    RingError, and TypeError for a value that is not a number.
    """
    tensor = _tensor(value)
    gathered = ring.allgather(tensor if tensor.dim() else tensor.reshape(1), name="value")
    return gathered if isinstance(value, torch.Tensor) else gathered.numpy()


def _number(value: Any, average: bool) -> torch.Tensor:
    tensor = _tensor(value)
    if tensor.is_floating_point() or tensor.is_complex():
        return tensor
    return tensor.to(torch.float64 if average else torch.int64 if tensor.dtype is torch.bool else tensor.dtype)


def _tensor(value: Any) -> torch.Tensor:
    if isinstance(value, torch.Tensor):
        return value.detach()
    array = np.asarray(value)  # 64 bits for Python's numbers, where torch would take 32
    if array.dtype.kind not in "biufc":
        raise TypeError(
            f"a value of type {type(value).__name__} cannot travel in a ring; pass numbers, arrays or tensors"
        )
    return torch.from_numpy(array.copy())


def _leaves(value: Any) -> list[Any]:
    """What is in nested lists, tuples and dicts, in the order of `_packed`."""
    leaves: list[Any] = []
    _mapped(value, leaves.append)
    return leaves


def _packed(structure: Any, leaves: list[Any], tensors: list[torch.Tensor]) -> Any:
    """`tensors` in the structure of `structure`, each as the kind of its original value."""
    remaining = iter([_kind(*pair) for pair in zip(leaves, tensors, strict=True)])
    return _mapped(structure, lambda _: next(remaining))


def _mapped(value: Any, change: Callable[[Any], Any]) -> Any:
    if isinstance(value, Mapping):
        changed = {key: _mapped(value[key], change) for key in sorted(value)}
        return {key: changed[key] for key in value}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(_mapped(item, change) for item in value))
    if isinstance(value, list | tuple):
        return type(value)(_mapped(item, change) for item in value)
    return change(value)


def _kind(original: Any, tensor: torch.Tensor) -> Any:
    if isinstance(original, bool | int | float):
        return tensor.item()
    return tensor if isinstance(original, torch.Tensor) else tensor.numpy()
