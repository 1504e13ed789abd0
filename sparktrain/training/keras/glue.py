"""Connects the Keras callbacks to the context of a member. Imports TensorFlow and Keras."""

from collections.abc import Callable
from typing import Any

from sparktrain.clock import Clock
from sparktrain.training.checkpoint.memory_saver import MemorySaver
from sparktrain.training.checkpoint.saver import CheckpointSaver
from sparktrain.training.collectives.consistency import check_equal, check_same_program
from sparktrain.training.collectives.ring import Ring
from sparktrain.training.collectives.sync_batch_norm import synchronize_batches
from sparktrain.training.data.position import Position
from sparktrain.training.keras.callbacks import CallbackDeps
from sparktrain.training.keras.callbacks import keras_callbacks as callbacks
from sparktrain.training.keras.fit_stages import StagePosition
from sparktrain.training.keras.loss_scaling import weigh_losses
from sparktrain.training.parameter_server.ps_model import OPTIMIZERS, PsModel

_FIT = "fit()"
"""The name under which `fit` saves its state beside the model."""


class KerasSnapshots:
    """Saves and restores for `fit`, through `ctx.checkpoint`."""

    def __init__(self, checkpoints: CheckpointSaver, keep: int, ps_model: PsModel | None = None) -> None:
        self._checkpoints = checkpoints
        self._keep = keep
        self._ps_model = ps_model

    def peek(self) -> StagePosition | None:
        """The position of the newest checkpoint; one of the user's own loop has no epoch. Raises CheckpointError."""
        newest = self._checkpoints.peek()
        return (
            None
            if newest is None
            else StagePosition(newest.step, newest.epoch or 0, newest.batch or 0, newest.extra.get(_FIT, {}))
        )

    def restore(self, model: Any, *, alike: bool) -> None:
        """Set the built model and its optimizer to the newest checkpoint. Raises UserError, CheckpointError."""
        restored = self._checkpoints.restore(model, alike=alike)
        if self._ps_model is not None and restored is not None:
            self._ps_model.restore(restored.extra.get(OPTIMIZERS, []))

    def save(self, model: Any, place: StagePosition, score: float | None) -> None:
        """Copy what `restore` needs; a thread writes the copy."""
        content: dict[str, Any] = {_FIT: dict(place.content)}
        if self._ps_model is not None:
            content[OPTIMIZERS] = self._ps_model.saved()
        self._checkpoints.save(
            place.step, model, epoch=place.epoch, batch=place.batch, score=score, keep=self._keep, **content
        )


class KerasMemory:
    """Takes snapshots in memory for `fit`."""

    def __init__(self, saver: MemorySaver) -> None:
        self._saver = saver

    @property
    def able(self) -> bool:
        """Whether this member can take snapshots."""
        return self._saver.able

    @property
    def busy(self) -> bool:
        """Whether the newest snapshot is not handed over yet."""
        return self._saver.busy

    @property
    def beside_s(self) -> float:
        """What the newest snapshot took beside training, as seconds of all cores; 0 before it is known."""
        return self._saver.beside_s

    @property
    def may_grow(self) -> bool:
        """Whether the gang is smaller than it could be."""
        return self._saver.may_grow

    @property
    def is_pause_due(self) -> bool:
        """Whether the coordinator has asked for a snapshot, after which all members pause."""
        return self._saver.is_pause_due

    def part(self, model: Any, place: StagePosition) -> bytes:
        """The chief's part of a snapshot."""
        return self._saver.part(model, {_FIT: dict(place.content)})

    @property
    def turns(self) -> tuple[int, int]:
        """This member's number among those of its host, and how many they are."""
        return self._saver.turns

    def learn(self, part: bytes) -> None:
        """Note the chief's part of a snapshot that other members take."""
        self._saver.learn(part)

    def take(self, model: Any, place: StagePosition, part: bytes, *, paused: bool) -> None:
        """Copy the state to shared memory; a thread hands it to the agent."""
        self._saver.take(model, place.step, place.epoch, place.batch, part, paused=paused)


def prepare_keras(ring: Ring) -> None:
    """Have Keras's losses and batch normalization in this process know the ring. Later calls do nothing."""
    weigh_losses(ring)
    synchronize_batches(ring)


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
    memory: MemorySaver | None,
    keep: int,
    **options: Any,
) -> list[Any]:
    """See `TrainContext.keras_callbacks`. Raises SpecError."""

    def compare(model: Any, steps: int | None) -> None:
        check_same_program(ring, model, steps=steps)

    def check(model: Any) -> None:
        if ring.size > 1:
            check_equal(ring, model)

    snapshots = KerasSnapshots(checkpoints, keep, ring.ps_model)
    snaps = KerasMemory(memory) if memory is not None else None
    facts = ring, position, clock, report, should_stop, stepped
    deps = CallbackDeps(*facts, compare, check, snapshots, own_folders, snaps)
    return callbacks(deps, **options)
