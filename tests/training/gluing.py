"""Shared by the tests of feeds and callbacks: data with numbers as examples, and models that note what they see."""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from sparktrain.training.checkpoint.extras import pack, unpack
from sparktrain.training.collectives.ring import LocalRing
from sparktrain.training.data.fit_stages import StagePosition
from sparktrain.training.data.position import Position
from sparktrain.training.elastic.step_boundary import StepBoundary
from sparktrain.training.frameworks.keras.callbacks import CallbackDeps, keras_callbacks
from sparktrain.training.frameworks.keras.user_callbacks import InternalCallback
from sparktrain.training.frameworks.tensorflow.data.shard import shard
from tests.training import rowed

EXAMPLES = 90
BATCH = 4

ids = np.arange(EXAMPLES, dtype=np.float32).reshape(-1, 1)


def known() -> Any:
    """A dataset of known length, with a new order in each epoch."""
    data = tf.data.Dataset.from_tensor_slices((ids, ids))
    return data.shuffle(30, seed=5, reshuffle_each_iteration=True).batch(BATCH)


def unknown() -> Any:
    """As `known`, of a length that TensorFlow does not know."""
    data = tf.data.Dataset.from_tensor_slices((ids, ids)).filter(lambda x, y: x[0] >= 0)
    return data.shuffle(30, seed=5).batch(BATCH)


def twice_shuffled() -> Any:
    """Shards in an order that changes, then their examples."""
    shards = tf.data.Dataset.range(9).shuffle(9, seed=3)
    rows = shards.interleave(lambda at: tf.data.Dataset.from_tensor_slices(ids).skip(at * 10).take(10), cycle_length=3)
    return rows.shuffle(20, seed=4).map(lambda x: (x, x)).batch(BATCH)


def shuffled_and_cached() -> Any:
    """An order that is kept from the first epoch on, followed by one that changes."""
    data = tf.data.Dataset.from_tensor_slices((ids, ids)).shuffle(30, seed=6).cache()
    return data.shuffle(30, seed=5).batch(BATCH)


def endless() -> Any:
    """A dataset without an end."""
    return tf.data.Dataset.from_tensor_slices((ids, ids)).shuffle(30, seed=5).repeat().batch(BATCH)


def generator() -> Iterator[Any]:
    """Batches of a Python function."""
    for start in range(0, EXAMPLES, BATCH):
        yield ids[start : start + BATCH], ids[start : start + BATCH]


def feed_of(kind: str, position: Position | None, *, rank: int = 0, size: int = 1, uneven: str = "drop") -> Any:
    """This member's share of data of `kind`, rebuilt as in another process."""
    place: Any = {"rank": rank, "size": size, "uneven": uneven, "position": position}
    if kind == "arrays":
        return shard((ids, ids), batch_size=BATCH, shuffle=True, seed=8, **place)
    if kind == "rows":
        ref, cache = rowed.numbers(EXAMPLES)
        data = rowed.opened(ref, rank, size, position, cache)
        return data.to_tf(batch_size=BATCH, feature_columns="x", label_columns="x", shuffle=True, uneven=uneven)
    if kind == "generator":
        return shard(generator, **place)
    return shard(globals()[kind](), **place)


def steps_of(data: Any) -> int | None:
    """Steps of `fit` in an epoch of the dataset; None if they are unknown or endless."""
    return steps if (steps := int(data.cardinality())) >= 0 else None


class Witness(keras.Model):
    """A linear model that notes the examples of each step it trains on."""

    def __init__(self) -> None:
        super().__init__()
        self.dense = keras.layers.Dense(1, kernel_initializer="zeros")
        self.seen: list[list[int]] = []

    def call(self, x: Any) -> Any:
        return self.dense(x)

    def train_step(self, data: Any) -> Any:
        tf.numpy_function(lambda x: self.seen.append(x[:, 0].astype(int).tolist()), [data[0]], [])
        return super().train_step(data)


class Memory:
    """Snapshots that are kept in memory, of all that a model holds; what else is saved is kept as JSON has it."""

    def __init__(self) -> None:
        self.saved: list[tuple[StagePosition, float | None, list[Any]]] = []
        self.restored: list[StagePosition] = []
        self.moves = False
        self.waits: list[int] = []
        """The steps after which the training has waited to move."""

    def is_move_due(self) -> bool:
        moves, self.moves = self.moves, False
        return moves

    def await_move(self) -> None:
        self.waits.append(self.saved[-1][0].step)

    def peek(self) -> StagePosition | None:
        return self.saved[-1][0] if self.saved else None

    def restore(self, model: Any, *, alike: bool) -> int:
        if not self.saved:  # only the chief has one
            return 0
        at, _, values = self.saved[-1]
        for variable, value in zip(self._variables(model), values, strict=False):  # metrics may not be built yet
            variable.assign(value)
        self.restored.append(at)
        return 0

    def save(self, model: Any, place: StagePosition, members: Sequence[Any], score: float | None) -> None:
        values = [variable.numpy() for variable in self._variables(model)]
        packed, arrays = pack(dict(place.content))
        content = unpack(json.loads(json.dumps(packed)), arrays)
        self.saved.append((replace(place, content=content), score, values))

    def _variables(self, model: Any) -> list[Any]:
        metrics = [variable for metric in model.metrics for variable in metric.variables]
        return [*model.weights, *model.optimizer.variables, *metrics]


class Hand:
    """A clock that is moved by hand."""

    def __init__(self) -> None:
        self.time = 0.0

    def now(self) -> float:
        return self.time

    def wall(self) -> float:
        return self.time

    async def sleep(self, seconds: float) -> None:
        raise AssertionError


@dataclass
class Outside:
    """Records the reports of a member's callbacks, and answers them."""

    reports: list[tuple[int, dict[str, float]]] = field(default_factory=list)
    steps: list[tuple[int, bool]] = field(default_factory=list)
    checks: list[int] = field(default_factory=list)
    compared: list[tuple[Any, int | None]] = field(default_factory=list)
    stop: bool = False
    clock: Hand = field(default_factory=Hand)
    position: Position = field(default_factory=Position)

    def check(self, model: Any) -> None:
        self.checks.append(int(model.optimizer.iterations))

    def compare(self, model: Any, steps: int | None) -> None:
        self.compared.append((model, steps))

    def ties(self, ring: Any = None, snapshots: Any = None) -> CallbackDeps:
        def report(step: int, /, **logs: float) -> None:
            self.reports.append((step, logs))
            self.position.reported = step

        return CallbackDeps(
            boundary=StepBoundary(ring or LocalRing(), self.clock, lambda: self.stop),
            position=self.position,
            clock=self.clock,
            report=report,
            stepped=lambda step, training: self.steps.append((step, training)),
            compare=self.compare,
            check=self.check,
            checkpoints=snapshots,
        )


class KilledError(Exception):
    """Stands for the death of a process."""


class Kill(InternalCallback):
    """Raises after so many batches of this process, when all others have been called."""

    last = True

    def __init__(self, batches: int) -> None:
        super().__init__()
        self.left = batches

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.left -= 1
        if self.left <= 0:
            raise KilledError


def member(**compiled: Any) -> Witness:
    """A compiled model with an optimizer that has slots."""
    model = Witness()
    optimizer = keras.optimizers.SGD(1e-5, momentum=0.9)  # more diverges on numbers up to 90
    model.compile(optimizer, loss="mse", metrics=["mae"], **compiled)
    return model


def fitted(
    kind: str | Callable[[Position], Any],
    memory: Memory,
    *,
    every: Any,
    kill: int = 0,
    options: dict[str, Any] | None = None,
    fits: int = 1,
    watch: Sequence[Any] = (),
    **fit: Any,
) -> tuple[Witness, Any]:
    """One process's life: the model after `fit`, and its history; or None for that, where it was killed.

    `kind` is that of `feed_of`, or makes the feed of a member of a gang.
    """
    outside = Outside()
    model = member(**(options or {}))
    data = feed_of(kind, outside.position) if isinstance(kind, str) else kind(outside.position)
    callbacks = keras_callbacks(outside.ties(snapshots=memory), checkpoint_every=every)
    callbacks += [*watch, *([Kill(kill)] if kill else [])]
    try:
        history = model.fit(data, callbacks=callbacks, verbose=0, shuffle=False, **fit)
    except KilledError:
        return model, None
    return model, history.history
