"""What collectives on users' values ask of JAX. Nested values are its pytrees."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import numpy as np

from sparktrain.training.collectives.user_values import UserValues


class JaxValues(UserValues):
    """See base class. Arrays travel as those of NumPy."""

    takes = "numbers or arrays"
    kinds = "biufcV"  # V: the types of ml_dtypes, such as bfloat16

    def _flat(self, value: Any) -> tuple[list[Any], Callable[[Sequence[Any]], Any]]:
        leaves, structure = jax.tree.flatten(value)
        return leaves, partial(jax.tree.unflatten, structure)

    def _tensor(self, value: Any) -> Any:
        return self._array(value)

    def _kind(self, tensor: Any) -> str:
        return str(tensor.dtype.kind)

    def _cast(self, tensor: Any, dtype: str) -> Any:
        return tensor.astype(np.dtype(dtype))

    def _as(self, original: Any, tensor: Any) -> Any:
        return tensor.item() if isinstance(original, bool | int | float) else self._gathered(original, tensor)

    def _gathered(self, original: Any, tensor: Any) -> Any:
        return jax.numpy.asarray(tensor) if isinstance(original, jax.Array) else tensor


VALUES = JaxValues()
