"""Programs as tutorials have them, each a training function; and how members call them, kill them and call them again.

Each returns numbers that must come out the same in one process, in a gang, and after a kill.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from sparktrain.base.clock import SystemClock
from sparktrain.base.ids import Generation, Member, Rank, RunId, TrialId
from sparktrain.protocol import pipe_messages as m
from sparktrain.training import process_setup
from sparktrain.training.collectives.ring import LocalRing, Ring
from sparktrain.training.context import TrainContext
from sparktrain.training.frameworks.keras.user_callbacks import InternalCallback
from sparktrain.training.gang_join import JoinedGang, alone
from tests.support.member_calls import member_call

ROWS, WHOLE_BATCH = 48, 12
STEPS = ROWS // WHOLE_BATCH

rows = np.random.default_rng(3).normal(size=(ROWS, 5)).astype("float32")
sums = np.sin(rows.sum(1, keepdims=True)).astype("float32")

PROGRAMS: dict[str, Callable[[Any], Any]] = {}


def program(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    PROGRAMS[function.__name__] = function
    return function


# ---- programs


def mlp(ctx: Any, rate: float = 0.1, layers: Any = None, **compiled: Any) -> Any:
    model = keras.Sequential(layers or [keras.Input((5,)), keras.layers.Dense(4, "tanh"), keras.layers.Dense(1)])
    model.compile(ctx.distribute(keras.optimizers.SGD(rate, momentum=0.9)), "mse", run_eagerly=True, **compiled)
    return model


def share(ctx: Any, x: Any = rows, y: Any = sums, **options: Any) -> Any:
    return ctx.shard((x, y), batch_size=WHOLE_BATCH // ctx.size, **options)


def fit(ctx: Any, model: Any, data: Any, *own: Any, callbacks: Any = None, **options: Any) -> list[float]:
    """The losses of all epochs."""
    ours = ctx.keras_callbacks(checkpoint_every=3) if callbacks is None else callbacks
    history = model.fit(data, callbacks=[*ours, *own], verbose=0, shuffle=False, **options)
    return [float(each) for each in history.history.get("loss", [])]


def scored(model: Any) -> float:
    return float(model.evaluate(rows, sums, verbose=0))


def weights(*models: Any) -> list[float]:
    return [float(each) for model in models for array in model.get_weights() for each in array.ravel()]


@program
def frozen_then_tuned(ctx: Any) -> Any:
    base = keras.Sequential([keras.Input((5,)), keras.layers.Dense(4, "tanh")])
    base.trainable = False
    model, data = mlp(ctx, layers=[base, keras.layers.Dense(1)]), share(ctx, shuffle=True)
    losses = [*fit(ctx, model, data, epochs=2), scored(model)]
    base.trainable = True
    model.compile(ctx.distribute(keras.optimizers.Adam(0.01)), "mse", run_eagerly=True)
    return [*losses, *fit(ctx, model, data, epochs=2), scored(model), *weights(model)]


@program
def folds_with_one_list_of_callbacks(ctx: Any) -> Any:
    callbacks = [*ctx.keras_callbacks(checkpoint_every=3), keras.callbacks.EarlyStopping("loss", patience=5)]
    losses = []
    for fold in range(3):
        model = mlp(ctx)
        losses += [
            *fit(ctx, model, share(ctx, rows[6 * fold :][:36], sums[6 * fold :][:36]), callbacks=callbacks, epochs=3)
        ]
        losses += [scored(model), *weights(model)]
    return losses


@program
def folds_drawn_by_chance(ctx: Any) -> Any:
    losses = []
    for _ in range(3):
        chosen = np.random.permutation(ROWS)[:36]  # as members draw alike: all of them are seeded with ctx.seed
        model = mlp(ctx)
        losses += [*fit(ctx, model, share(ctx, rows[chosen], sums[chosen]), epochs=2), scored(model), *weights(model)]
    return losses


@program
def one_epoch_at_a_time(ctx: Any) -> Any:
    model, data, losses = mlp(ctx), share(ctx, shuffle=True), []
    for epoch in range(4):
        losses += fit(ctx, model, data, initial_epoch=epoch, epochs=epoch + 1)
        losses += [scored(model)]
    return [*losses, *weights(model)]


@program
def autoencoder_then_classifier(ctx: Any) -> Any:
    encoder = keras.Sequential([keras.Input((5,)), keras.layers.Dense(3, "tanh")])
    whole = mlp(ctx, layers=[encoder, keras.layers.Dense(5)])
    losses = fit(ctx, whole, share(ctx, rows, rows), epochs=2)
    plain = keras.Sequential([keras.Input((5,)), keras.layers.Dense(1, kernel_initializer="ones")])
    plain.compile("sgd", "mse", run_eagerly=True)
    plain.fit(rows, sums, batch_size=48, epochs=1, verbose=0, shuffle=False)  # no stage: without our callbacks
    classifier = mlp(ctx, layers=[keras.Input((3,)), keras.layers.Dense(1)])
    codes = encoder.predict(rows, verbose=0)
    losses += fit(ctx, classifier, share(ctx, codes, sums), epochs=2)
    losses += fit(ctx, whole, share(ctx, rows, rows), epochs=1)
    return [*losses, *weights(whole, classifier, plain)]


@program
def stopped_early(ctx: Any) -> Any:
    model = mlp(ctx, rate=0.6)
    stop = keras.callbacks.EarlyStopping("loss", patience=2, min_delta=0.05, restore_best_weights=True)
    losses = fit(ctx, model, share(ctx), stop, epochs=12)
    assert len(losses) < 12
    return [*losses, stop.wait, stop.stopped_epoch, stop.best_epoch, stop.best, *weights(model)]


@program
def rates_that_fall(ctx: Any) -> Any:
    model = mlp(ctx)
    plateau = keras.callbacks.ReduceLROnPlateau("loss", factor=0.5, patience=1, min_delta=0.5, cooldown=1)
    falling = keras.callbacks.LearningRateScheduler(lambda epoch, rate: rate * 0.9)
    losses = fit(ctx, model, share(ctx), plateau, falling, epochs=5)
    return [*losses, plateau.wait, plateau.cooldown_counter, float(model.optimizer.learning_rate), *weights(model)]


class Listing(keras.callbacks.Callback):
    """A callback as users write them."""

    def __init__(self) -> None:
        super().__init__()
        self.losses: list[float] = []
        self.best = {"epoch": -1, "loss": np.float32(np.inf)}

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.losses.append(logs["loss"])
        if logs["loss"] < self.best["loss"]:
            self.best = {"epoch": epoch, "loss": np.float32(logs["loss"])}
        self.model.optimizer.learning_rate = 0.1 / (1 + len(self.losses))


@program
def a_callback_of_ones_own(ctx: Any) -> Any:
    model, listing = mlp(ctx), Listing()
    fit(ctx, model, share(ctx), listing, epochs=4)
    return [*listing.losses, listing.best["epoch"], float(listing.best["loss"]), *weights(model)]


class StopAfter(keras.callbacks.Callback):
    """Stops the last member alone."""

    def __init__(self, steps: int, ctx: Any) -> None:
        super().__init__()
        self.left = steps
        self.last_member = ctx.rank == ctx.size - 1

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.left -= 1
        if not self.left and self.last_member:
            self.model.stop_training = True


@program
def stopped_by_one_member(ctx: Any) -> Any:
    model = mlp(ctx)
    fit(ctx, model, share(ctx), StopAfter(6, ctx), epochs=4)
    return [int(model.optimizer.iterations), *weights(model)]


@program
def without_an_input_layer(ctx: Any) -> Any:
    model = mlp(ctx, layers=[keras.layers.Dense(4, "tanh"), keras.layers.Dense(1)])
    mine = np.concatenate(
        [np.array_split(np.arange(at, at + WHOLE_BATCH), ctx.size)[ctx.rank] for at in range(0, ROWS, WHOLE_BATCH)]
    )
    callbacks = ctx.keras_callbacks(checkpoint_every="epoch")
    return [
        *fit(ctx, model, rows[mine], callbacks=callbacks, y=sums[mine], epochs=3, batch_size=WHOLE_BATCH // ctx.size),
        *weights(model),
    ]


@program
def files_of_callbacks(ctx: Any) -> Any:
    """What the chief alone writes, for all to read."""
    shared = Path(ctx.log_dir).parents[2]
    best, log = str(shared / "best.weights.h5"), shared / "log.csv"
    own = [
        keras.callbacks.ModelCheckpoint(best, monitor="loss", save_best_only=True, save_weights_only=True),
        keras.callbacks.CSVLogger(log),
    ]
    model = mlp(ctx)
    fit(ctx, model, share(ctx), *own, epochs=4)
    model.load_weights(best)
    epochs = [[float(number) for number in line.split(",")[:2]] for line in log.read_text().splitlines()[1:]]
    return [each for pair in epochs for each in pair] + weights(model)


@program
def in_a_graph(ctx: Any) -> Any:
    model = mlp(ctx)
    model.run_eagerly = False
    data, losses = share(ctx, shuffle=True), []
    for rate in (0.1, 0.01):
        model.optimizer.learning_rate = rate
        losses += fit(ctx, model, data, epochs=2)
    return [*losses, *weights(model)]


# ---- what calls them


class KilledError(Exception):
    """Stands for the death of all members."""


class Kill(InternalCallback):
    """Raises after so many steps of this process, when all else of the step is done."""

    last = True

    def __init__(self, left: list[int]) -> None:
        super().__init__()
        self._left = left

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self._left[0] -= 1
        if not self._left[0]:
            raise KilledError


class Wire:
    """To an agent that keeps every snapshot where it is."""

    def __init__(self) -> None:
        self.reports: list[int] = []
        self.snapshots: list[str] = []
        self._steps: list[int] = []

    def send(self, message: Any) -> None:
        if isinstance(message, m.Reported):
            self.reports.append(message.report.step)
        if isinstance(message, m.Snapshot):
            self.snapshots.append(message.folder)
            self._steps.append(message.step)

    def judged(self, step: int, timeout_s: float) -> bool | None:
        return None

    def stop_advised(self) -> bool:
        return False

    def take_asked(self, *, in_store: bool = False) -> bool:
        return False

    def ask(self, question: bytes, timeout_s: float | None) -> None:
        pass

    def snapshot_answer(self, timeout_s: float) -> m.SnapshotAnswered:
        return m.SnapshotAnswered(self._steps.pop())


def context(ring: Ring, home: Path, restore_dir: str, kill: int) -> tuple[TrainContext, Wire]:
    """A context of a fresh member."""
    assignment = m.Assignment(
        member=Member(RunId("run"), TrialId(0), Generation(2 if restore_dir else 1), Rank(ring.rank)),
        call=member_call(size=ring.size, seed=11),
        code=m.LocalCode("", False, ()),
        work_dir=str(home / "work"),
        log_dir=str(home / "files"),
        log_path="",
        restore_dir=restore_dir,
    )
    for folder in (assignment.work_dir, assignment.log_dir):
        Path(folder).mkdir(parents=True)
    wire, left = Wire(), [kill]

    class Killing(TrainContext):
        def keras_callbacks(self, **options: Any) -> list[Any]:
            return [*super().keras_callbacks(**options), *([Kill(left)] if kill else [])]

    formation = alone().formation
    return Killing(assignment, wire, SystemClock(), JoinedGang(formation, lambda: ring, lambda: None)), wire


def lived(function: Callable[[Any], Any], ring: Ring, home: Path, kill: int = 0) -> Any:
    """What the program returns, with what it has reported; with `kill`, from a second process."""
    keras.backend.clear_session()
    process_setup.seed(11)
    ctx, wire = context(ring, home / "first" / str(ring.rank), "", kill)
    try:
        return function(ctx), wire.reports
    except KilledError:
        ctx.finish()
    newest = int(wire.snapshots[-1].rpartition("-")[2]) if wire.snapshots else -1
    [step] = ring.broadcast([tf.constant(newest)], name="newest")
    folder = home / "first" / "0" / "snapshots" / f"snapshot-{int(step):08d}"
    keras.backend.clear_session()
    process_setup.seed(11)
    ctx, later = context(ring, home / "second" / str(ring.rank), str(folder), 0)
    assert int(step) >= 0, "killed before its first checkpoint"
    found = function(ctx)
    ctx.finish()
    return found, sorted({*wire.reports, *later.reports})


def train(ring: Ring | None, folder: str, lives: list[tuple[str, int]]) -> list[Any]:
    """Of each program, with the step after which it is killed (0: never), what `lived` returns."""
    ring = ring or LocalRing()
    return [lived(PROGRAMS[name], ring, Path(folder) / f"{name}-{kill}", kill) for name, kill in lives]
