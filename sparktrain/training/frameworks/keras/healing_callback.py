"""Lets a `fit` on TensorFlow continue in the same process when another member of its gang is lost."""

from typing import TYPE_CHECKING, Any

import keras

from sparktrain.config.environment import TENSORFLOW
from sparktrain.errors import RingError
from sparktrain.training.collectives.ring_healing import RingHealing
from sparktrain.training.frameworks.keras.distributed_apply import own_apply, own_optimizers
from sparktrain.training.frameworks.keras.keras_framework import backend_in_use
from sparktrain.training.frameworks.keras.user_callbacks import (
    CallbackStateKeeper,
    InternalCallback,
    ResumedState,
    is_default,
    is_of_keras,
    listed,
)

if TYPE_CHECKING:
    from sparktrain.training.frameworks.tensorflow.healing.surviving_fit import SurvivingFit

_INTERNALS = ("_autoconvert_optionals", "_compile_metrics", "_compute_loss", "_distribute_strategy")
"""What a step that can be repeated uses of Keras's trainer; another version of Keras may lack it."""
_STARTS = ("on_train_batch_begin", "on_batch_begin")


class BeforeUsers(InternalCallback):
    """The last callback before those of the user: notes their state, for a process that calls them as well."""

    def __init__(self) -> None:
        super().__init__()
        self.fit: SurvivingFit | None = None

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """See base class."""
        if self.fit is not None:
            self.fit.note("on_train_batch_end")

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """See base class."""
        if self.fit is not None:
            self.fit.note("on_epoch_end")


class HealTogether(InternalCallback):
    """The last callback to start: has the steps of this `fit` survive the loss of another member, where they can.

    They can in the first `fit` of a function that has called no collective before it, with Keras's own `train_step` in
    a graph, one step at a time, and with data that another process can read from the same batch on.
    """

    last = True

    def __init__(
        self, healing: RingHealing, keep: CallbackStateKeeper, past: ResumedState, before_users: "BeforeUsers"
    ) -> None:
        super().__init__()
        self._before_users = before_users
        self._fit: SurvivingFit | None = None
        self._healing = healing
        self._keep = keep
        self._past = past
        self._quiet = False

    def set_model(self, model: Any) -> None:
        """See base class. Comes before any callback of this `fit` calls a collective."""
        super().set_model(model)
        self._quiet = self._healing.continuity.started == 0
        self._healing.continuity.is_equal = None

    def on_train_begin(self, logs: Any = None) -> None:
        """Put a step that can be repeated in the place of Keras's."""
        arrival = self._healing.arrival
        if self._quiet and self._can_repeat() and not (arrival is not None and arrival.most_advanced.is_loop):
            from sparktrain.training.frameworks.tensorflow.healing.surviving_fit import SurvivingFit

            callbacks = listed(self)
            internal = [entry for entry in callbacks.callbacks if isinstance(entry, InternalCallback)]
            self._fit = self._before_users.fit = SurvivingFit(
                self.model, self._healing, self._keep, self._past, internal
            )
            self._fit.start()
        elif arrival is not None:
            raise RingError("the members of the ring train in a fit() that this process does not start")

    def on_train_end(self, logs: Any = None) -> None:
        """See base class."""
        if self._fit is not None:
            self._fit.end()
        self._fit = self._before_users.fit = None

    def _can_repeat(self) -> bool:
        model = self.model
        position = self._keep.position
        optimizer = own_apply(getattr(model, "optimizer", None))
        metrics = getattr(model, "_compile_metrics", None)
        plain = (
            backend_in_use() == TENSORFLOW
            and all(hasattr(model, name) for name in _INTERNALS)
            and vars(model).get("train_step") is None
            and type(model).train_step is keras.Model.train_step
            and not (model.run_eagerly or model.jit_compile or own_optimizers(model))
            and model._distribute_strategy is None
            and model.steps_per_execution == 1
        )
        return (
            plain
            and optimizer is not None
            and hasattr(optimizer, "passenger")
            and (metrics is None or metrics.built)
            and position.fit == 1
            and (position.ordered or bool(position.feeds))
            and not position.stopped
            and self._callbacks_can()
        )

    def _callbacks_can(self) -> bool:
        """Whether another process may call the users' callbacks as it starts a step a second time."""
        callbacks = listed(self)
        if callbacks is None:
            return False
        external = [entry for entry in callbacks.callbacks if not isinstance(entry, InternalCallback)]
        return all(is_of_keras(entry) or is_default(entry, *_STARTS) for entry in external)
