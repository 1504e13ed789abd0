"""What members of a cluster run in tests."""

import importlib
import os
import shutil
import signal
import sys
from collections.abc import Callable
from typing import Any

from tests.training.clusters import ROOT, Member

ROWS, BATCH, EPOCHS = 96, 24, 2
TRAIN_AND_TEST = ("fit", "evaluate", "train_on_batch", "test_on_batch")


def data() -> tuple[Any, Any]:
    import numpy as np

    random = np.random.default_rng(3)
    x = random.normal(size=(ROWS, 5)).astype("float32")
    return x, (x @ random.normal(size=(5, 1))).astype("float32")


def model(*extra: Any, **options: Any) -> Any:
    """A model with the same initial weights in each process."""
    import keras

    keras.utils.set_random_seed(1)
    layers = [keras.Input((5,)), keras.layers.Dense(8, activation="tanh"), *extra, keras.layers.Dense(1)]
    made = keras.Sequential(layers)
    if options.pop("compiled", True):
        chosen = {"loss": "mse", "metrics": ["mae"], "jit_compile": False} | options
        made.compile(optimizer=keras.optimizers.SGD(0.05), **chosen)
    return made


def weights(made: Any) -> list[float]:
    return [float(value) for variable in made.weights for value in variable.numpy().ravel()]


def fit(member: Member) -> dict[str, Any]:
    """Everything of Keras's that trains, tests and predicts; 90 rows leave an uneven last batch."""
    x, y = data()
    strategy = member.strategy(**member.params)
    with strategy.scope():
        made = model()
    history = made.fit(
        x, y, batch_size=BATCH, epochs=EPOCHS, shuffle=False, verbose=0, validation_data=(x[:40], y[:40])
    ).history
    return {
        "strategy": type(strategy).__name__,
        "replicas": strategy.num_replicas_in_sync,
        "weights": weights(made),
        "iterations": int(made.optimizer.iterations.numpy()),
        "history": {name: [float(value) for value in values] for name, values in history.items()},
        "evaluate": made.evaluate(x[:90], y[:90], batch_size=BATCH, verbose=0),
        "predict": made.predict(x[:90], batch_size=BATCH, verbose=0).ravel().tolist(),
        "call": made(x[:90]).numpy().ravel().tolist(),
    }


def shares(member: Member) -> dict[str, Any]:
    """`fit` and `evaluate` on shares of a dataset and of arrays: the rows of each step, and the weights.

    One process alone takes batches as large as those of two members together.
    """
    import tempfile
    from pathlib import Path

    import pyarrow as pa

    from sparktrain.training.frameworks.tensorflow.data.shard import shard
    from tests.training import rowed

    strategy, rank, size = member.strategy(), member.formation.rank, member.formation.size
    batch = BATCH * 2 // size
    x, y = data()
    x[:, 0] = [row / ROWS for row in range(ROWS)]
    folder = Path(tempfile.mkdtemp())
    ref = rowed.parquet(folder, pa.table({"x": x.tolist(), "y": y[:, 0]}))

    def rows() -> Any:
        opened = rowed.opened(ref, rank, size, cache=folder / "cache")
        return opened.to_tf(batch_size=batch, feature_columns="x", label_columns="y", shuffle=True)

    feeds = {
        "dataset": rows(),
        "mapped": rows().map(lambda a, b: (a, b)),
        "arrays": shard((x, y), batch_size=batch, rank=rank, size=size),
    }
    found = {}
    for name, feed in feeds.items():
        seen: list[list[int]] = []
        with strategy.scope():
            made = model()
        made.train_step = _noting(made.train_step, seen)
        made.fit(feed, epochs=EPOCHS, verbose=0)
        found[name] = {"seen": seen, "weights": weights(made), "evaluate": made.evaluate(feed, verbose=0)}
    shutil.rmtree(folder)
    return found


def _noting(train_step: Callable[[Any], Any], seen: list[list[int]]) -> Callable[[Any], Any]:
    """`train_step`, which notes the rows of each batch."""
    import tensorflow as tf

    def step(batch: Any) -> Any:
        tf.numpy_function(lambda x: seen.append([round(float(row) * ROWS) for row in x[:, 0]]), [batch[0]], [])
        return train_step(batch)

    return step


def loop(member: Member) -> dict[str, Any]:
    """A custom loop: the same as `fit` on one process."""
    import keras
    import tensorflow as tf

    x, y = data()
    strategy = member.strategy(**member.params)
    with strategy.scope():
        made = model(compiled=False)
        optimizer = keras.optimizers.SGD(0.05)
        optimizer.build(made.trainable_variables)
    batches = strategy.experimental_distribute_dataset(tf.data.Dataset.from_tensor_slices((x, y)).batch(BATCH))

    def replica(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.square(made(x, training=True) - y)) / BATCH
        optimizer.apply(tape.gradient(loss, made.trainable_variables), made.trainable_variables)
        return loss

    @tf.function
    def step(batch: Any) -> Any:
        return strategy.reduce("SUM", strategy.run(replica, args=batch), axis=None)

    losses = [float(step(batch)) for _ in range(EPOCHS) for batch in batches]
    return {"weights": weights(made), "losses": losses, "iterations": int(optimizer.iterations.numpy())}


def dies(member: Member) -> Any:
    """The last member dies of SIGKILL in the midst of training."""
    import keras

    x, y = data()
    with member.strategy().scope():
        made = model()
    last = member.formation.rank == member.formation.size - 1
    die = keras.callbacks.LambdaCallback(
        on_epoch_begin=lambda epoch, logs: last and os.kill(os.getpid(), signal.SIGKILL)
    )
    made.fit(x, y, batch_size=BATCH, shuffle=False, verbose=0)
    made.fit(x, y, batch_size=BATCH, epochs=500, shuffle=False, verbose=0, callbacks=[die])


def coordinate(member: Member) -> dict[str, Any]:
    """A coordinator's loop on parameter servers; then the chief may kill one of them and continue."""
    import keras
    import numpy as np
    import tensorflow as tf

    steps = 200
    x, y = data()
    strategy = member.strategy()
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    with strategy.scope():
        made = model(compiled=False)
        optimizer = keras.optimizers.SGD(0.02)
        optimizer.build(made.trainable_variables)

    def replica(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(made(x, training=True) - y))
        optimizer.apply(tape.gradient(loss, made.trainable_variables), made.trainable_variables)
        return loss

    @tf.function
    def step(iterator: Any) -> Any:
        return strategy.run(replica, args=next(iterator))

    def batches() -> Any:
        return tf.data.Dataset.from_tensor_slices((x, y)).shuffle(ROWS, seed=1).repeat().batch(BATCH)

    def error() -> float:
        return float(np.mean(np.square(made(x).numpy() - y)))

    iterator = iter(coordinator.create_per_worker_dataset(batches))
    first = error()
    for _ in range(steps):
        coordinator.schedule(step, args=(iterator,))
    coordinator.join()
    trained = {"first": first, "last": error(), "strategy": type(strategy).__name__}
    if "kill" in member.params:
        os.kill(member.pids[member.params["kill"]], signal.SIGKILL)
        for _ in range(steps):
            coordinator.schedule(step, args=(iterator,))
        coordinator.join()
    if member.params.get("suicide"):
        os.kill(os.getpid(), signal.SIGKILL)
    return trained


def error_of(call: Callable[[], Any]) -> str:
    """What `call` gave, or how it failed."""
    try:
        return str(call())
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def local(member: Member) -> dict[str, str]:
    """The errors of a strategy within one member for calls that it does not support."""
    import keras
    import tensorflow as tf

    x, y = data()
    strategy = member.strategy(member.params["kind"], devices=2)

    def built(**options: Any) -> Any:
        with strategy.scope():
            return model(**options)

    def stateful(layer: type) -> str:
        with strategy.scope():
            made = model(layer(**({"rate": 0.5} if layer is keras.layers.Dropout else {})), compiled=False)

        def replica() -> Any:
            return made(x, training=True)

        tf.function(lambda: strategy.run(replica))()
        return "runs"

    def outside() -> Any:
        with strategy.scope():
            made, optimizer = model(compiled=False), keras.optimizers.SGD(0.05)
        made.compile(optimizer=optimizer, loss="mse", jit_compile=False)
        return made

    calls = {name: lambda name=name: getattr(outside(), name)(x, y) and "runs" for name in TRAIN_AND_TEST}
    calls["compile"] = lambda: built() and "runs"
    calls["batch norm"] = lambda: stateful(keras.layers.BatchNormalization)
    calls["dropout"] = lambda: stateful(keras.layers.Dropout)
    calls["predict"] = lambda: len(outside().predict(x, verbose=0))
    calls["predict_on_batch"] = lambda: len(outside().predict_on_batch(x))
    calls["steps"] = lambda: built(steps_per_execution=2).fit(x, y, verbose=0) and "runs"
    calls["jit"] = lambda: built(jit_compile=True).fit(x, y, verbose=0) and "runs"
    wanted = member.params.get("calls", list(calls))
    return {name: error_of(calls[name]) for name in wanted}


def limits(member: Member) -> dict[str, Any]:
    """What Keras cannot do between members: refused on each of them, before they talk."""
    import keras

    from sparktrain.training.frameworks.tensorflow.collectives import tf_collectives

    x, y = data()
    strategy = member.strategy()
    foreign = keras.metrics.MeanSquaredError(name="foreign")
    with strategy.scope():
        several, compiled, own = model(steps_per_execution=2), model(jit_compile=True), model(metrics=[foreign])
    return {
        "same": member.strategy() is strategy,
        "released": member.listened,
        "other": error_of(lambda: member.strategy("parameter_server")),
        "steps": error_of(lambda: several.fit(x, y, verbose=0)),
        "steps of evaluate": error_of(lambda: several.evaluate(x, y, verbose=0)),
        "jit": error_of(lambda: compiled.fit(x, y, verbose=0)),
        "metric": error_of(lambda: own.fit(x, y, verbose=0)),
        "predict_on_batch": error_of(lambda: own.predict_on_batch(x)),
        "ring": error_of(lambda: tf_collectives._start_server(member.formation)),
    }


def upstream(member: Member) -> dict[str, Any]:
    """What Keras does between members without the workaround, and the error for an untested version."""
    import keras
    import tensorflow as tf
    from keras.src.backend.tensorflow import trainer

    from sparktrain.training.frameworks.tensorflow.strategies import workarounds

    measured, workarounds.WORKED_AROUND = workarounds.WORKED_AROUND, ()
    x, y = data()
    strategy = member.strategy()
    with strategy.scope():
        made = model()
    return {
        "version": keras.__version__,
        "measured": measured,
        "refused": error_of(lambda: made.fit(x, y, verbose=0)),
        "build": error_of(lambda: keras.Model.fit.__wrapped__(made, x, y, verbose=0)),
        "reduce": error_of(lambda: trainer.reduce_per_replica({"loss": tf.constant(1.0)}, strategy, "auto")),
    }


def served_limits(member: Member) -> dict[str, Any]:
    """What Keras cannot do on parameter servers."""
    import keras
    import tensorflow as tf

    x, y = data()
    strategy = member.strategy(variable_partitioner=tf.distribute.experimental.partitioners.FixedShardsPartitioner(2))

    def of_keras() -> Any:
        with strategy.scope():
            return model()

    found = {"keras": error_of(of_keras), "released": member.listened}
    with strategy.scope():
        shards = tf.Variable(tf.ones((4, 3)))
    plain = model()
    plain._distribute_strategy = strategy
    found |= {name: error_of(lambda name=name: getattr(plain, name)(x, y)) for name in TRAIN_AND_TEST}
    found |= {name: error_of(lambda name=name: getattr(plain, name)(x)) for name in ("predict", "predict_on_batch")}
    return found | {"shards": len(shards.variables), "optimizer": isinstance(plain.optimizer, keras.optimizers.SGD)}


def late(member: Member) -> str:
    """A strategy after an op."""
    import tensorflow as tf

    tf.constant(1) + 1
    return error_of(lambda: member.strategy(**member.params))


def absent(member: Member) -> str:
    """Only the chief asks for a strategy; the other member is there, and does not."""
    if member.formation.rank == 0:
        return error_of(member.strategy)
    signal.pause()
    return ""


def kind(member: Member) -> list[str]:
    """The role, and the class of the strategy."""
    return [member.formation.role.value, type(member.strategy(**member.params)).__name__]


def recognised(member: Member) -> dict[str, bool]:
    """Which errors are taken for those of a broken cluster."""
    import tensorflow as tf
    from tensorflow.python.distribute.coordinator.cluster_coordinator import ClosureAbortedError

    from sparktrain.training.collectives.ring_errors import is_loss

    lost = tf.errors.UnavailableError(None, None, "Connection reset by peer")
    caused, unrelated = ValueError("after the loss"), ValueError("before it")
    caused.__context__ = lost
    unrelated.__context__, unrelated.__suppress_context__ = lost, True
    errors = {
        "unavailable": lost,
        "aborted": tf.errors.AbortedError(None, None, ""),
        "deadline": tf.errors.DeadlineExceededError(None, None, ""),
        "internal, by its words": tf.errors.InternalError(None, None, "Collective ops is aborted by: Socket closed"),
        "closure": ClosureAbortedError(lost),
        "caused": caused,
        "unrelated": unrelated,
        "internal": tf.errors.InternalError(None, None, "cuDNN"),
        "argument": tf.errors.InvalidArgumentError(None, None, "Incompatible shapes"),
    }
    return {name: is_loss(error) for name, error in errors.items()}


class ExampleContext:
    """As much of a context as the examples of strategies use."""

    seed = 1

    def __init__(self, member: Member) -> None:
        self.strategy = member.strategy
        self.rank = member.formation.rank
        self.losses: list[float] = []

    def report(self, step: int, **metrics: float) -> None:
        assert step == len(self.losses)
        self.losses.append(metrics["loss"])


def example(member: Member) -> dict[str, Any]:
    """One of the examples."""
    sys.path.insert(0, str(ROOT / "examples"))
    context = ExampleContext(member)
    module = importlib.import_module(member.params["name"])
    return {"losses": context.losses} | module.train(context)
