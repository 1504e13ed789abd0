"""What members of test gangs do with a ring directly."""

import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from sparktrain.config.backends import Backend
from sparktrain.errors import OutOfStepError, SpecError
from sparktrain.training.collectives.backend import Joining, load
from sparktrain.training.collectives.ring import LocalRing, Ring
from sparktrain.training.frameworks.keras.consistency import check_equal, check_same_program
from sparktrain.training.frameworks.keras.distributed_apply import is_distributed
from sparktrain.training.frameworks.keras.distributed_optimizer import distribute
from sparktrain.training.frameworks.tensorflow.optimizers.gradients import averaged_gradients
from sparktrain.training.frameworks.tensorflow.optimizers.optimizer import distribute_tape
from sparktrain.training.frameworks.tensorflow.optimizers.tensorflow_values import VALUES
from tests.training.fits import data, fit, mlp

TYPES = ("bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")
FLOATS = ("float16", "bfloat16", "float32", "float64")


def numbers(ring: Ring) -> dict[str, Any]:
    """Of each type: sums, means, broadcasts and gathered rows."""
    own = ring.rank + 1
    found: dict[str, Any] = {}
    for name in (*TYPES, *FLOATS, "complex64"):
        row = tf.cast(tf.fill([own, 2], own), name)
        (sent,) = ring.broadcast([row[0]], name="sent")
        gathered = ring.allgather(row, name="gathered")
        if name in TYPES[1:] + FLOATS:
            pair = tf.cast([own * 30, own], name)
            (total,), (mean,) = (ring.allreduce([pair], average=average, name="one") for average in (False, True))
            assert total.dtype == mean.dtype == name
            found[f"sum {name}"], found[f"mean {name}"] = _floats(total), _floats(mean)
        assert sent.dtype == gathered.dtype == name
        found[f"sent {name}"], found[f"gathered {name}"] = _floats(sent), _floats(gathered)
    return found


def shapes(ring: Ring) -> dict[str, Any]:
    """Small and large tensors together, an empty one, shapes that change from call to call, loops; eagerly and not."""
    own = float(ring.rank + 1)
    mixed = [tf.fill([3], own), tf.fill([2, 2], own), tf.fill([], ring.rank + 1), tf.zeros([0, 3]), tf.range(3e6) * own]

    def mean(tensors: list[tf.Tensor]) -> list[tf.Tensor]:
        return ring.allreduce(tensors, average=True, name="mean")

    def summary(tensors: list[tf.Tensor]) -> Any:
        return [[list(each.shape), _floats(tf.reshape(each, [-1])[-1:])] for each in tensors]

    traced = tf.function(mean, reduce_retracing=True)
    changing = [summary(traced([tf.fill([count], own), *mixed[1:]])) for count in (3, 4, 5, 4)]
    rows = tf.function(lambda tensor: ring.allgather(tensor, name="rows"), input_signature=[tf.TensorSpec([None, 2])])
    gathered = [_floats(rows(tf.fill([count + ring.rank, 2], own))) for count in (0, 2, 0)]

    @tf.function
    def loop() -> tf.Tensor:
        total = tf.zeros([2])
        for _ in tf.range(3):
            total += ring.allreduce([tf.fill([2], own)], average=False, name="loop")[0]
        return total

    @tf.function
    def same_name() -> list[tf.Tensor]:
        return [ring.allreduce([tf.fill([2], own * factor)], average=False, name="same")[0] for factor in (1.0, 10.0)]

    (copied,) = ring.broadcast([mixed[-1]], name="large")
    return {
        "eager": summary(mean(mixed)),
        "changing": changing,
        "gathered": gathered,
        "loop": _floats(loop()),
        "same name": [_floats(each) for each in same_name()],
        "large": summary([copied]),
    }


def users_values(ring: Ring) -> dict[str, Any]:
    own = ring.rank + 1
    mean = VALUES.allreduce(ring, {"loss": float(own), "count": own, "array": np.array([own, 0], "int32")})
    assert [type(mean[key]) for key in ("loss", "count")] == [float, float]
    total = VALUES.allreduce(ring, [own, own == 1, np.float32(own)], average=False)
    assert [type(each) for each in total] == [int, int, np.float32]
    sent = VALUES.broadcast(ring, (own, own == 1, keras.Variable([float(own)])))
    assert [type(each) for each in sent[:2]] == [int, bool]
    refused = []
    for wrong in ("text", None, object()):
        try:
            VALUES.broadcast(ring, wrong)
        except TypeError as error:
            refused.append(str(error))
    gathered = [VALUES.allgather(ring, own), VALUES.allgather(ring, np.full([own], own, "int16"))]
    return {"mean": mean, "total": total, "sent": _plain(sent), "gathered": gathered, "refused": len(refused)}


def rows(ring: Ring) -> Any:
    """A sparse gradient that is too large to be sent whole: rows 0 and 5 of both members, row 0 twice."""
    shape = [2_000_000, 1]
    own = tf.IndexedSlices(
        tf.fill([3, 1], float(ring.rank + 1)), tf.constant([0, 0, 5 + ring.rank]), tf.constant(shape)
    )
    (mean,), _ = averaged_gradients(ring, [own], None, "rows")
    assert isinstance(mean, tf.IndexedSlices)
    return sorted(zip(mean.indices.numpy().tolist(), mean.values.numpy()[:, 0].tolist(), strict=True))


def compressed(ring: Ring, compression: str) -> list[float]:
    """Gradients of 30,000 on each member, with a sum beyond the range of fp16; and integers, which stay."""
    gradients = [tf.fill([2], 30000.0 + ring.rank), None, tf.constant([1 / 3]), tf.constant([1.0], tf.float16)]
    variables = [keras.Variable(tf.zeros_like(each)) for each in gradients if each is not None]
    variables.insert(1, keras.Variable(0.0))
    optimizer = distribute(keras.optimizers.SGD(1.0), ring, compression=compression)
    optimizer.apply(gradients, variables)
    return [float(np.ravel(each.numpy())[0]) for each in variables]


def overflow(ring: Ring) -> dict[str, Any]:
    """A gradient that is infinite on the last rank alone: every member skips the update and halves its scale."""
    first, late = (keras.optimizers.SGD(1.0) for _ in range(2))
    refused = keras.optimizers.LossScaleOptimizer(distribute(keras.optimizers.SGD(1.0), ring))
    return {
        "wrapped first": _overflown(ring, distribute(_scaled(first), ring)),
        "wrapped late": _overflown(ring, _scaled(distribute(late, ring))),
        "unchecked": _error(lambda: refused.apply([tf.ones([1])], [keras.Variable([1.0])])).split("\n\n")[:2],
    }


def _scaled(optimizer: Any) -> Any:
    return keras.optimizers.LossScaleOptimizer(optimizer, initial_scale=8.0)


def _overflown(ring: Ring, optimizer: Any) -> list[float]:
    """A variable from 1, and the scale from 8, after three updates by 8; one of them is too large."""
    model = mlp()
    model.compile(optimizer, "mse", jit_compile=False)
    check_same_program(ring, model)
    assert is_distributed(optimizer)
    assert not is_distributed(optimizer.inner_optimizer)
    variable = keras.Variable([1.0])
    step = tf.function(lambda value: optimizer.apply([value], [variable]))
    for value in (8.0, np.inf if ring.rank == ring.size - 1 else 8.0, 8.0):
        step(tf.constant([value]))
    return [float(variable.numpy()[0]), float(optimizer.dynamic_scale.numpy())]


def saved(ring: Ring) -> dict[str, Any]:
    """A distributed optimizer is saved as the plain one, and continues with its state."""
    keras.utils.set_random_seed(7)
    model = mlp()
    optimizer = keras.optimizers.Adam(0.01)
    optimizer.build(model.trainable_variables)
    optimizer.iterations.assign(5)
    plain = keras.saving.serialize_keras_object(optimizer)
    assert distribute(optimizer, ring) is optimizer
    model.compile(optimizer, "mse", jit_compile=False)
    fit(ring, model, *data(ring))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.keras")
        model.save(path)
        loaded = keras.models.load_model(path)
        copy = tf.train.Checkpoint(model=model, optimizer=optimizer)
        copy.restore(copy.save(f"{folder}/checkpoint")).assert_consumed()
    return {
        "same": keras.saving.serialize_keras_object(optimizer) == plain,
        "class": type(loaded.optimizer).__module__ + "." + type(loaded.optimizer).__name__,
        "distributed": is_distributed(loaded.optimizer),
        "iterations": int(loaded.optimizer.iterations.numpy()),
        "twice": _error(lambda: distribute(optimizer, ring)),
        "wrapped": _error(lambda: distribute(keras.optimizers.LossScaleOptimizer(optimizer), ring)),
        "no optimizer": _error(lambda: distribute("sgd", ring)),
        "compression": _error(lambda: distribute(keras.optimizers.SGD(), ring, compression="fp8")),
    }


def diverging(ring: Ring) -> dict[str, str]:
    """The errors of members that differ."""
    silent = mlp()
    silent.set_weights([np.full(each.shape, 0.1) for each in silent.get_weights()])
    silent.compile(keras.optimizers.SGD(0.1), "mse", jit_compile=False)  # not distributed
    check_equal(ring, silent)
    silent.fit(*data(ring), epochs=1, verbose=0)

    rate = 0.1 if ring.rank == 0 else 0.2
    other_rate, other_shape, compiled = mlp(), _last(ring), mlp()
    other_rate.compile(keras.optimizers.SGD(rate), "mse", jit_compile=False)
    compiled.compile("sgd", "mse", jit_compile=True)
    return {
        "not reduced": _error(lambda: check_equal(ring, silent)),
        "rate": _error(lambda: check_same_program(ring, other_rate)),
        "shape": _error(lambda: check_same_program(ring, other_shape)),
        "steps": _error(lambda: check_same_program(ring, silent, steps=5 + ring.rank)),
        "compiled": _error(lambda: check_same_program(ring, compiled)),
    }


def alike(ring: Ring) -> str:
    """Names that Keras has numbered otherwise on another rank are no difference."""
    for _ in range(ring.rank):
        mlp()
    model = mlp()
    model.compile("adam", "mse", jit_compile=False)
    check_same_program(ring, model, steps=4)
    return model.variables[0].path


def alone() -> dict[str, Any]:
    """In a ring of one everything is left as it is."""
    ring, optimizer, model = LocalRing(), keras.optimizers.SGD(), mlp()
    distribute(optimizer, ring)
    model.compile(optimizer, "mse")
    check_same_program(ring, model)
    check_equal(ring, model)
    with distribute_tape(tf.GradientTape(), ring) as tape:
        loss = model.variables[0][0, 0] * 3.0
    return {
        "plain": not is_distributed(optimizer) and "apply" not in vars(optimizer),
        "gradient": tape.gradient(loss, model.variables[0]).numpy()[0, 0],
        "values": [VALUES.allreduce(ring, 2), VALUES.broadcast(ring, 3), VALUES.allgather(ring, 4).tolist()],
    }


def compressed_fit(ring: Ring, compression: str) -> Any:
    """Weights of a whole `fit` with gradients that are sent at half their width."""
    keras.utils.set_random_seed(7)
    model = mlp()
    model.compile(distribute(keras.optimizers.SGD(0.1), ring, compression=compression), "mse", jit_compile=False)
    weights = fit(ring, model, *data(ring)).get_weights()
    check_equal(ring, model)
    return np.concatenate([each.ravel() for each in weights])


def timed(ring: Ring) -> dict[str, float]:
    """Milliseconds, medians."""
    small = [tf.ones([256]) for _ in range(40)]
    large = tf.ones([25_000_000])
    calls = {
        "40 x 1 KB, joined": (lambda: ring.allreduce(small, average=True, name="joined"), 30),
        "40 x 1 KB, one by one": (lambda: [ring.allreduce([each], average=True, name="each") for each in small], 10),
        "100 MB": (lambda: ring.allreduce([large], average=True, name="large"), 5),
        "100 MB broadcast": (lambda: ring.broadcast([large], name="sent"), 3),
    }
    return {name: _median_ms(tf.function(call), times) for name, (call, times) in calls.items()}


def _median_ms(call: Any, times: int) -> float:
    seconds = []
    for _ in range(times + 1):
        started = time.perf_counter()
        tf.nest.map_structure(lambda each: each[:1].numpy(), call())
        seconds.append(time.perf_counter() - started)
    return round(statistics.median(seconds[1:]) * 1000, 1)


def forms(joining: Joining, backend: str) -> float:
    """Seconds until the ring is connected."""
    started = time.perf_counter()
    load(Backend(backend))(joining)
    return round(time.perf_counter() - started, 3)


def _last(ring: Ring) -> keras.Model:
    return keras.Sequential([keras.Input((5,)), keras.layers.Dense(3 + (ring.rank == ring.size - 1))])


def _error(call: Any) -> str:
    try:
        call()
    except (OutOfStepError, SpecError) as error:
        return f"{type(error).__name__}: {error}"
    return "no error"


def _floats(tensor: tf.Tensor) -> Any:
    return tf.cast(tf.math.real(tensor) if tensor.dtype.is_complex else tensor, tf.float64).numpy()


def _plain(nest: Any) -> Any:
    return tf.nest.map_structure(lambda each: each.numpy() if tf.is_tensor(each) else each, nest)
