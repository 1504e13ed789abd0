"""Ties the Keras callbacks to the context of a member. Loads TensorFlow and Keras."""

from collections.abc import Callable
from typing import Any

from sparktrain.clock import Clock
from sparktrain.training.callbacks import Ties
from sparktrain.training.callbacks import keras_callbacks as callbacks
from sparktrain.training.checkpoint import Checkpoints
from sparktrain.training.checkpoint import Restored as Saved
from sparktrain.training.checkpointing import Restored
from sparktrain.training.checksum import check_equal, check_same_program
from sparktrain.training.position import Position
from sparktrain.training.ring import Ring


class KerasSnapshots:
    """What `fit` saves and restores, by way of `ctx.checkpoint`."""

    def __init__(self, checkpoints: Checkpoints, keep: int) -> None:
        self._checkpoints = checkpoints
        self._keep = keep

    def restore(self, model: Any) -> Restored | None:
        """Set the built model and its optimizer to the newest checkpoint. Raises UserError, CheckpointError."""
        found = self._checkpoints.restore(model)
        return None if found is None else _Place(found)

    def save(self, model: Any, step: int, epoch: int, batch: int, score: float | None) -> None:
        """Copy what `restore` needs; it is written meanwhile."""
        self._checkpoints.save(step, model, epoch=epoch, batch=batch, score=score, keep=self._keep)


class _Place:
    """Where in `fit` a checkpoint was taken; one that a loop of the user's saved has no epoch."""

    def __init__(self, saved: Saved) -> None:
        self.step = saved.step
        self.epoch = saved.epoch or 0
        self.batch = saved.batch or 0


def keras_callbacks(
    ring: Ring,
    position: Position,
    clock: Clock,
    checkpoints: Checkpoints,
    report: Callable[..., None],
    should_stop: Callable[[], bool],
    stepped: Callable[[int, bool], None],
    *,
    keep: int,
    **options: Any,
) -> list[Any]:
    """See `TrainContext.keras_callbacks`. Raises SpecError."""

    def compare(model: Any, steps: int | None) -> None:
        check_same_program(ring, model, steps=steps)

    def check(model: Any) -> None:
        if ring.size > 1:
            check_equal(ring, model)

    snapshots = KerasSnapshots(checkpoints, keep)
    ties = Ties(ring, position, clock, report, should_stop, stepped, compare, check, snapshots)
    return callbacks(ties, **options)
