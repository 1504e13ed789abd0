"""Models with variables that `keras.distribution` has placed on the devices of all members, whole or in parts."""

import math
from collections.abc import Mapping
from typing import Any

import keras

from sparktrain.training.checkpoint.tensor_files import dtype_of
from sparktrain.training.frameworks.keras import model_state


def is_spread() -> bool:
    """Whether this process makes its variables on devices of several members: then XLA keeps them in step."""
    distribution = keras.distribution.distribution()
    return distribution is not None and getattr(distribution, "num_processes", 1) > 1


def nbytes_of(variable: Any) -> int:
    """Bytes of the variable's value, with the parts of all members."""
    count: int = math.prod(variable.shape)
    return count * dtype_of(str(variable.dtype)).itemsize


def give_parts(variables: Mapping[str, Any]) -> None:
    """Take part in the reads of the chief, which copies the values of `variables`.

    One variable is in memory at a time. Blocks until all members call it.
    """
    for variable in variables.values():
        model_state.view(variable)
