"""Scales losses that are no plain mean over a batch, so that their mean over members is that of one process.

Members average gradients with equal weights. That is right for a loss that divides by the number of examples, which is
equal on all members. A loss that sums is multiplied by the number of members; one that divides by the sum of weights or
of a mask is multiplied by the member's part of that sum, times the number of members. The losses that `fit` reports are
right as well then.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import keras
from keras import ops
from keras.src.losses import loss as keras_losses
from keras.src.trainers.trainer import Trainer

from sparktrain.errors import SpecError
from sparktrain.training.collectives.ring import Ring
from sparktrain.training.frameworks.keras import keras_patches
from sparktrain.training.frameworks.keras.checkpoint_callbacks import optimizers_of
from sparktrain.training.frameworks.keras.distributed_apply import is_distributed
from sparktrain.training.frameworks.keras.keras_patches import as_written
from sparktrain.training.notices import notice

_MEANS = ("sum_over_batch_size", "mean")
_WEIGHTED = "mean_with_sample_weight"


def weigh_losses(ring: Ring) -> None:
    """Scale the losses of `compile()` for the ring, only in training, for the life of this process.

    This holds for models with a distributed optimizer; call it before the first of them trains. Losses that the
    function calls itself stay as they are, because their use is unknown. A second call does nothing, nor does one in a
    ring of one.
    """
    if ring.size == 1:
        return
    notify = _UnknownLossNotice(ring)

    def weighed(plain: Any) -> Any:
        @as_written
        def compute_loss(
            self: Any,
            x: Any = None,
            y: Any = None,
            y_pred: Any = None,
            sample_weight: Any = None,
            training: bool = True,
        ) -> Any:
            if not training or not any(is_distributed(optimizer) for optimizer in optimizers_of(self)):
                return plain(self, x, y, y_pred, sample_weight, training)
            with _weighed(ring, notify):
                return plain(self, x, y, y_pred, sample_weight, training)

        return compute_loss

    keras_patches.replace(Trainer, "compute_loss", weighed)


@contextmanager
def _weighed(ring: Ring, notify: "_UnknownLossNotice") -> Iterator[None]:
    """Replace the function by which Keras reduces the values of a loss; Keras has no other hook for that."""
    plain = keras_losses.reduce_weighted_values

    def reduce(
        values: Any, sample_weight: Any = None, mask: Any = None, reduction: str | None = _MEANS[0], dtype: Any = None
    ) -> Any:
        loss = plain(values, sample_weight=sample_weight, mask=mask, reduction=reduction, dtype=dtype)
        if reduction in (None, "none"):
            raise SpecError(
                "a loss of compile() has reduction=None, and Keras adds up the gradients of all its values: write "
                "reduction='sum' for the same, or reduction='sum_over_batch_size' for their mean"
            )
        if not tuple(values.shape):
            notify()
            return loss
        return loss * _factor(ring, values, sample_weight, mask, reduction)

    keras_losses.reduce_weighted_values = reduce
    try:
        yield
    finally:
        keras_losses.reduce_weighted_values = plain


def _factor(ring: Ring, values: Any, sample_weight: Any, mask: Any, reduction: str) -> Any:
    """The factor of this member's loss."""
    if reduction == "sum":
        return ring.size
    divisor = _divisor(values, sample_weight, mask, reduction)
    if divisor is None or ring.local_steps is not None:  # members without a collective in each step divide by their own
        return 1.0
    mine = ops.stop_gradient(ops.sum(ops.cast(divisor, values.dtype)))
    (total,) = ring.allreduce([mine], average=False, name="loss-divisor")
    return ops.stop_gradient(ops.divide_no_nan(mine * ring.size, total))


def _divisor(values: Any, sample_weight: Any, mask: Any, reduction: str) -> Any:
    """The values that the loss sums to divide by; None for the number of examples."""
    if reduction in _MEANS:
        return mask
    if reduction == _WEIGHTED:
        return keras_losses.apply_mask(sample_weight, mask, dtype=values.dtype, reduction=reduction)
    raise SpecError(f"reduction {reduction!r} of a loss is none that a gang of Keras {keras.__version__} knows")


class _UnknownLossNotice:
    """Prints that the kind of a loss function is unknown: on the chief, once in a process."""

    def __init__(self, ring: Ring) -> None:
        self._ring = ring
        self._due = True

    def __call__(self) -> None:
        if self._due and self._ring.rank == 0:
            self._due = False
            notice(
                "a loss function of compile() returns one number for a batch: the members take it for a "
                "mean over the batch, and average it; let it return one number for each example where it is a sum"
            )
