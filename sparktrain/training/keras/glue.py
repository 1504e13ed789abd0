"""Ties the Keras callbacks to the context of a member. Loads TensorFlow and Keras."""

from collections.abc import Callable
from typing import Any

from sparktrain.clock import Clock
from sparktrain.training.checkpoint.saver import CheckpointSaver
from sparktrain.training.collectives.consistency import check_equal, check_same_program
from sparktrain.training.collectives.ring import Ring
from sparktrain.training.data.position import Position
from sparktrain.training.keras.callbacks import CallbackDeps
from sparktrain.training.keras.callbacks import keras_callbacks as callbacks
from sparktrain.training.keras.fit_stages import StagePosition

_FIT = "fit()"
"""What `fit` saves beside its model."""


class KerasSnapshots:
    """What `fit` saves and restores, by way of `ctx.checkpoint`."""

    def __init__(self, checkpoints: CheckpointSaver, keep: int) -> None:
        self._checkpoints = checkpoints
        self._keep = keep

    def peek(self) -> StagePosition | None:
        """Where the newest checkpoint was made; one that a loop of the user's saved has no epoch. CheckpointError."""
        found = self._checkpoints.peek()
        return (
            None
            if found is None
            else StagePosition(found.step, found.epoch or 0, found.batch or 0, found.extra.get(_FIT, {}))
        )

    def restore(self, model: Any, *, alike: bool) -> None:
        """Set the built model and its optimizer to the newest checkpoint. Raises UserError, CheckpointError."""
        self._checkpoints.restore(model, alike=alike)

    def save(self, model: Any, place: StagePosition, score: float | None) -> None:
        """Copy what `restore` needs; it is written meanwhile."""
        content: dict[str, Any] = {_FIT: dict(place.content)}
        self._checkpoints.save(
            place.step, model, epoch=place.epoch, batch=place.batch, score=score, keep=self._keep, **content
        )


def keras_callbacks(
    ring: Ring,
    position: Position,
    clock: Clock,
    checkpoints: CheckpointSaver,
    report: Callable[..., None],
    should_stop: Callable[[], bool],
    stepped: Callable[[int, bool], None],
    *,
    own_folders: tuple[str, ...],
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
    ties = CallbackDeps(ring, position, clock, report, should_stop, stepped, compare, check, snapshots, own_folders)
    return callbacks(ties, **options)
