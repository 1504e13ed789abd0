"""What takes the place of an optimizer's `apply` in a gang, and the optimizers of a model that have it.

Keras saves the name of an optimizer's class and knows its own by identity, so that a distributed one keeps its class:
an attribute of the object takes the place of the method.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import keras


class DistributedApply(ABC):
    """Takes the place of an optimizer's `apply`: what it does to gradients or weights involves the other members."""

    belongs_outside_scale = True
    """Whether it has to be the `apply` of a loss scale around the optimizer, where there is one."""

    @abstractmethod
    def __call__(self, grads: Sequence[Any], trainable_variables: Sequence[Any] | None = None) -> None:
        """Apply the gradients, as an optimizer's own `apply`."""

    @abstractmethod
    def around(self, outer: Any) -> "DistributedApply":
        """The same for `outer`, the loss scale around this optimizer."""

    @property
    def since(self) -> int:
        """Steps that this member has made by itself since the newest average of weights."""
        return 0

    def average(self) -> None:
        """Average what members have trained by themselves. All call it; blocks until they do."""
        raise NotImplementedError("members that average gradients have equal weights after each step")


def own_apply(optimizer: Any) -> DistributedApply | None:
    """What has taken the place of the optimizer's `apply`, or None."""
    replacement = getattr(optimizer, "__dict__", {}).get("apply")
    return replacement if isinstance(replacement, DistributedApply) else None


def is_distributed(optimizer: Any) -> bool:
    """Whether `optimizer` averages gradients or weights over a ring, or sends them to servers."""
    return own_apply(optimizer) is not None


def own_optimizers(model: Any) -> dict[str, Any]:
    """The optimizers in the attributes of `model`, for its own train_step, by attribute."""
    optimizers = {name: value for name, value in vars(model).items() if isinstance(value, keras.optimizers.Optimizer)}
    return {
        name: optimizer for name, optimizer in optimizers.items() if optimizer is not getattr(model, "optimizer", None)
    }


def stray_optimizer(model: Any) -> str | None:
    """The name of an optimizer of `model` that is not distributed; None if all that train it are.

    `compile()` without an optimizer creates one, which a train_step with its own optimizers does not use.
    """
    optimizers = own_optimizers(model)
    alone = [name for name, optimizer in optimizers.items() if not _reduces(optimizer)]
    if not optimizers and not _reduces(getattr(model, "optimizer", None)):
        return "optimizer"
    return alone[0] if alone else None


def is_averaged(model: Any) -> bool:
    """Whether no member has trained `model` since its newest average.

    Members have equal weights then, as always where they average gradients. All members have the same answer.
    """
    return not any(replacement.since for replacement in _replacements(model))


def average_weights(model: Any) -> None:
    """Average what members have trained by themselves since the newest average. All call it; blocks until they do."""
    for replacement in _replacements(model):
        if replacement.since:
            replacement.average()


def reduce_outside_scale(optimizer: Any) -> None:
    """Move what a distributed optimizer does beside its own update to the loss scale that was put around it.

    `compile()` puts one in a model of policy `mixed_float16`. The loss scale skips an update when a gradient is not
    finite: the members agree about that only if they look at the averaged gradients. Otherwise some would wait in the
    ring for those that skip. Members that average weights count their steps outside, for the same reason. Call it
    before the first step; it does nothing for other optimizers.
    """
    inner = getattr(optimizer, "inner_optimizer", None)
    replacement = own_apply(inner)
    if replacement is not None and replacement.belongs_outside_scale:
        # First the inner one: what takes the place of the outer `apply` captures that, and that calls the inner one,
        # which would reduce a second time.
        del vars(inner)["apply"]
        optimizer.apply = replacement.around(optimizer)


def _replacements(model: Any) -> list[DistributedApply]:
    optimizers = [getattr(model, "optimizer", None), *own_optimizers(model).values()]
    replacements = [
        own_apply(candidate) for outer in optimizers for candidate in (outer, getattr(outer, "inner_optimizer", None))
    ]
    return [replacement for replacement in replacements if replacement is not None]


def _reduces(optimizer: Any) -> bool:
    return optimizer is not None and any(map(is_distributed, (optimizer, getattr(optimizer, "inner_optimizer", None))))
