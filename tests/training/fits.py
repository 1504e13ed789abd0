"""What members of test gangs train: small models, each a whole `fit` or loop, on their share of the same rows."""

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from sparktrain.training.collectives.ring import LocalRing, Ring
from sparktrain.training.frameworks.keras.consistency import check_equal, check_same_program
from sparktrain.training.frameworks.keras.distributed_optimizer import distribute
from sparktrain.training.frameworks.tensorflow.optimizers.optimizer import distribute_tape

ROWS, BATCH, EPOCHS = 48, 12, 2

CASES: dict[str, Callable[[Ring], Any]] = {}


def case(function: Callable[[Ring], Any]) -> Callable[[Ring], Any]:
    CASES[function.__name__] = function
    return function


def train(ring: Ring | None, names: list[str]) -> dict[str, Any]:
    """Of each case, all weights in one list."""
    ring = ring or LocalRing()
    weights = {}
    for name in names:
        keras.utils.set_random_seed(7)
        model = CASES[name](ring)
        check_equal(ring, model)
        weights[name] = np.concatenate([each.ravel() for each in model.get_weights()])
    return weights


def mlp(**rest: Any) -> keras.Model:
    layers = [keras.Input((5,)), keras.layers.Dense(8, "tanh", **rest), keras.layers.Dense(1, **rest)]
    return keras.Sequential(layers)


def data(ring: Ring) -> tuple[Any, Any]:
    """This member's rows: of each batch of the whole, its part."""
    rng = np.random.default_rng(3)
    x = rng.normal(size=(ROWS, 5)).astype("float32")
    y = np.sin(x.sum(1, keepdims=True)).astype("float32")
    mine = np.concatenate(
        [np.array_split(np.arange(s, s + BATCH), ring.size)[ring.rank] for s in range(0, ROWS, BATCH)]
    )
    return x[mine], y[mine]


def fit(ring: Ring, model: keras.Model, x: Any, y: Any, **rest: Any) -> keras.Model:
    check_same_program(ring, model, steps=ROWS // BATCH)
    model.fit(x, y, batch_size=BATCH // ring.size, epochs=EPOCHS, shuffle=False, verbose=0, **rest)
    return model


def _fitted(ring: Ring, optimizer: Any, **compiling: Any) -> keras.Model:
    model = mlp()
    model.compile(distribute(optimizer, ring), "mse", jit_compile=False, **compiling)
    return fit(ring, model, *data(ring))


@case
def sgd(ring: Ring) -> Any:
    return _fitted(ring, keras.optimizers.SGD(0.1))


@case
def momentum_with_global_clipnorm(ring: Ring) -> Any:
    return _fitted(ring, keras.optimizers.SGD(0.1, momentum=0.9, nesterov=True, global_clipnorm=0.1))


@case
def adam_with_clipnorm(ring: Ring) -> Any:
    return _fitted(ring, keras.optimizers.Adam(0.01, clipnorm=0.05))


@case
def adamw_with_average_of_weights(ring: Ring) -> Any:
    optimizer = keras.optimizers.AdamW(0.01, weight_decay=0.1, use_ema=True, ema_overwrite_frequency=3)
    return _fitted(ring, optimizer)


@case
def several_steps_per_execution(ring: Ring) -> Any:
    return _fitted(ring, keras.optimizers.SGD(0.1, momentum=0.9), steps_per_execution=3)


@case
def eagerly(ring: Ring) -> Any:
    return _fitted(ring, keras.optimizers.SGD(0.1), run_eagerly=True)


@case
def accumulation(ring: Ring) -> Any:
    return _fitted(ring, keras.optimizers.SGD(0.1, gradient_accumulation_steps=2, clipnorm=0.1))


@case
def loss_scale(ring: Ring) -> Any:
    inner = keras.optimizers.SGD(0.1)
    return _fitted(ring, keras.optimizers.LossScaleOptimizer(inner, initial_scale=64.0, dynamic_growth_steps=3))


@case
def tape(ring: Ring) -> Any:
    """A custom loop with a last batch of another size, so that its function is traced twice."""
    model, optimizer = mlp(), keras.optimizers.SGD(0.1)
    x, y = data(ring)

    @tf.function
    def step(x: tf.Tensor, y: tf.Tensor) -> None:
        with distribute_tape(tf.GradientTape(), ring) as tape:
            loss = tf.reduce_mean((model(x) - y) ** 2)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))

    mine = BATCH // ring.size
    for start, count in ((0, mine), (mine, mine), (2 * mine, 2 * mine)):
        step(tf.constant(x[start : start + count]), tf.constant(y[start : start + count]))
    return model


@case
def embedding(ring: Ring) -> Any:
    return _embedded(ring, keras.optimizers.SGD(0.5), dense_bytes=2**20)


@case
def embedding_as_rows(ring: Ring) -> Any:
    return _embedded(ring, keras.optimizers.SGD(0.5, momentum=0.9), dense_bytes=0)


def _embedded(ring: Ring, optimizer: Any, dense_bytes: int) -> keras.Model:
    from sparktrain.training.frameworks.tensorflow.optimizers import gradients

    kept, gradients.DENSE_BYTES = gradients.DENSE_BYTES, dense_bytes
    layers = [keras.Input((3,), dtype="int32"), keras.layers.Embedding(20, 4), keras.layers.Flatten()]
    model = keras.Sequential([*layers, keras.layers.Dense(1)])
    model.compile(distribute(optimizer, ring), "mse", jit_compile=False)
    x, y = data(ring)
    fit(ring, model, (np.abs(x[:, :3]) * 10).astype("int32") % 20, y)
    gradients.DENSE_BYTES = kept
    return model


@case
def two_optimizers_in_one_function(ring: Ring) -> Any:
    """As adversaries train: with models of equal shapes, so that only names distinguish their gradients."""
    models = [mlp(), mlp()]
    optimizers = [distribute(keras.optimizers.SGD(rate), ring) for rate in (0.1, 0.2)]
    x, y = map(tf.constant, data(ring))

    @tf.function
    def step() -> None:
        for sign, model, optimizer in zip((1.0, -1.0), models, optimizers, strict=True):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((model(x) - sign * y) ** 2)
            optimizer.apply(tape.gradient(loss, [each.value for each in model.trainable_variables]), model.variables)

    for _ in range(3):
        step()
    return keras.Sequential([keras.Input((5,)), models[0], keras.layers.Dense(5, trainable=False), models[1]])
