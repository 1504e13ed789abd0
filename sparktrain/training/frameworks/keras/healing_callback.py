"""Lets a `fit` continue in the same process when another member of its gang is lost."""

from typing import TYPE_CHECKING, Any

import keras

from sparktrain.errors import RingError
from sparktrain.training.collectives.ring_healing import RingHealing
from sparktrain.training.elastic.step_boundary import StepBoundary
from sparktrain.training.frameworks.imported import fits_of
from sparktrain.training.frameworks.keras.checkpoint_callbacks import build_all, drawn_digest
from sparktrain.training.frameworks.keras.distributed_apply import own_apply, own_optimizers
from sparktrain.training.frameworks.keras.keras_framework import backend_in_use
from sparktrain.training.frameworks.keras.user_callbacks import (
    CallbackStateKeeper,
    EventStage,
    InternalCallback,
    ResumedState,
    is_default,
    is_of_keras,
    listed,
)

if TYPE_CHECKING:
    from sparktrain.training.frameworks.keras.healing.surviving_fit import SurvivingFit

_INTERNALS = ("_compile_metrics", "_compute_loss")
"""What a step that can be repeated uses of Keras's trainer; another version of Keras may lack it."""
_STARTS = ("on_train_batch_begin", "on_batch_begin")


class StageMark(InternalCallback):
    """Has its place in the list of callbacks where a stage of an event starts, and lets the healing know of it."""

    def __init__(self, stage: EventStage, together: "HealTogether") -> None:
        super().__init__()
        self.last = stage is EventStage.AFTER
        self._stage = stage
        self._together = together

    def on_train_begin(self, logs: Any = None) -> None:
        """The first mark comes before the callback that resumes, which may wait for the others."""
        if self._stage is EventStage.BEFORE:
            self._together.prepare()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """See base class."""
        if (fit := self._together.fit) is not None:
            fit.enter("on_train_batch_end", self._stage, batch, logs)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """See base class."""
        if (fit := self._together.fit) is not None:
            fit.enter("on_epoch_end", self._stage)


class HealTogether(InternalCallback):
    """The last callback: has the steps of this `fit` survive the loss of another member, where they can.

    They can in the first `fit` of a function that has called no collective before it, with Keras's own `train_step`,
    one step at a time, with a framework that can repeat it, and with data that another process can read from the same
    batch on.
    """

    last = True

    def __init__(
        self, healing: RingHealing, boundary: StepBoundary, keep: CallbackStateKeeper, past: ResumedState
    ) -> None:
        super().__init__()
        self._boundary = boundary
        self.marks = [StageMark(stage, self) for stage in EventStage]
        self.fit: SurvivingFit | None = None
        self._healing = healing
        self._keep = keep
        self._past = past
        self._quiet = False

    def set_model(self, model: Any) -> None:
        """See base class. Comes before any callback of this `fit` calls a collective."""
        super().set_model(model)
        self._quiet = self._healing.ring.continuity.started == 0
        self._healing.ring.continuity.checks_echoes = False

    def on_train_begin(self, logs: Any = None) -> None:
        """Put a step that can be repeated in the place of Keras's."""
        fit = self.fit or self._surviving_fit()
        if fit is not None:
            fit.resume()
        elif self._healing.arrival is not None or self._healing.awaits_state:
            raise RingError("the members of the ring train in a fit() that this process does not start")

    def on_train_end(self, logs: Any = None) -> None:
        """See base class."""
        if self.fit is not None:
            self.fit.end()
        self.fit = None

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """See base class."""
        if self.fit is not None:
            self.fit.leave()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """See base class."""
        if self.fit is not None:
            self.fit.leave()

    def prepare(self) -> None:
        """In a process that is about to wait for its place, or for the state of the others: build the model, and trace
        its step."""
        if not (self._healing.waits or self._healing.awaits_state):
            return
        self._past.drawn = drawn_digest()
        build_all(self.model, self._keep.position.spec, needed=False)
        fit = self._surviving_fit() if self.model.built else None
        if fit is not None:
            if not self._healing.waits:  # beside other members a process that waits takes no more than it must
                fit.make_room()
            fit.trace()

    def _surviving_fit(self) -> "SurvivingFit | None":
        """What has a step that can be repeated take the place of Keras's; None where the fit does not allow it."""
        fits = fits_of(backend_in_use())
        if fits is None or not (self._quiet and self._can_repeat()):
            return None
        step = fits.healing_step(self.model, self._healing)
        if step is None or self.model.jit_compile != step.needs_compiler:
            return None
        from sparktrain.training.frameworks.keras.healing.surviving_fit import SurvivingFit

        self.fit = fit = SurvivingFit(
            self.model, step, self._healing, self._boundary, self._keep, self._past, listed(self).callbacks
        )
        fit.start()
        return fit

    def _can_repeat(self) -> bool:
        model = self.model
        position = self._keep.position
        optimizer = own_apply(getattr(model, "optimizer", None))
        metrics = getattr(model, "_compile_metrics", None)
        plain = (
            all(hasattr(model, name) for name in _INTERNALS)
            and vars(model).get("train_step") is None
            and type(model).train_step is keras.Model.train_step
            and not own_optimizers(model)
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
