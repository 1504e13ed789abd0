"""Keras programs as tutorials have them, which a gang trains as one process would: each with the `ctx` of a member."""

import contextlib
import functools
import io
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pyarrow as pa

from sparktrain.base.clock import SystemClock
from sparktrain.base.ids import Generation, Member, Rank, RunId, TrialId
from sparktrain.config.backends import Backend
from sparktrain.datasets.manifest import MemberData
from sparktrain.errors import SparktrainError
from sparktrain.protocol import pipe_messages as m
from sparktrain.training.collectives.backend import Joining, load
from sparktrain.training.context import TrainContext
from sparktrain.training.gang_join import JoinedGang
from tests.support.member_calls import member_call
from tests.training import rowed

if keras.backend.backend() == "tensorflow":
    import tensorflow as tf
ROWS, BATCH, EPOCHS = 48, 12, 2

PROGRAMS: dict[str, Callable[[Any], keras.Model]] = {}


def program(function: Callable[[Any], keras.Model]) -> Callable[[Any], keras.Model]:
    PROGRAMS[function.__name__] = function
    return function


FED = ("a_dataset_of_the_run", "a_shuffled_dataset_of_the_run")
"""Programs with data."""


class NullWire:
    """A connection to no agent."""

    def send(self, message: m.FromMember) -> None:
        pass

    def judged(self, step: int, timeout_s: float) -> bool | None:
        return None

    def stop_advised(self) -> bool:
        return False

    def take_asked(self, *, in_store: bool = False) -> bool:
        return False

    def ask(self, question: bytes, timeout_s: float | None) -> None:
        pass

    def snapshot_answer(self, timeout_s: float) -> m.SnapshotAnswered | None:
        return None


def run(joining: Joining, backend: str, names: list[str]) -> dict[str, Any]:
    """Of each program: its weights in one list, and what it printed; or the error that it ended with."""
    ring = load(Backend(backend))(joining)
    close, ring.close = ring.close, lambda: None  # type: ignore[method-assign] # of one program, others follow
    found: dict[str, Any] = {}
    for name in names:
        keras.utils.set_random_seed(7)
        printed = io.StringIO()
        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stderr(printed):
            log_dir = Path(folder, "files")
            log_dir.mkdir()
            member = Member(RunId("run"), TrialId(0), Generation(1), Rank(joining.formation.rank))
            fed = dataset(Path(folder)) if name in FED else MemberData()
            assignment = m.Assignment(
                member=member,
                call=member_call(size=joining.formation.size, seed=7, data=fed),
                code=m.LocalCode("", False, ()),
                work_dir=folder,
                log_dir=str(log_dir),
                log_path=f"{folder}/log.txt",
            )
            gang = JoinedGang(joining.formation, lambda: ring, lambda: None)
            try:
                _ = gang.ring
                model = PROGRAMS[name](TrainContext(assignment, NullWire(), SystemClock(), gang))
                gang.leave()
                found[name] = {"weights": np.concatenate([each.ravel() for each in model.get_weights()])}
            except SparktrainError as error:
                found[name] = {"error": f"{type(error).__name__}: {error}"}
        found[name]["printed"] = [line for line in printed.getvalue().splitlines() if line.startswith("[sparktrain]")]
    close()
    return found


# ---- what the programs are made of


def compiling() -> dict[str, Any]:
    """For `compile()`: XLA compiles no collectives of TensorFlow, and those of JAX alone."""
    # Asked in the member: a trial gets the globals of this module as the process of the tests has them.
    return {} if keras.backend.backend() == "jax" else {"jit_compile": False}


def several_steps() -> dict[str, Any]:
    """For `compile()`, where the backend has more than one step in a call."""
    return {"steps_per_execution": 3} if keras.backend.backend() == "tensorflow" else {}


def without_gradients() -> contextlib.AbstractContextManager[Any]:
    """In which PyTorch records nothing for gradients, as an update of weights needs it."""
    return sys.modules["torch"].no_grad() if keras.backend.backend() == "torch" else contextlib.nullcontext()


def differentiated(part: Any, loss_of: Callable[[], Any]) -> tuple[Any, list[Any]]:
    """The loss, and its gradients by the variables of `part`."""
    if keras.backend.backend() == "torch":
        part.zero_grad()
        loss = loss_of()
        loss.backward()
        return loss, [variable.value.grad for variable in part.trainable_variables]
    with tf.GradientTape() as tape:
        loss = loss_of()
    return loss, tape.gradient(loss, part.trainable_variables)


def data() -> tuple[Any, Any]:
    rng = np.random.default_rng(3)
    x = rng.normal(size=(ROWS, 5)).astype("float32")
    return x, np.sin(x.sum(1, keepdims=True)).astype("float32")


def table() -> pa.Table:
    """The same numbers as `data`."""
    x, y = data()
    columns = {f"x{number}": x[:, number] for number in range(5)}
    return pa.table({**columns, "label": y[:, 0]})


def dataset(folder: Path) -> MemberData:
    """That table as a dataset with groups of 10 rows."""
    ref = rowed.parquet(folder / "rows", table())
    return MemberData({"train": ref}, str(folder / "cache"))


def words() -> tuple[Any, Any]:
    """Sequences of other lengths, ended by zeros, with a class for each word."""
    rng = np.random.default_rng(4)
    x = rng.integers(1, 20, size=(ROWS, 7))
    for row, length in zip(x, rng.integers(1, 8, size=ROWS), strict=True):
        row[length:] = 0
    return x.astype("int32"), (x % 3).astype("int32")


def mlp() -> keras.Model:
    return keras.Sequential([keras.Input((5,)), keras.layers.Dense(8, "tanh"), keras.layers.Dense(1)])


def fit(ctx: Any, model: keras.Model, values: Any, *, optimizer: Any = None, **options: Any) -> keras.Model:
    """Train on this member's share of the values."""
    if optimizer is not False:
        options["optimizer"] = ctx.distribute(optimizer or keras.optimizers.SGD(0.05))
    model.compile(**{"loss": "mse"} | compiling() | options)
    share = ctx.shard(values, batch_size=BATCH // ctx.size)
    model.fit(share, epochs=EPOCHS, verbose=0, callbacks=ctx.keras_callbacks(checkpoint_every=None))
    return model


def fit_dataset(ctx: Any, **options: Any) -> keras.Model:
    """Train on this member's share of a dataset."""
    model = mlp()
    model.compile(ctx.distribute(keras.optimizers.SGD(0.05)), "mse", **compiling())
    feed = ctx.dataset("train").to_keras(batch_size=BATCH // ctx.size, label_columns="label", stack=True, **options)
    model.fit(feed, epochs=EPOCHS, verbose=0, callbacks=ctx.keras_callbacks(checkpoint_every=None))
    return model


@program
def a_dataset_of_the_run(ctx: Any) -> keras.Model:
    return fit_dataset(ctx)


@program
def a_shuffled_dataset_of_the_run(ctx: Any) -> keras.Model:
    return fit_dataset(ctx, shuffle=True)


# ---- losses that are no plain mean


@program
def a_loss_that_sums(ctx: Any) -> keras.Model:
    return fit(ctx, mlp(), data(), loss=keras.losses.MeanSquaredError(reduction="sum"))


@program
def a_loss_that_sums_and_a_penalty(ctx: Any) -> keras.Model:
    model = keras.Sequential([keras.Input((5,)), keras.layers.Dense(1, kernel_regularizer="l2")])
    return fit(ctx, model, data(), loss=keras.losses.Huber(reduction="sum"))


@program
def sample_weights(ctx: Any) -> keras.Model:
    return fit(ctx, mlp(), (*data(), np.linspace(0, 3, ROWS, dtype="float32")))


@program
def a_mean_with_sample_weights(ctx: Any) -> keras.Model:
    loss = keras.losses.MeanSquaredError(reduction="mean_with_sample_weight")
    return fit(ctx, mlp(), (*data(), np.linspace(0, 3, ROWS, dtype="float32")), loss=loss)


@program
def masked_sequences(ctx: Any) -> keras.Model:
    inside = [keras.layers.Embedding(20, 4, mask_zero=True), keras.layers.SimpleRNN(5, return_sequences=True)]
    model = keras.Sequential([keras.Input((7,), dtype="int32"), *inside, keras.layers.Dense(3, "softmax")])
    return fit(ctx, model, words(), loss="sparse_categorical_crossentropy", **several_steps())


@program
def a_class_that_does_not_count(ctx: Any) -> keras.Model:
    inside = [keras.layers.Embedding(20, 4), keras.layers.Dense(3, "softmax")]
    loss = keras.losses.SparseCategoricalCrossentropy(ignore_class=0)
    return fit(ctx, keras.Sequential([keras.Input((7,), dtype="int32"), *inside]), words(), loss=loss)


@program
def two_outputs_one_sums(ctx: Any) -> keras.Model:
    given = keras.Input((5,))
    outputs = [keras.layers.Dense(1, name="a")(given), keras.layers.Dense(1, name="b")(given)]
    losses = {"a": "mse", "b": keras.losses.MeanAbsoluteError(reduction="sum")}
    x, y = data()
    return fit(ctx, keras.Model(given, outputs), (x, {"a": y, "b": y * 2}), loss=losses)


@program
def a_loss_without_reduction(ctx: Any) -> keras.Model:
    return fit(ctx, mlp(), data(), loss=keras.losses.MeanSquaredError(reduction=None))


@program
def a_function_that_returns_one_number(ctx: Any) -> keras.Model:
    return fit(ctx, mlp(), data(), loss=lambda true, seen: keras.ops.mean((true - seen) ** 2))


@program
def evaluated_by_the_chief_alone(ctx: Any) -> keras.Model:
    model = fit(ctx, mlp(), data(), loss=keras.losses.MeanSquaredError(reduction="mean_with_sample_weight"))
    if ctx.rank == 0:
        model.evaluate(*data(), sample_weight=np.ones(ROWS, "float32"), verbose=0)
    return model


# ---- layers


@program
def synchronized_batches(ctx: Any) -> keras.Model:
    inside = [keras.layers.Dense(6), keras.layers.BatchNormalization(synchronized=True), keras.layers.Dense(1)]
    return fit(ctx, keras.Sequential([keras.Input((5,)), *inside]), data())


@program
def synchronized_batches_of_a_tape(ctx: Any) -> keras.Model:
    inside = [keras.layers.Dense(6), keras.layers.BatchNormalization(synchronized=True), keras.layers.Dense(1)]
    model, optimizer = keras.Sequential([keras.Input((5,)), *inside]), keras.optimizers.SGD(0.1)

    @tf.function
    def step(x: tf.Tensor, y: tf.Tensor) -> None:
        with ctx.distribute_tape(tf.GradientTape()) as tape:
            loss = tf.reduce_mean((model(x, training=True) - y) ** 2)
        optimizer.apply_gradients(
            zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables, strict=True)
        )

    for batch in ctx.shard(data(), batch_size=BATCH // ctx.size):
        step(*batch)
    return model


@program
def a_small_embedding_under_adam(ctx: Any) -> keras.Model:
    x, y = words()
    inside = [keras.layers.Embedding(20, 4), keras.layers.Flatten(), keras.layers.Dense(1)]
    model = keras.Sequential([keras.Input((7,), dtype="int32"), *inside])
    optimizer = keras.optimizers.Adam(0.01, clipnorm=0.5)
    return fit(ctx, model, (x, y[:, :1].astype("float32")), optimizer=optimizer)


# ---- several optimizers


class Adversaries(keras.Model):
    """Two models against each other, each with an optimizer of its own; compile() makes one that is not used."""

    def __init__(self) -> None:
        super().__init__()
        self.maker = keras.Sequential([keras.Input((5,)), keras.layers.Dense(5)])
        self.judge = keras.Sequential([keras.Input((5,)), keras.layers.Dense(1)])

    def compile(self, maker_optimizer: Any, judge_optimizer: Any) -> None:
        super().compile(**compiling())
        self.maker_optimizer, self.judge_optimizer = maker_optimizer, judge_optimizer
        self.cross = keras.losses.BinaryCrossentropy(from_logits=True)

    def call(self, x: Any) -> Any:
        return self.judge(self.maker(x))

    def train_step(self, batch: Any) -> Any:
        x, _ = batch

        def judged(part: Any, wanted: float) -> Any:
            seen, made = self.judge(x), self.judge(self.maker(x))
            loss = self.cross(keras.ops.full_like(made, wanted), made)
            return loss + (self.cross(keras.ops.ones_like(seen), seen) if part is self.judge else 0.0)

        parts = (self.judge, self.judge_optimizer, 0.0), (self.maker, self.maker_optimizer, 1.0)
        for part, optimizer, wanted in parts:
            loss, gradients = differentiated(part, functools.partial(judged, part, wanted))
            optimizer.apply_gradients(zip(gradients, part.trainable_variables, strict=True))
        return {"loss": loss}


def _adversaries(ctx: Any, *, built: bool, distributed: bool = True) -> keras.Model:
    model = Adversaries()
    model.build((None, 5))
    first, second = (keras.optimizers.Adam(rate) for rate in (0.01, 0.02))
    if built:
        first.build(model.maker.trainable_variables)
        second.build(model.judge.trainable_variables)
    model.compile(ctx.distribute(first), ctx.distribute(second) if distributed else second)
    share = ctx.shard(data(), batch_size=BATCH // ctx.size)
    model.fit(share, epochs=EPOCHS, verbose=0, callbacks=ctx.keras_callbacks(checkpoint_every=None))
    return model


@program
def adversaries(ctx: Any) -> keras.Model:
    return _adversaries(ctx, built=True)


@program
def adversaries_with_late_optimizers(ctx: Any) -> keras.Model:
    return _adversaries(ctx, built=False)


@program
def adversaries_with_one_forgotten(ctx: Any) -> keras.Model:
    return _adversaries(ctx, built=True, distributed=False)


# ---- what was forgotten


@program
def without_callbacks_from_equal_weights(ctx: Any) -> keras.Model:
    model = mlp()
    model.compile(ctx.distribute(keras.optimizers.SGD(0.05)), "mse", **compiling())
    model.fit(ctx.shard(data(), batch_size=BATCH // ctx.size), epochs=EPOCHS, verbose=0)
    return model


@program
def without_callbacks_from_other_weights(ctx: Any) -> keras.Model:
    keras.utils.set_random_seed(ctx.rank)
    return without_callbacks_from_equal_weights(ctx)


@program
def without_distribute(ctx: Any) -> keras.Model:
    keras.utils.set_random_seed(ctx.rank)
    model = mlp()
    model.compile(keras.optimizers.SGD(0.05), "mse", **compiling())
    model.fit(*data(), batch_size=BATCH, verbose=0)
    return model


@program
def each_on_the_same_data(ctx: Any) -> keras.Model:
    model = mlp()
    model.compile(keras.optimizers.SGD(0.05), "mse", **compiling())
    model.fit(*data(), batch_size=BATCH, verbose=0, shuffle=False)
    return model


@program
def without_shard(ctx: Any) -> keras.Model:
    model = mlp()
    model.compile(ctx.distribute(keras.optimizers.SGD(0.05)), "mse", **compiling())
    callbacks = ctx.keras_callbacks(checkpoint_every=None)
    model.fit(*data(), batch_size=BATCH, validation_split=0.25, shuffle=False, verbose=0, callbacks=callbacks)
    return model


@program
def averaged_by_hand(ctx: Any) -> keras.Model:
    model, optimizer = mlp(), keras.optimizers.SGD(0.1)
    for x, y in ctx.shard(data(), batch_size=BATCH // ctx.size):
        _, gradients = differentiated(model, lambda x=x, y=y: keras.ops.mean((model(x) - y) ** 2))
        with without_gradients():
            optimizer.apply(ctx.allreduce(gradients), model.trainable_variables)
    return model


@program
def a_loop_from_other_weights(ctx: Any) -> keras.Model:
    keras.utils.set_random_seed(ctx.rank)
    model = mlp()
    with ctx.distribute_tape(tf.GradientTape()) as tape:
        loss = tf.reduce_mean(model(data()[0]) ** 2)
    tape.gradient(loss, model.trainable_variables)
    return model


@program
def a_loop_without_shard(ctx: Any) -> keras.Model:
    model = mlp()
    with ctx.distribute_tape(tf.GradientTape()) as tape:
        loss = tf.reduce_mean(model(data()[0]) ** 2)
    tape.gradient(loss, model.trainable_variables)
    return model
