"""The time of a training step in a gang of two, beside bare Horovod processes that run the same function.

    python -m benchmarks.step_time [--steps 300] [--rounds 3] [--jax]

Both train the same network on the same batches with Keras 3 `fit` and Horovod's operations. The rival is started by a
plain launcher, and has no checkpoints, no reports and no callbacks but the stop-watch. Rounds alternate.

A small network on rows of `ctx.shard` is trained with and without healing, for the CPU time that this takes in a step.
With `--jax` that is the only measurement, and Keras is on JAX.
"""

import argparse
import json
import time
from pathlib import Path
from statistics import median
from typing import Any

import sparktrain as st
from benchmarks.bare_ring import of_two
from benchmarks.machine import at_most, show
from benchmarks.session import MASTER, quiet, session

TARGET = 1.03
HEALING_TARGET_MS = 0.2
"""CPU time of a step that can be repeated beyond that of one which cannot."""
SPAN = 25
"""Steps in one measurement of CPU time."""
WARM_UP = 50
BATCH = 64


def network() -> Any:
    import keras

    layers = [keras.layers.Input((784,)), *[keras.layers.Dense(256, activation="relu") for _ in range(4)]]
    return keras.Sequential([*layers, keras.layers.Dense(10)])


def data(steps: int) -> Any:
    import numpy as np
    import tensorflow as tf

    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(BATCH, 784)).astype("float32"), rng.integers(0, 10, BATCH)
    return tf.data.Dataset.from_tensors((x, y)).repeat(steps)


def step_ms(optimizer: Any, callbacks: list[Any], steps: int) -> float:
    """Median time of a step of `fit`, in milliseconds."""
    import keras

    class Watch(keras.callbacks.Callback):
        def __init__(self):
            super().__init__()
            self.found = []
            self._last = 0.0

        def on_train_batch_end(self, batch, logs=None):
            now = time.perf_counter()
            self.found.append(now - self._last)
            self._last = now

    watch = Watch()
    model = network()
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer=optimizer, loss=loss, jit_compile=False)
    model.fit(data(steps), epochs=1, verbose=0, callbacks=[*callbacks, watch])
    return 1000 * median(watch.found[WARM_UP:])


def ours(steps: int, ctx: Any) -> float:
    import keras

    optimizer = ctx.distribute(keras.optimizers.SGD(0.01))
    return step_ms(optimizer, ctx.keras_callbacks(), steps)


def sharded(steps: int, ctx: Any) -> dict[str, float]:
    """Median time of a step on rows of `ctx.shard`, and its CPU time in this member, in milliseconds.

    The CPU time is that of the fastest fifth of all spans: a machine that others use inflates the others.
    """
    import keras
    import numpy as np

    ends: list[float] = []
    cpu: list[float] = []

    class Watch(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            ends.append(time.perf_counter())
            cpu.append(time.process_time())

    layers = keras.layers
    hidden = [layers.Dense(64, activation="relu"), layers.BatchNormalization(), layers.Dense(64, activation="relu")]
    model = keras.Sequential([layers.Input((64,)), *hidden, layers.Dense(2)])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    optimizer = ctx.distribute(keras.optimizers.Adam(1e-3))
    compiler = {} if keras.backend.backend() == "jax" else {"jit_compile": False}
    model.compile(optimizer=optimizer, loss=loss, metrics=["accuracy"], **compiler)
    x = np.random.default_rng(0).normal(size=(BATCH * steps, 64)).astype("float32")
    rows = ctx.shard((x, (x.sum(axis=1) > 0).astype("int32")), batch_size=BATCH // ctx.size)
    model.fit(rows, epochs=1, verbose=0, callbacks=[*ctx.keras_callbacks(), Watch()])
    spans = np.diff(cpu[WARM_UP::SPAN]) / SPAN
    return {"step": 1000 * median(np.diff(ends[WARM_UP:])), "cpu": 1000 * float(np.percentile(spans, 20))}


def bare(steps: int) -> None:
    """Print the time of a step, in a process of the rival."""
    import horovod.tensorflow as hvd
    import keras
    import tensorflow as tf

    hvd.init()

    class Averaging(keras.optimizers.SGD):
        def apply(self, grads: Any, trainable_variables: Any = None) -> Any:
            dense = [tf.convert_to_tensor(each) for each in grads]
            return super().apply(hvd.grouped_allreduce(dense, op=hvd.Average, name="grads"), trainable_variables)

    found = step_ms(Averaging(0.01), [], steps)
    print(json.dumps(found), flush=True)


def rival(steps: int) -> float:
    """The step time of two bare processes."""
    return float(json.loads(of_two("benchmarks.step_time", ["--bare", steps])[0]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--jax", action="store_true")
    parser.add_argument("--bare", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.bare is not None:
        bare(given.bare)
        return
    if given.jax:
        with session() as (spark, runs), st.pool(spark, agents=2, preload=["jax"]) as pool:
            compare_healing(pool, runs, given, backend="jax", env={"KERAS_BACKEND": "jax"})
        return
    found: dict[str, list[float]] = {"horovod": [], "tensorflow": [], "bare": []}
    with session() as (spark, runs), st.pool(spark, agents=2, preload=["tensorflow", "keras"]) as pool:
        for _ in range(given.rounds):
            found["bare"].append(rival(given.steps))
            for backend in ("horovod", "tensorflow"):
                result = pool.run(ours, {"steps": given.steps}, workers=2, backend=backend, **quiet(str(Path(runs))))
                found[backend].append(result.metrics["result"])
        compare_healing(pool, runs, given, backend="horovod")
    middle = {name: median(times) for name, times in found.items()}
    ratio = middle["horovod"] / middle["bare"]
    rows = [
        ("bare Horovod processes", f"{middle['bare']:.2f} ms", "", ""),
        ("gang on Horovod", f"{middle['horovod']:.2f} ms", f"{ratio:.3f}", at_most(ratio, TARGET)),
        ("gang on TensorFlow's collectives", f"{middle['tensorflow']:.2f} ms",
         f"{middle['tensorflow'] / middle['bare']:.3f}", ""),
    ]  # fmt: skip
    title = f"A step of two members, 4 layers of 256, batch {BATCH}, {given.rounds} rounds, {MASTER}"
    show(title, ("", "median step", "of the bare one", "target"), rows)


def compare_healing(pool: st.Pool, runs: str, given: argparse.Namespace, **gang: Any) -> None:
    """Show a step with and without healing; rounds alternate."""
    found: dict[tuple[str, bool], list[float]] = {}
    for _ in range(given.rounds):
        for healing in (True, False):
            options = quiet(str(Path(runs))) | {"healing": healing, **gang}
            result = pool.run(sharded, {"steps": given.steps}, workers=2, **options)
            for figure in ("step", "cpu"):
                found.setdefault((figure, healing), []).append(result.metrics[figure])
    middle = {name: median(times) for name, times in found.items()}
    more_ms = middle["cpu", True] - middle["cpu", False]
    rows = []
    for healing in (True, False):
        facts = f"{middle['step', healing]:.2f} ms", f"{middle['cpu', healing]:.2f} ms"
        checked = at_most(more_ms, HEALING_TARGET_MS, " ms more") if healing else ""
        rows.append((f"healing {'on' if healing else 'off'}", *facts, checked))
    title = f"A step of a small network on ctx.shard, backend {gang['backend']}, {given.rounds} rounds, {MASTER}"
    show(title, ("", "median step", "CPU of a member", "target"), rows)


if __name__ == "__main__":
    main()
