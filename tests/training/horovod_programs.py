"""Programs as Horovod's documentation has them, for Keras and for a loop of one's own, without a `ctx`."""

import contextlib
import io
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from sparktrain.config.backends import Backend
from sparktrain.errors import SparktrainError
from sparktrain.training.collectives.backend import Joining, load
from sparktrain.training.frameworks.keras.distributed_apply import is_distributed
from sparktrain.training.frameworks.tensorflow.horovod_names import import_hook
from sparktrain.training.gang_join import JoinedGang
from tests.training.programs import data, mlp

BATCH, EPOCHS = 12, 2
PROGRAMS: dict[str, Callable[[], Any]] = {}


def program(function: Callable[[], Any]) -> Callable[[], Any]:
    PROGRAMS[function.__name__] = function
    return function


def run(joining: Joining, backend: str, names: list[str]) -> dict[str, Any]:
    """What each program returns, or the error that it ends with, and what it printed."""
    ring = load(Backend(backend))(joining)
    import_hook.prepare()
    import_hook.connect(JoinedGang(joining.formation, lambda: ring, lambda: None), Backend(backend))
    found: dict[str, Any] = {}
    for name in names:
        keras.utils.set_random_seed(7)
        printed = io.StringIO()
        with contextlib.redirect_stderr(printed), contextlib.redirect_stdout(printed):
            try:
                found[name] = {"result": PROGRAMS[name]()}
            except (SparktrainError, TypeError) as error:
                found[name] = {"error": f"{type(error).__name__}: {error}"}
        found[name]["printed"] = printed.getvalue()
    ring.close()
    return found


def weights(model: Any) -> Any:
    return np.concatenate([np.ravel(each) for each in model.get_weights()])


@program
def keras_fit() -> Any:
    import horovod.keras as hvd

    hvd.init()
    for gpu in tf.config.list_physical_devices("GPU"):
        tf.config.experimental.set_memory_growth(gpu, True)
    x, y = data()
    model = mlp()
    optimizer = hvd.DistributedOptimizer(keras.optimizers.Adam(0.05))
    model.compile(optimizer, "mse", metrics=["mae"], experimental_run_tf_function=False)
    callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0), hvd.callbacks.MetricAverageCallback()]
    if hvd.rank() == 0:
        callbacks.append(keras.callbacks.History())
    share = slice(hvd.rank(), None, hvd.size())
    history = model.fit(
        x[share], y[share], batch_size=BATCH // hvd.size(), epochs=EPOCHS, shuffle=False, verbose=0, callbacks=callbacks
    ).history
    return {"weights": weights(model), "mae": history["mae"], "compiled": model.jit_compile}


@program
def tensorflow_keras_fit_of_lazy_model() -> Any:
    import horovod.tensorflow.keras as hvd
    from horovod.tensorflow.keras.callbacks import BroadcastGlobalVariablesCallback

    hvd.init()
    keras.utils.set_random_seed(7)
    x, y = data()
    model = keras.Sequential([keras.layers.Dense(8, "tanh"), keras.layers.Dense(1)])
    model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.05), compression=hvd.Compression.none), "mse")
    share = slice(hvd.rank(), None, hvd.size())
    rows = tf.data.Dataset.from_tensor_slices((x[share], y[share])).batch(BATCH // hvd.size())
    model.fit(rows, epochs=EPOCHS, verbose=0, callbacks=[BroadcastGlobalVariablesCallback(0)])
    return {"weights": weights(model)}


@program
def a_loop() -> Any:
    import horovod.tensorflow as hvd

    hvd.init()
    x, y = data()
    model, optimizer = mlp(), keras.optimizers.SGD(0.05)

    @tf.function
    def step(features: Any, labels: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(features, training=True) - labels) ** 2)
        tape = hvd.DistributedGradientTape(tape)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    share = slice(hvd.rank(), None, hvd.size())
    rows = tf.data.Dataset.from_tensor_slices((x[share], y[share])).batch(BATCH // hvd.size())
    for number, (features, labels) in enumerate(rows.repeat(EPOCHS)):
        step(features, labels)
        if number == 0:
            hvd.broadcast_variables(model.variables, root_rank=0)
            hvd.broadcast_variables(optimizer.variables, root_rank=0)
    return {"weights": weights(model)}


@program
def other_weights_meet_at_the_first_step() -> Any:
    """In eager mode too, members that start apart are equal after the callback of the first step."""
    import horovod.keras as hvd

    model = mlp()
    callback = hvd.callbacks.BroadcastGlobalVariablesCallback(0)
    callback.set_model(model)
    model.compile(keras.optimizers.SGD(0.05), "mse")
    model.set_weights([each + hvd.rank() for each in model.get_weights()])
    callback.on_train_begin()
    equal = weights(model)
    ring = import_hook.current_ring("callback")
    ring.has_stepped = True  # of a process that takes part after the first step of the others
    model.set_weights([each + hvd.rank() for each in model.get_weights()])
    callback.on_train_batch_end(0)
    ring.has_stepped = False
    assert bool((weights(model) == equal).all()) == (hvd.rank() == 0)
    return {"weights": equal}


@program
def warm_up() -> Any:
    import horovod.keras as hvd

    x, y = data()
    rates: list[float] = []
    model = mlp()
    model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)), "mse")
    callbacks = [
        hvd.callbacks.LearningRateWarmupCallback(initial_lr=0.1, warmup_epochs=2, verbose=1),
        hvd.callbacks.LearningRateScheduleCallback(initial_lr=0.1, multiplier=0.1, start_epoch=2),
        keras.callbacks.LambdaCallback(
            on_train_batch_end=lambda batch, logs: rates.append(float(model.optimizer.learning_rate))
        ),
    ]
    model.fit(x[:24], y[:24], batch_size=12, epochs=3, shuffle=False, verbose=0, callbacks=callbacks)
    return {"rates": rates}


@program
def values() -> Any:
    import horovod.keras as hvd
    import horovod.tensorflow as plain

    plain.init()
    rank = hvd.rank()
    return {
        "mean": hvd.allreduce(float(rank)),
        "sum": hvd.allreduce(float(rank), average=False),
        "gathered": hvd.allgather(np.array([rank])),
        "broadcast": hvd.broadcast(rank + 5, 0),
        "tensor": plain.allreduce(tf.constant([float(rank)]), op=plain.Sum).numpy(),
        "object": plain.broadcast_object({"rank": rank}, 0),
        "size": [hvd.size(), hvd.local_size(), plain.size()],
    }


@program
def a_sum_of_gradients() -> Any:
    import horovod.keras as hvd

    return hvd.DistributedOptimizer(keras.optimizers.SGD(0.1), op=hvd.Sum)


@program
def several_passes() -> Any:
    import horovod.tensorflow as hvd

    return hvd.DistributedOptimizer(keras.optimizers.SGD(0.1), backward_passes_per_step=4)


@program
def another_root() -> Any:
    import horovod.keras as hvd

    return hvd.callbacks.BroadcastGlobalVariablesCallback(1)


@program
def a_hook() -> Any:
    import horovod.tensorflow as hvd

    return hvd.BroadcastGlobalVariablesHook(0)


@program
def a_sampler() -> Any:
    import horovod.keras as hvd

    return hvd.elastic.ElasticSampler


@program
def a_misspelt_option() -> Any:
    import horovod.keras as hvd

    return hvd.DistributedOptimizer(keras.optimizers.SGD(0.1), compresion=None)


@program
def start() -> Any:
    import horovod.keras as hvd

    hvd.init()
    return {}


def train() -> dict[str, float]:
    """Fit as a user's function does; whether the optimizer averages."""
    import horovod.keras as hvd

    hvd.init()
    x, y = data()
    model, optimizer = mlp(), hvd.DistributedOptimizer(keras.optimizers.SGD(0.05))
    model.compile(optimizer, "mse")
    callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0), hvd.callbacks.MetricAverageCallback()]
    model.fit(x, y, batch_size=BATCH, epochs=1, verbose=0, callbacks=callbacks)
    return {"size": hvd.size(), "averages": int(is_distributed(optimizer)), "rank": hvd.rank()}
