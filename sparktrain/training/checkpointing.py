"""When a model is saved and where training goes on: the Keras side of checkpoints."""

from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

import keras
import numpy as np
import tensorflow as tf

from sparktrain.clock import Clock
from sparktrain.errors import SpecError
from sparktrain.spec.quantities import seconds
from sparktrain.spec.values import described, did_you_mean, shown
from sparktrain.training.position import Position
from sparktrain.training.ring import Ring


class Restored(Protocol):
    """Where the checkpoint was made that a model has been restored from."""

    step: int
    """Steps in all."""
    epoch: int
    """The epoch to go on in, from 0."""
    batch: int
    """Steps of that epoch that are done."""


class Snapshots(Protocol):
    """Where models are saved and restored; made for one member."""

    def restore(self, model: Any) -> Restored | None:
        """Set the built `model` and its optimizer to the newest checkpoint; None where there is none."""
        ...

    def save(self, model: Any, step: int, epoch: int, batch: int, score: float | None) -> None:
        """Save what `restore` needs; returns when the copy is taken. Only the chief calls it."""
        ...


@dataclass(frozen=True)
class Cadence:
    """How often a checkpoint is made: one of the three, or never."""

    steps: int | None = None
    seconds: float | None = None
    epochs: bool = False

    @classmethod
    def of(cls, value: Any) -> "Cadence":
        """From a number of steps, a time such as "30s", "epoch", or None. Raises SpecError."""
        if value is None:
            return cls()
        if value == "epoch":
            return cls(epochs=True)
        if isinstance(value, str):
            return cls(seconds=seconds(value, "checkpoint_every"))
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise SpecError(
                f"checkpoint_every is {described(value)}; pass a number of steps, a time such as '30s', or 'epoch'"
            )
        return cls(steps=value)


@dataclass(frozen=True)
class Scoring:
    """By which metric one checkpoint is better than another. Construction raises SpecError for another mode."""

    monitor: str | None
    mode: str

    def __post_init__(self) -> None:
        if self.mode not in ("max", "min"):
            raise SpecError(f"mode ({shown(self.mode)}) must be 'max' or 'min'")

    def score(self, logs: dict[str, Any]) -> float | None:
        """Larger is better; None without a monitor. Raises SpecError where the metric is missing."""
        if self.monitor is None:
            return None
        if self.monitor not in logs:
            names = ", ".join(map(repr, sorted(logs)))
            raise SpecError(
                f"monitor {self.monitor!r} is none of the metrics {names}{did_you_mean(self.monitor, logs)}"
            )
        value = float(logs[self.monitor])
        return value if self.mode == "max" else -value


class Resume(keras.callbacks.Callback):  # type: ignore[misc] # Keras has no types
    """Builds the model and its optimizer, and goes on from the newest checkpoint; all members where the chief does.

    Goes before the callback that hands the chief's variables to the others. In an epoch that is resumed in its middle
    metrics go on too, where they were saved; they are those of the chief.
    """

    def __init__(self, ring: Ring, position: Position, snapshots: Snapshots | None) -> None:
        super().__init__()
        self._ring = ring
        self._position = position
        self._snapshots = snapshots
        self._metrics: list[tuple[Any, Any]] = []

    def on_train_begin(self, logs: Any = None) -> None:
        """Raises SpecError where the model cannot be built yet, and CheckpointError."""
        if self._snapshots is None and self._ring.size == 1:
            return
        _build(self.model, self._position.spec)
        if self._snapshots is None or self._position.opened:
            return
        self._position.opened = True
        restored = self._snapshots.restore(self.model)
        mine = [restored.step, restored.epoch, restored.batch] if restored else [-1, 0, 0]
        [agreed] = self._ring.broadcast([tf.constant(mine, tf.int64)], name="resume")
        step, epoch, batch = np.asarray(agreed).tolist()
        if step >= 0:
            self._go_on(step, epoch, batch)

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """See base class."""
        self.model._initial_epoch = None  # has been heeded; another fit begins where it says
        for variable, value in self._metrics:
            variable.assign(value)
        self._metrics = []

    def _go_on(self, step: int, epoch: int, batch: int) -> None:
        if batch and not self._position.feeds:
            print(f"[sparktrain] epoch {epoch} begins anew: only data of ctx.shard() can be resumed in its middle")
            batch = 0
        self.model._initial_epoch = epoch
        self._position.resume(epoch, batch, step)
        if batch:
            variables = [each for metric in self.model.metrics for each in metric.variables]
            self._metrics = [(each, each.numpy()) for each in variables]


class SaveCheckpoints(keras.callbacks.Callback):  # type: ignore[misc] # Keras has no types
    """Saves the model when it is due; for the chief alone, and as the last of our callbacks.

    What falls due with the last step of an epoch is saved when the epoch has ended, and goes on in the next one. An
    epoch that was stopped in its middle is not saved.
    """

    def __init__(
        self, position: Position, snapshots: Snapshots, cadence: Cadence, scoring: Scoring, clock: Clock
    ) -> None:
        super().__init__()
        self._position = position
        self._snapshots = snapshots
        self._cadence = cadence
        self._scoring = scoring
        self._clock = clock
        self._last = (0, 0.0)

    def on_train_begin(self, logs: Any = None) -> None:
        """See base class."""
        self._last = (self._position.step, self._clock.now())

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Raises what saving raises."""
        if self._due() and not self._position.at_epoch_end and not self.model.stop_training:
            self._save(self._position.epoch, self._position.batch, None)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Raises what saving raises."""
        if self.model.stop_training and not self._position.at_epoch_end:
            return
        if self._cadence.epochs or self._scoring.monitor is not None or self._due():
            self._save(epoch + 1, 0, self._scoring.score(logs or {}))

    def _due(self) -> bool:
        step, at = self._last
        if self._cadence.steps is not None:
            return self._position.step - step >= self._cadence.steps
        return self._cadence.seconds is not None and self._clock.now() - at >= self._cadence.seconds

    def _save(self, epoch: int, batch: int, score: float | None) -> None:
        self._snapshots.save(self.model, self._position.step, epoch, batch, score)
        self._last = (self._position.step, self._clock.now())


def optimizers_of(model: Any) -> list[Any]:
    """The model's optimizer and those that it wraps."""
    found = []
    optimizer = getattr(model, "optimizer", None)
    while optimizer is not None:
        found.append(optimizer)
        optimizer = getattr(optimizer, "inner_optimizer", None)
    return found


def _build(model: Any, spec: Any) -> None:
    """Make all variables of `model`, its metrics and its optimizer; `spec`: of its batches, None where not known."""
    if not optimizers_of(model):
        raise SpecError("the model has no optimizer: compile it with optimizer=ctx.distribute(...)")
    leaves = [] if spec is None else tf.nest.flatten(spec)
    if leaves and all(isinstance(each, tf.TensorSpec | tf.NoneTensorSpec) for each in leaves):
        batch = tf.nest.map_structure(lambda each: each if isinstance(each, tf.TensorSpec) else None, spec)
        with suppress(RuntimeError):  # that says to build it by hand, as we do below
            model._symbolic_build(data_batch=batch)
    if not model.built:
        raise SpecError(
            "the model has no variables yet, which all members must begin with: give it an Input layer, or build() it "
            "before fit()"
        )
    if not model.optimizer.built:
        model.optimizer.build(model.trainable_variables)
