"""Collectives on values of users: Python's numbers, arrays, tensors, and nested lists and dicts of them."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from sparktrain.errors import SpecError
from sparktrain.training.collectives.ring import Ring, Tensor


class UserValues(ABC):
    """The collectives, and what they ask of one framework. For the thread that trains."""

    takes = "numbers, arrays or tensors"
    """In the error for any other value."""
    kinds = "biufc"
    """The kinds of NumPy's types that become tensors."""
    names: tuple[str, ...] = ()
    """Types of other kinds that do, by their names."""

    def allreduce(self, ring: Ring, value: Any, *, average: bool = True) -> Any:
        """The mean, or the sum, over all members of a number, an array, a tensor, or of each in a list or dict.

        Each value keeps its kind; means of integers and booleans are float64, or float32 where JAX has no 64 bits. All
        members call it, with equal shapes and types; it blocks until they do. Raises RingError, TypeError for a value
        that is not a number, and SpecError where members do not wait for each other.
        """
        _check_waits(ring, "allreduce")
        leaves, packed = self._flat(value)
        tensors = [self._countable(self._tensor(leaf), average) for leaf in leaves]
        return packed(list(map(self._as, leaves, ring.allreduce(tensors, average=average, name="value"))))

    def broadcast(self, ring: Ring, value: Any) -> Any:
        """The value of rank 0, on every member; kinds and rules as for `allreduce`. Booleans stay booleans."""
        _check_waits(ring, "broadcast")
        leaves, packed = self._flat(value)
        return packed(list(map(self._as, leaves, ring.broadcast(list(map(self._tensor, leaves)), name="value"))))

    def allgather(self, ring: Ring, value: Any) -> Any:
        """Concatenate the members' arrays or tensors by rank, along their first axis, which may differ in length.

        Numbers give an array with one element for each member. Rules as for `allreduce`.
        """
        _check_waits(ring, "allgather")
        tensor = self._tensor(value)
        return self._gathered(value, ring.allgather(tensor[None] if tensor.shape == () else tensor, name="value"))

    def _countable(self, tensor: Tensor, average: bool) -> Tensor:
        """`tensor` in a type that counts: means of integers have fractions, and a sum of truth values is a number."""
        kind = self._kind(tensor)
        if kind not in "iub" or (kind != "b" and not average):
            return tensor
        return self._cast(tensor, "float64" if average else "int64")

    def _array(self, value: Any) -> np.ndarray[Any, Any]:
        """`value` as an array, with 64 bits for Python's numbers, where a framework takes 32. Raises TypeError."""
        array = np.asarray(value)
        if array.dtype.kind not in self.kinds and array.dtype.name not in self.names:
            raise TypeError(f"a value of type {type(value).__name__} cannot travel in a ring; pass {self.takes}")
        return array

    @abstractmethod
    def _flat(self, value: Any) -> tuple[list[Any], Callable[[Sequence[Any]], Any]]:
        """What is in nested lists and dicts, and what puts as many other values in their places."""

    @abstractmethod
    def _tensor(self, value: Any) -> Tensor:
        """A number, an array or a tensor as the ring takes it. Raises TypeError."""

    @abstractmethod
    def _kind(self, tensor: Tensor) -> str:
        """The kind of NumPy's types that the type of `tensor` is of."""

    @abstractmethod
    def _cast(self, tensor: Tensor, dtype: str) -> Tensor:
        """`tensor` in the type of this name."""

    @abstractmethod
    def _as(self, original: Any, tensor: Tensor) -> Any:
        """`tensor` as what `original` is: a number, an array or a tensor."""

    @abstractmethod
    def _gathered(self, original: Any, tensor: Tensor) -> Any:
        """`tensor`, or an array where `original` is no tensor."""


def _check_waits(ring: Ring, operation: str) -> None:
    """Raise SpecError where members do not wait for each other."""
    if ring.ps_model is not None:
        raise SpecError(
            f"ctx.{operation}() in a gang with backend 'parameter-server': its members do not wait for each other; "
            "leave it out, or choose backend 'horovod' or 'tensorflow'"
        )
