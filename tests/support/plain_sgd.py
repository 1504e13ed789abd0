"""The simplest rule of a parameter server, where a test or a benchmark is about the server."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparktrain.training.frameworks.tensorflow.parameter_server.shard_state import UpdateRule

Array = NDArray[Any]


class PlainSgd(UpdateRule):
    """Gradient descent without momentum, in NumPy."""

    def __init__(self, rate: float) -> None:
        self._rate = rate

    def apply(self, values: Sequence[Array], gradients: Sequence[Array], scale: float) -> None:
        """See base class."""
        for value, gradient in zip(values, gradients, strict=True):
            np.multiply(gradient, gradient.dtype.type(self._rate * scale), out=gradient)
            np.subtract(value, gradient, out=value)

    def slots(self) -> list[Array]:
        """See base class."""
        return []

    def restore(self, slots: Sequence[Array]) -> None:
        """See base class."""
