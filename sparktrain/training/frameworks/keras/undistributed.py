"""Finds optimizers that a training function has not distributed, when it has returned."""

import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any
from weakref import WeakSet

import numpy as np

from sparktrain.errors import RingError
from sparktrain.training.collectives.ring import Ring
from sparktrain.training.collectives.weight_digests import digest
from sparktrain.training.frameworks.keras import keras_patches, model_state
from sparktrain.training.frameworks.keras.keras_patches import as_written
from sparktrain.training.notices import notice


class UndistributedOptimizers:
    """Detects optimizers that have updated only the weights of this member of a gang."""

    def __init__(self) -> None:
        self.newest: Any = None
        """The newest such optimizer, with the weights that it has trained."""

    def watch(self) -> None:
        """Start to note each Keras optimizer that applies gradients without a ring."""
        from keras.src.optimizers.base_optimizer import BaseOptimizer

        _watching.add(self)
        keras_patches.replace(BaseOptimizer, "apply", _watched)

    def compare(self, ring: Ring) -> None:
        """Print to the chief's log when such an optimizer leaves the members with different weights.

        All members call it once their training function has returned; it blocks until they do. Raises RingError.
        """
        trained = [] if self.newest is None else self.newest._trainable_variables
        variables = [variable for variable in trained if not model_state.is_split(variable)]  # no member has all of it
        mine = [len(variables), digest(*(variable.numpy() for variable in variables))]
        gathered = ring.allgather_array(np.array([mine], "int64"), name="last-weights")
        if ring.rank == 0 and gathered[:, 0].all() and len(set(gathered[:, 1].tolist())) > 1:
            notice(
                f"the members of the gang end with different weights: optimizer {self.newest.name!r} does "
                "not know the gang, and each member has trained for itself; what counts is the chief's alone. Compile "
                "the model with optimizer=ctx.distribute(...)"
            )


def watched(ring: Ring) -> Callable[[], None]:
    """What `Keras.watch` returns."""
    # Compare before the ring closes: an optimizer without a ring leaves each member with weights of its own, and no
    # error shows it.
    optimizers = UndistributedOptimizers()
    if "keras" in sys.modules:
        optimizers.watch()

    def compare() -> None:
        if ring.local_steps is not None and "keras" in sys.modules:
            from sparktrain.training.frameworks.tensorflow.optimizers.local_steps import report_unaveraged

            report_unaveraged(chief=not ring.rank)
        with suppress(RingError):  # a member that is gone already does not undo the work of the others
            optimizers.compare(ring)

    return compare


_watching: "WeakSet[UndistributedOptimizers]" = WeakSet()


def _watched(plain: Callable[..., None]) -> Callable[..., None]:
    @as_written
    def apply(optimizer: Any, grads: Any, trainable_variables: Any = None) -> Any:
        if "apply" not in vars(optimizer):  # a distributed optimizer has its own
            for watcher in _watching:
                watcher.newest = optimizer
        return plain(optimizer, grads, trainable_variables)

    return apply
