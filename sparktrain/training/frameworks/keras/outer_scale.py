"""Finds a loss scale that was put around an optimizer after it was distributed."""

import traceback
from typing import Any

import keras

from sparktrain.errors import SpecError


class OuterScale:
    """Looks for a loss scale around one distributed optimizer."""

    def __init__(self, optimizer: Any) -> None:
        self._optimizer = optimizer
        self._checked = False

    def refuse(self, *, traced: bool = False) -> None:
        """Raise SpecError when a loss scale calls: it has decided by this member's gradients alone.

        It looks at the first call, and at those that are `traced`.
        """
        if self._checked and not traced:
            return
        self._checked = True
        for frame, _ in traceback.walk_stack(None):
            caller = frame.f_locals.get("self")
            if isinstance(caller, keras.optimizers.LossScaleOptimizer) and caller.inner_optimizer is self._optimizer:
                raise SpecError(
                    f"the optimizer {self._optimizer.name!r} was wrapped into a LossScaleOptimizer after it was "
                    "distributed; wrap it first, and distribute the LossScaleOptimizer"
                )
