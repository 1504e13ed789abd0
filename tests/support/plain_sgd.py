"""The simplest rule of a parameter server, where a test or a benchmark is about the server."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


class PlainSgd:
    """Gradient descent without momentum, in NumPy."""

    def __init__(self, rate: float) -> None:
        self._rate = rate

    def apply(self, values: Sequence[Array], gradients: Sequence[Array], scale: float) -> None:
        """See `UpdateRule`."""
        for value, gradient in zip(values, gradients, strict=True):
            np.multiply(gradient, gradient.dtype.type(self._rate * scale), out=gradient)
            np.subtract(value, gradient, out=value)

    def slots(self) -> list[Array]:
        """See `UpdateRule`."""
        return []

    def restore(self, slots: Sequence[Array]) -> None:
        """See `UpdateRule`."""
