"""Horovod's callbacks for Keras, over the ring of a gang, for Keras 3."""

from collections.abc import Callable
from typing import Any

import keras

from sparktrain.errors import SpecError
from sparktrain.training.frameworks.keras.averaging import AverageMetrics
from sparktrain.training.frameworks.keras.user_callbacks import InternalCallback
from sparktrain.training.frameworks.tensorflow.horovod_names.import_hook import current_ring
from sparktrain.training.frameworks.tensorflow.horovod_names.tensorflow_names import assign_all, from_chief
from sparktrain.training.notices import notice

_ELSEWHERE = {
    "BestModelCheckpoint": "write keras.callbacks.ModelCheckpoint(path, save_best_only=True), or pass "
    "callbacks=ctx.keras_callbacks(monitor='val_loss')",
    "CommitStateCallback": "write hvd.elastic.CommitStateCallback(state)",
    "UpdateBatchStateCallback": "write hvd.elastic.UpdateBatchStateCallback(state)",
    "UpdateEpochStateCallback": "write hvd.elastic.UpdateEpochStateCallback(state)",
}


# Horovod's own callbacks fail with Keras 3, which has neither `Variable.ref` nor `keras.backend.get_value`.
class BroadcastGlobalVariablesCallback(InternalCallback):
    """Gives all members the chief's weights and optimizer state: at the start, and after the first step.

    The first step builds what has no variables before.
    """

    def __init__(self, root_rank: int, device: str = "", local_variables: object = None) -> None:
        """Raises SpecError for another root than rank 0."""
        super().__init__()
        from_chief(root_rank, "callbacks.BroadcastGlobalVariablesCallback")
        self._ring = current_ring("hvd.callbacks.BroadcastGlobalVariablesCallback()")
        self._done = False

    def on_train_begin(self, logs: Any = None) -> None:
        """See base class."""
        self._send()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """See base class."""
        is_first = not (self._done or self._ring.has_stepped)
        self._done = True
        if is_first:
            self._send()

    def _send(self) -> None:
        state = [] if self.model.optimizer is None else self.model.optimizer.variables
        assign_all(self._ring, [*self.model.weights, *state], "broadcast_callback")


class MetricAverageCallback(AverageMetrics):
    """Replaces the metrics of an epoch by their means over all members: callbacks after it in the list see those."""

    def __init__(self, device: str = "") -> None:
        super().__init__(current_ring("hvd.callbacks.MetricAverageCallback()"))


class LearningRateScheduleCallback(InternalCallback):
    """Multiplies a learning rate by a number, or by a function of the epoch, from one epoch to another."""

    def __init__(
        self,
        initial_lr: float,
        multiplier: float | Callable[[float], float],
        start_epoch: int = 0,
        end_epoch: int | None = None,
        staircase: bool = True,
        momentum_correction: bool = True,
        steps_per_epoch: int | None = None,
    ) -> None:
        """`staircase`: once an epoch, else in each step, where `multiplier` gets fractions of epochs.

        Raises SpecError without a learning rate.
        """
        super().__init__()
        if initial_lr is None:
            raise SpecError("hvd.callbacks: pass initial_lr=, the learning rate at the start of training")
        self._initial = initial_lr
        self._multiplier = multiplier if callable(multiplier) else lambda epoch: multiplier
        self._range = (start_epoch, float("inf") if end_epoch is None else end_epoch)
        self._staircase = staircase or not callable(multiplier)
        self._corrects = momentum_correction
        self._steps = steps_per_epoch
        self._epoch = 0

    def on_train_begin(self, logs: Any = None) -> None:
        """Raises SpecError where the number of steps is needed and unknown, and for a schedule of Keras."""
        optimizer = self.model.optimizer
        if isinstance(optimizer._learning_rate, keras.optimizers.schedules.LearningRateSchedule):
            raise SpecError(
                f"hvd.callbacks.{type(self).__name__} needs a learning rate that is a number, not a schedule"
            )
        self._steps = self._steps or self.params.get("steps")
        if not self._staircase and not self._steps:
            raise SpecError(
                f"hvd.callbacks.{type(self).__name__}: the steps of an epoch are unknown: pass steps_per_epoch="
            )
        if self._corrects and getattr(optimizer, "momentum", None):
            notice("momentum_correction of Horovod's callbacks has no effect: Keras 3 compiles momentum into the step")

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """See base class."""
        self._epoch = epoch

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """See base class."""
        first, end = self._range
        if not first <= self._epoch < end:
            return
        if not self._staircase:
            self._set(self._epoch + batch / self._steps)  # type: ignore[operator] # checked at the start
        elif batch == 0:
            self._set(self._epoch)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """See base class."""
        if logs is not None:
            logs["lr"] = float(self.model.optimizer.learning_rate)

    def _set(self, epoch: float) -> None:
        self.model.optimizer.learning_rate.assign(self._initial * self._multiplier(epoch))


class LearningRateWarmupCallback(LearningRateScheduleCallback):
    """Raises the learning rate in each step to `initial_lr` from that of one member (arXiv 1706.02677, section 2.2)."""

    def __init__(
        self,
        initial_lr: float,
        warmup_epochs: int = 5,
        momentum_correction: bool = True,
        steps_per_epoch: int | None = None,
        verbose: int = 0,
    ) -> None:
        """`initial_lr` is the rate of the whole gang, which is reached after `warmup_epochs`."""
        ring = current_ring("hvd.callbacks.LearningRateWarmupCallback()")

        def rise(epoch: float) -> float:
            progress = epoch + 1.0 / (self._steps or 1)  # the last step of the warm-up has the full rate
            return (progress * (ring.size - 1) / warmup_epochs + 1) / ring.size

        super().__init__(initial_lr, rise, 0, warmup_epochs, False, momentum_correction, steps_per_epoch)
        self._warmup_epochs = warmup_epochs
        self._shows = verbose > 0 and ring.rank == 0

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """See base class."""
        super().on_epoch_end(epoch, logs)
        if self._shows and epoch == self._warmup_epochs - 1:
            rate = float(self.model.optimizer.learning_rate)
            print(f"Epoch {epoch + 1}: finished gradual learning rate warmup to {rate:g}.")


def __getattr__(name: str) -> Any:
    if name in _ELSEWHERE:
        raise SpecError(f"hvd.callbacks.{name} is not there: {_ELSEWHERE[name]}")
    raise AttributeError(f"module 'horovod.keras.callbacks' has no attribute {name!r}")


__all__ = [
    "BroadcastGlobalVariablesCallback",
    "LearningRateScheduleCallback",
    "LearningRateWarmupCallback",
    "MetricAverageCallback",
]
