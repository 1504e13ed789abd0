"""What the members of a gang do together after a step of `fit`: they stop, change their ring, copy their state."""

from typing import Any

from sparktrain.training.elastic.step_boundary import AGREE_S, StepBoundary
from sparktrain.training.frameworks.keras.checkpoint_callbacks import FIT_STATE, fit_content
from sparktrain.training.frameworks.keras.spread_model import is_spread
from sparktrain.training.frameworks.keras.user_callbacks import (
    STOP,
    CallbackStateKeeper,
    InternalCallback,
    stops_midway,
)
from sparktrain.training.notices import notice


class MeetAtBoundary(InternalCallback):
    """Has the members agree after steps, and at the end of each epoch, after the user's callbacks.

    They agree after each step if a user's callback that might stop is called then. One that stops although its code
    does not show it waits until they agree. A memory checkpoint that is due with the last step of an epoch is taken at
    the end of the epoch, and one that is due between two averages of `local_steps` after the next one.
    """

    last = True

    def __init__(self, boundary: StepBoundary, keep: CallbackStateKeeper) -> None:
        super().__init__()
        self._boundary = boundary
        self._keep = keep
        self._position = keep.position
        self._midway = False
        self._asks = False
        """Whether a callback has stopped this member at a step at which the members do not agree."""

    def on_train_begin(self, logs: Any = None) -> None:
        """See base class."""
        position = self._position
        # Members take turns, and no single one can copy variables that all of them hold.
        off = is_spread() or position.stopped or position.stages.behind(position.fit)
        self._boundary.start(position.step, copies=not off)
        self._midway = stops_midway(self)
        self._asks = False

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Raises RingError, and what a copy raises."""
        position = self._position
        has_stopped = self.model.stop_training and not position.cut
        if self._boundary.is_alone or self._boundary.is_due(position.step):
            self._agree(has_stopped)
        elif has_stopped:
            self._ask()
        if not position.at_epoch_end:
            self._take(position.epoch, position.batch)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Raises RingError, and what a copy raises."""
        if not self._boundary.is_alone:
            self._agree(self.model.stop_training)
        elif self._boundary.stops:
            self.model.stop_training = True
        if not self.model.stop_training or self._position.at_epoch_end:
            self._take(epoch + 1, 0)

    def _agree(self, has_stopped: bool) -> None:
        position = self._position
        self._boundary.agree(position.step, asks=has_stopped or self._asks, each_step=self._midway)
        position.stopped = position.stopped or self._boundary.stops
        self.model.stop_training = self._boundary.stops or self._boundary.asked or position.cut

    def _ask(self) -> None:
        """Continue until the members agree: one that leaves its loop alone would keep the others waiting."""
        self.model.stop_training = False
        if self._asks:
            return
        self._asks = True
        notice(
            f"a callback has stopped training after step {self._position.step}, and no callback that is called at each "
            f"step has {STOP} in its code: the members stop together up to about {AGREE_S:g} s later. To have them "
            f"stop after the very step, set model.{STOP} in a method of the callback's class"
        )

    def _take(self, epoch: int, batch: int) -> None:
        self._boundary.take((self.model,), self._position.step, (epoch, batch), self._content)

    def _content(self) -> dict[str, Any]:
        return {FIT_STATE: fit_content(self._position, self._keep, self.model)}
