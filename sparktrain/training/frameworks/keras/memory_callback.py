"""Takes snapshots in memory during `fit`, as often as their budget allows, on each host of a gang."""

from typing import Any

from sparktrain.base.clock import Clock
from sparktrain.training.checkpoint.memory_saver import MemorySaver
from sparktrain.training.collectives.ring import Ring
from sparktrain.training.elastic.step_boundary import StepBoundary
from sparktrain.training.frameworks.keras.checkpoint_callbacks import FIT_STATE, fit_content
from sparktrain.training.frameworks.keras.spread_model import is_spread
from sparktrain.training.frameworks.keras.user_callbacks import Agreed, CallbackStateKeeper, InternalCallback


class TakeSnapshots(InternalCallback):
    """Members take a snapshot after the same step, with the chief's random numbers and state of `fit`.

    After the user's callbacks, as `SaveCheckpoints`: a snapshot that is due with the last step of an epoch is taken at
    the end of the epoch, and one that is due between two averages of `local_steps` after the next one.
    """

    last = True

    def __init__(
        self, ring: Ring, memory: MemorySaver, keep: CallbackStateKeeper, interval_s: float | None, clock: Clock
    ) -> None:
        super().__init__()
        self._boundary = StepBoundary(ring, clock, lambda: False, memory=memory, interval_s=interval_s)
        self._keep = keep
        self._position = keep.position

    def on_train_begin(self, logs: Any = None) -> None:
        """See base class."""
        position = self._position
        # Members take turns, and no single one can copy variables that all of them hold.
        off = is_spread() or position.stopped or position.stages.behind(position.fit)
        self._boundary.start(position.step, copies=not off)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Raises RingError."""
        position = self._position
        if self._boundary.is_due(position.step):
            self._boundary.agree(position.step)
        if not position.at_epoch_end:
            self._take(position.epoch, position.batch)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Raises RingError."""
        if not self.model.stop_training or self._position.at_epoch_end:
            self._take(epoch + 1, 0)

    @property
    def repeatable(self) -> bool:  # type: ignore[override] # an attribute
        """See base class."""
        return not self._boundary.sending

    def agreed(self) -> Agreed:
        """See base class."""
        return self._boundary.agreed()

    def continue_with(self, agreed: Agreed) -> None:
        """See base class."""
        self._boundary.continue_with(self._position.step, agreed)

    def before_move(self) -> None:
        """See base class. The host that the member leaves has a copy that is lost soon."""
        self._boundary.hasten(self._position.step)

    def on_heal(self, step: int) -> None:
        """See base class."""
        self._boundary.forget_parts()

    def _take(self, epoch: int, batch: int) -> None:
        self._boundary.take((self.model,), self._position.step, (epoch, batch), self._content)

    def _content(self) -> dict[str, Any]:
        return {FIT_STATE: fit_content(self._position, self._keep, self.model)}
