"""Averages gradients of Keras over a ring, step by step, where Keras trains without a traced function."""

from collections.abc import Sequence
from typing import Any

import keras

from sparktrain.training.collectives.passenger import Passenger
from sparktrain.training.collectives.ring import Ring
from sparktrain.training.frameworks.keras.distributed_apply import DistributedApply
from sparktrain.training.frameworks.keras.outer_scale import OuterScale
from sparktrain.training.frameworks.keras.start_check import StartCheck

NARROW = {"none": None, "fp16": "float16", "bf16": "bfloat16"}
"""By the name of a compression: the type in which gradients are sent; None for their own."""
_WIDE = frozenset({"float32", "float64"})


def average_by(ring: Ring, optimizer: Any, compression: str) -> Any:
    """Make `optimizer` average its gradients by `ring`; returns `optimizer` itself.

    The ring has tensors of the framework that Keras runs on, which trains step by step.
    """
    optimizer.apply = EagerAverage(optimizer, ring, NARROW[compression])
    return optimizer


class EagerAverage(DistributedApply):
    """Averages gradients over the ring before the optimizer applies them."""

    passenger: Passenger | None = None
    """What travels beside the gradients of each step."""

    def __init__(self, optimizer: Any, ring: Ring, narrow: str | None) -> None:
        self._ring = ring
        self._narrow = narrow
        self._optimizer = optimizer
        self._apply = optimizer.apply
        self._outer = OuterScale(optimizer)
        self._first = StartCheck(ring, 1e-6 if narrow is None else 1e-2)  # a narrow type has rounded the gradients

    def __call__(self, grads: Sequence[Any], trainable_variables: Sequence[Any] | None = None) -> None:
        """See base class. Blocks until all members call it. Raises OutOfStepError, RingError."""
        self._outer.refuse()
        gradients = list(grads)
        variables = None if trainable_variables is None else list(trainable_variables)
        self._first.check_start(self._optimizer._trainable_variables if variables is None else variables)
        averaged = self._averaged(gradients)
        self._first.compare(gradients, averaged)
        self._apply(averaged, variables)

    def around(self, outer: Any) -> "EagerAverage":
        """See base class."""
        return EagerAverage(outer, self._ring, self._narrow)

    def _averaged(self, gradients: list[Any]) -> list[Any]:
        """The means over all members; None stays None."""
        indices = [index for index, gradient in enumerate(gradients) if gradient is not None]
        means = list(gradients)
        like = [gradients[index] for index in indices]
        size = self._ring.size
        # Divide first: the sum of many members may exceed the range of the narrow type.
        sent = like if self._narrow is None else [self._narrowed(gradient / size) for gradient in like]
        passengers = [] if self.passenger is None else [self.passenger.sent()]
        sums = self._ring.allreduce([*sent, *passengers], average=False, name="gradients")
        if self.passenger is not None:
            self.passenger.receive(sums.pop())
        for index, total, gradient in zip(indices, sums, like, strict=True):
            means[index] = total / size if self._narrow is None else keras.ops.cast(total, gradient.dtype)
        return means

    def _narrowed(self, gradient: Any) -> Any:
        is_wide = keras.backend.standardize_dtype(gradient.dtype) in _WIDE
        return keras.ops.cast(gradient, self._narrow) if is_wide else gradient
