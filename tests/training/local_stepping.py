"""What members of test gangs train by themselves between averages, and the same computed in one process."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from sparktrain.base.clock import SystemClock
from sparktrain.errors import OutOfStepError, SpecError
from sparktrain.training.checkpoint.saver import CheckpointSaver
from sparktrain.training.collectives.ring import LocalRing, Ring
from sparktrain.training.frameworks.keras.averaging import AverageWeights
from sparktrain.training.frameworks.keras.consistency import check_equal, check_same_program
from sparktrain.training.frameworks.keras.distributed_apply import is_averaged
from sparktrain.training.frameworks.keras.distributed_optimizer import distribute
from sparktrain.training.frameworks.keras.glue import prepare_keras
from sparktrain.training.frameworks.tensorflow.optimizers.local_steps import report_unaveraged
from sparktrain.training.frameworks.tensorflow.optimizers.optimizer import distribute_tape
from sparktrain.training.notices import issued_notices
from tests.training import fits
from tests.training.fits import BATCH, EPOCHS, ROWS, data, mlp
from tests.training.resuming import Agent

STEPS = ROWS // BATCH * EPOCHS

OPTIMIZERS: dict[str, Callable[[], Any]] = {
    "sgd": lambda: keras.optimizers.SGD(0.1),
    "momentum": lambda: keras.optimizers.SGD(0.1, momentum=0.9, nesterov=True, global_clipnorm=0.1),
    "adam": lambda: keras.optimizers.Adam(0.01, clipnorm=0.05),
    "ema": lambda: keras.optimizers.SGD(0.1, use_ema=True, ema_momentum=0.5),
    "scaled": lambda: keras.optimizers.LossScaleOptimizer(
        keras.optimizers.SGD(0.1), initial_scale=2.0**125, dynamic_growth_steps=2
    ),
    "accumulating": lambda: keras.optimizers.SGD(0.1, gradient_accumulation_steps=2),
}
"""The loss scale is so large that the first steps are skipped."""


def member(ring: Ring, names: list[str], local: int, execution: int = 1) -> dict[str, Any]:
    """Of each optimizer: the weights of this member after a fit that averages at the end of each epoch."""
    ring.local_steps = local
    found: dict[str, Any] = {}
    for name in names:
        model = _model(distribute(OPTIMIZERS[name](), ring), steps_per_execution=execution)
        check_same_program(ring, model, steps=ROWS // BATCH)
        x, y = data(ring)
        options: Any = {"epochs": EPOCHS, "shuffle": False, "verbose": 0, "callbacks": [AverageWeights()]}
        model.fit(x, y, batch_size=BATCH // ring.size, **options)
        assert is_averaged(model)
        check_equal(ring, model)
        found[name] = _flat(model)
    return found


def simulated(size: int, names: list[str], local: int) -> dict[str, Any]:
    """The same in one process, with a model and an optimizer for each member."""
    return {name: _simulated(size, OPTIMIZERS[name], local, ends_with_ema=name == "ema") for name in names}


def _simulated(size: int, make: Callable[[], Any], local: int, *, ends_with_ema: bool) -> Any:
    models = [_model(make()) for _ in range(size)]
    shares = [data(_Place(rank, size)) for rank in range(size)]
    mine = BATCH // size
    since = 0
    for step in range(1, STEPS + 1):
        at = (step - 1) * mine % (ROWS // size)
        for model, (x, y) in zip(models, shares, strict=True):
            model.train_on_batch(x[at : at + mine], y[at : at + mine])
        since += 1
        if since == local or step % (ROWS // BATCH) == 0:
            since = 0
            _average([each.trainable_variables for each in models])
            if ends_with_ema:
                _average([each.optimizer._model_variables_moving_average for each in models])
    if ends_with_ema:
        models[0].optimizer.finalize_variable_values(models[0].trainable_variables)
    return _flat(models[0])


def _average(columns: list[list[Any]]) -> None:
    for variables in zip(*columns, strict=True):
        mean = np.mean([each.numpy() for each in variables], axis=0)
        for each in variables:
            each.assign(mean)


class _Place(LocalRing):
    def __init__(self, rank: int, size: int) -> None:
        self.rank, self.size = rank, size


def _model(optimizer: Any, **compiling: Any) -> Any:
    keras.utils.set_random_seed(7)
    model = mlp()
    model.compile(optimizer, "mse", jit_compile=False, **compiling)
    return model


def _flat(model: Any) -> Any:
    return np.concatenate([each.ravel() for each in model.get_weights()])


def every_step(ring: Ring, names: list[str]) -> dict[str, Any]:
    """The cases of `fits` with an average after each step."""
    ring.local_steps = 1
    return fits.train(ring, names)


def line(ring: Ring, local: int, rate: float, x: list[float], y: list[float]) -> dict[str, Any]:
    """A line through the origin, fitted by an own loop with one row in a step; each step's weight of this member."""
    ring.local_steps = local
    weight = keras.Variable([0.0], name="w")
    optimizer = distribute(keras.optimizers.SGD(rate), ring)

    @tf.function
    def step(a: tf.Tensor, b: tf.Tensor) -> None:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum((weight.value * a - b) ** 2.0)
        optimizer.apply([tape.gradient(loss, weight.value)], [weight])

    found = []
    for row in range(ring.rank, len(x), ring.size):
        step(tf.constant(x[row], tf.float32), tf.constant(y[row], tf.float32))
        found.append(float(weight.numpy()[0]))
    return {"weights": found, "since": optimizer.apply.since}


def kept_apart(ring: Ring, local: int) -> dict[str, Any]:
    """What is not averaged: momentum, and moving averages of batch normalization."""
    ring.local_steps = local
    keras.utils.set_random_seed(7)
    model = keras.Sequential([keras.Input((5,)), keras.layers.BatchNormalization(), keras.layers.Dense(1)])
    model.compile(distribute(keras.optimizers.SGD(0.1, momentum=0.9), ring), "mse", jit_compile=False)
    x, y = data(ring)
    model.fit(x, y, batch_size=BATCH // ring.size, epochs=1, shuffle=False, verbose=0)
    moments = [each.numpy() for each in model.optimizer.variables if "momentum" in each.path]
    return {
        "weights": [each.numpy() for each in model.trainable_variables],
        "moving": [each.numpy() for each in model.non_trainable_variables],
        "momentum": moments,
    }


def bound(ring: Ring, local: int) -> dict[str, Any]:
    """A constraint that the mean of two vectors of length 1 does not keep by itself."""
    ring.local_steps = local
    keras.utils.set_random_seed(7)
    unit = keras.constraints.UnitNorm(axis=0)
    model = keras.Sequential([keras.Input((5,)), keras.layers.Dense(3, kernel_constraint=unit)])
    model.compile(distribute(keras.optimizers.SGD(0.5), ring), "mse", jit_compile=False)
    x, _ = data(ring)
    model.fit(x, x[:, :3], batch_size=BATCH // ring.size, epochs=1, shuffle=False, verbose=0)
    assert is_averaged(model)
    return {"lengths": np.linalg.norm(model.get_weights()[0], axis=0)}


def summed(ring: Ring, local: int | None) -> dict[str, Any]:
    """A loss that adds up, and one with weights: the mean of local steps is the step on the whole batch."""
    ring.local_steps = local
    prepare_keras(ring)
    keras.utils.set_random_seed(7)
    model = mlp()
    loss = keras.losses.MeanSquaredError(reduction="sum")
    model.compile(distribute(keras.optimizers.SGD(0.01), ring), loss, jit_compile=False)
    return {"weights": _flat(fits.fit(ring, model, *data(ring)))}


def wrong(ring: Ring) -> dict[str, str]:
    """The errors of what no member can do that trains by itself."""
    ring.local_steps = 2
    found: dict[str, str] = {}

    def note(name: str, call: Callable[[], Any]) -> None:
        try:
            call()
        except (SpecError, OutOfStepError) as error:
            found[name] = str(error)

    note("tape", lambda: distribute_tape(tf.GradientTape(), ring))
    note("fp16", lambda: distribute(keras.optimizers.SGD(0.1), ring, compression="fp16"))
    note("late scale", lambda: _late_scale(ring))
    note("other start", lambda: _other_start(ring))
    return found


def _late_scale(ring: Ring) -> None:
    model = _model(keras.optimizers.LossScaleOptimizer(distribute(keras.optimizers.SGD(0.1), ring)))
    model.train_on_batch(*data(ring))


def _other_start(ring: Ring) -> None:
    model = _model(distribute(keras.optimizers.SGD(0.1), ring))
    model.set_weights([each + ring.rank for each in model.get_weights()])
    model.train_on_batch(*data(ring))


def fed(ring: Ring, alike: bool) -> list[str]:
    """What this member is noticed of, with its share of the rows, or with the same rows as the others."""
    ring.local_steps = 2
    x, y = data(LocalRing() if alike else ring)
    _model(distribute(keras.optimizers.SGD(0.1), ring)).fit(x, y, batch_size=BATCH // 2, verbose=0)
    report_unaveraged(chief=not ring.rank)
    return list(issued_notices())


def left_over(ring: Ring, folder: str) -> list[str]:
    """What this member is noticed of in a loop with three steps that saves after each."""
    ring.local_steps = 2
    model = _model(distribute(keras.optimizers.SGD(0.1), ring))
    checkpoints = CheckpointSaver(Agent(), Path(folder), "", 0, SystemClock())
    noticed = []
    for step in range(1, 4):
        model.train_on_batch(*data(ring))
        if ring.rank == 0:
            checkpoints.save(step, model)
            noticed.append(len(issued_notices()))
    assert noticed == [1, 1, 1][: len(noticed)]
    report_unaveraged(chief=not ring.rank)
    return list(issued_notices())
