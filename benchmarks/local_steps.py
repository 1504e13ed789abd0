"""What `local_steps=` saves of a step in a ring of two, with a model of some megabytes.

    python -m benchmarks.local_steps [--mb 32] [--steps 60] [--rounds 3]

Both members run on this machine, each on one core: their averages travel over loopback, which is faster than a network.
Rounds alternate between the ways to train; a step is the mean of an epoch, and the CPU that both members took for it.
"""

import argparse
import resource
import time
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import sparktrain as st
from benchmarks.machine import at_most, show

LAYERS = 8
ROWS = 16
LOCAL = 8
TARGET = 0.6
"""Part of a step with averaged gradients that one with eight local steps may take, on the slower ring."""
SAME = "averaged gradients"
WAYS = {SAME: None, "local_steps=1": 1, f"local_steps={LOCAL}": LOCAL}


def train(mb: int, steps: int, ctx: Any) -> dict[str, float]:
    """The seconds of a step, and the CPU seconds of all members for it, in the second epoch."""
    import keras
    import numpy as np

    width = int((mb * 2**20 / (4 * LAYERS)) ** 0.5)
    layers = [keras.layers.Dense(width, activation="tanh") for _ in range(LAYERS)]
    model = keras.Sequential([keras.layers.Input((width,)), *layers])
    model.compile(ctx.distribute(keras.optimizers.SGD(0.01)), "mse", jit_compile=False)
    x = np.random.default_rng(0).random((2 * ROWS * steps, width), "float32")
    found: list[tuple[float, float]] = []

    def note(epoch: int, logs: Any) -> None:
        used = resource.getrusage(resource.RUSAGE_SELF)
        found.append((time.perf_counter(), used.ru_utime + used.ru_stime))

    watch = keras.callbacks.LambdaCallback(on_epoch_begin=note, on_epoch_end=note)
    callbacks = [*ctx.keras_callbacks(checkpoint_every=None, memory_checkpoint=None), watch]
    model.fit(ctx.shard((x, x), batch_size=ROWS), epochs=2, verbose=0, callbacks=callbacks)
    wall, cpu = ((last - first) / steps for first, last in zip(found[2], found[3], strict=True))
    return {"seconds": wall, "cpu": float(ctx.allreduce(cpu, average=False))}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mb", type=int, default=32)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    backends = ("horovod", "tensorflow")
    found: dict[tuple[str, str], list[dict[str, Any]]] = {(each, way): [] for each in backends for way in WAYS}
    with TemporaryDirectory() as runs, st.pool(st.local(slots=2), preload=["tensorflow", "keras"]) as pool:
        for _ in range(given.rounds):
            for (backend, way), results in found.items():
                result = pool.run(
                    train, {"mb": given.mb, "steps": given.steps}, workers=2, backend=backend, local_steps=WAYS[way],
                    dir=runs, progress=False,
                )  # fmt: skip
                results.append(dict(result.metrics))
    rows = []
    for backend in backends:
        whole = median(each["seconds"] for each in found[backend, SAME])
        for way, steps in WAYS.items():
            wall, cpu = (1000 * median(each[name] for each in found[backend, way]) for name in ("seconds", "cpu"))
            part = wall / 1000 / whole
            target = at_most(part, TARGET) if steps == LOCAL else ""
            rows.append((f"{backend}, {way}", f"{wall:.1f} ms", f"{cpu:.1f} ms", f"{part:.2f}", target))
    title = f"A step of two members, {LAYERS} dense layers of {given.mb} MiB, batch {ROWS}, {given.rounds} rounds"
    show(title, ("", "step", "CPU of both", "of averaged gradients", "target"), rows)


if __name__ == "__main__":
    main()
