"""Checks the first step of an optimizer in a gang: equal weights before it, and a batch of its own for each member.

What changes the training is an error, and an omission that may be intended is a line in the chief's log. Both name the
line to write.
"""

from collections.abc import Sequence
from typing import Any, TypeVar

import keras
import numpy as np

from sparktrain.errors import OutOfStepError
from sparktrain.training.collectives.ring import Ring
from sparktrain.training.collectives.weight_digests import digest, unequal
from sparktrain.training.notices import notice

COMPARED = 8
"""How many gradients of a model show whether all members had the same batch: all of them would take longer than a
step."""
FIRST = "first-weights"
"""The name of the collective before the first step."""
T = TypeVar("T")


class StartCheck:
    """Checks the first step of one optimizer, or of the first tape, in a ring of several members."""

    def __init__(self, ring: Ring, tolerance: float = 1e-6) -> None:
        """`tolerance` is how far equal gradients may differ from their mean, as a part of the largest one."""
        self.ring = ring
        self.tolerance = tolerance
        self._started = False
        self._compared = False

    def check_start(self, variables: Sequence[Any], values: Sequence[Any] | None = None) -> None:
        """Raise OutOfStepError, on all members, if they start with different `variables`.

        `values` has their arrays where the variables have none. All members call it at their first step; it blocks
        until they do, and reads the weights once. Later calls do nothing.
        """
        if self._started or self.ring.size == 1 or self.ring.joins_late or not variables:
            return
        self._started = True
        arrays = [variable.numpy() for variable in variables] if values is None else values
        digests = np.array([digest(array) for array in arrays], "int64")
        gathered = self.ring.allgather_array(digests, name=FIRST)
        if len(gathered) != self.ring.size * len(digests):
            raise OutOfStepError("the members of the gang train different numbers of variables: build the same model")
        if difference := unequal(gathered.reshape(self.ring.size, -1), [*map(_path, variables)]):
            raise OutOfStepError(
                f"{difference} before the first step: the members would train models of their own. Pass "
                "callbacks=ctx.keras_callbacks() to fit(); before a loop of your own, call "
                "model.set_weights(ctx.broadcast(model.get_weights()))"
            )

    def compare(self, gradients: Sequence[Any], means: Sequence[Any]) -> None:
        """Print to the chief's log when all members have the same gradients, not all zero, in the first step.

        For steps that are not traced. `None` stands for a variable without a gradient.
        """
        if self._compared or self.ring.size == 1 or self.ring.mirrored:
            return
        self._compared = True
        pairs = [(grad, mean) for grad, mean in zip(gradients, means, strict=True) if grad is not None]
        arrays = [(keras.ops.convert_to_numpy(grad), keras.ops.convert_to_numpy(mean)) for grad, mean in some(pairs)]
        self.report(self._is_averaged([(grad, mean) for grad, mean in arrays if grad.size]))

    def report(self, is_same: bool) -> None:
        """Print to the chief's log that all members had `is_same` gradients."""
        if is_same and self.ring.rank == 0:
            notice(
                "all members had the same gradients in the first step, and so the same batch: each "
                f"example is trained on {self.ring.size} times. Give each member its part of the data, by "
                "model.fit(ctx.shard(data), ...)"
            )

    def _is_averaged(self, pairs: Sequence[tuple[Any, Any]]) -> bool:
        largest = [np.abs(mean).max() for _, mean in pairs]
        apart = [np.abs(grad - mean).max() for grad, mean in pairs]
        return any(peak > 0 for peak in largest) and all(
            gap <= self.tolerance * peak for gap, peak in zip(apart, largest, strict=True)
        )


def some(values: Sequence[T]) -> Sequence[T]:
    """At most `COMPARED` of them, over the whole length."""
    return values[:: max(1, -(-len(values) // COMPARED))]


def _path(variable: Any) -> str:
    return str(getattr(variable, "path", variable.name))
