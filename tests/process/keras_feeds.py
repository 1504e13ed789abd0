"""A Keras function that reads a dataset of its run in each way that `fit` takes, on any backend."""

import os
import signal
from collections.abc import Iterator
from typing import Any

import sparktrain as st

ROWS = 50
BATCH = 8
STEPS = -(-ROWS // BATCH)
EPOCHS = 3
KILLED_AT = STEPS + 3
"""Steps: in the middle of the second epoch."""


def feed_of(kind: str, ctx: st.TrainContext) -> Any:
    """What `fit` reads: shuffled where the way allows it."""
    data = ctx.dataset("train")
    names = {"feature_columns": "x", "label_columns": "y"}
    if kind == "to_keras":
        return data.to_keras(batch_size=BATCH, shuffle=True, seed=5, **names)  # type: ignore[arg-type]
    if kind == "to_torch":
        return data.to_torch(batch_size=BATCH, shuffle=True, seed=5, **names)  # type: ignore[arg-type]
    if kind == "to_numpy":
        arrays = data.to_numpy()
        return ctx.shard((arrays["x"], arrays["y"]), batch_size=BATCH, shuffle=True, seed=5)

    def batches() -> Iterator[Any]:
        for batch in data.iter_batches(batch_size=BATCH):
            yield batch["x"], batch["y"]

    return ctx.shard(batches)


def train(kinds: list[str], kill: bool, ctx: st.TrainContext) -> dict[str, float]:
    """Fit a model for each kind of feed; `kill` ends the first process in the middle of an epoch of the first one."""
    results: dict[str, float] = {"generation": ctx.generation}
    for kind in kinds:
        for name, value in fit(kind, kill, ctx).items():
            results[f"{kind} {name}"] = value
    return results


def fit(kind: str, kill: bool, ctx: st.TrainContext) -> dict[str, float]:
    """Fit by a checkpoint every other step; returns a digest of the weights, and the steps of this process."""
    import keras
    import numpy as np

    start = keras.initializers.GlorotUniform(seed=1)
    layers = [keras.layers.Dense(8, "relu", kernel_initializer=start), keras.layers.Dropout(0.2, seed=3)]
    model = keras.Sequential([keras.Input((4,)), *layers, keras.layers.Dense(1, kernel_initializer=start)])
    model.compile(ctx.distribute(keras.optimizers.Adam(0.01)), "mse")
    seen: list[int] = []

    class Kill(keras.callbacks.Callback):  # type: ignore[misc] # Keras has no types
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            seen.append(batch)
            if kill and ctx.generation == 1 and len(seen) == KILLED_AT:
                ctx.checkpoint.wait()
                os.kill(os.getppid(), signal.SIGKILL)  # the zygote: the process itself would count as out of memory
                signal.pause()

    feed = feed_of(kind, ctx)
    callbacks = [*ctx.keras_callbacks(checkpoint_every=2), Kill()]
    model.fit(feed, epochs=EPOCHS, verbose=0, callbacks=callbacks)
    weights = float(sum(np.abs(weight).sum(dtype="float64") for weight in model.get_weights()))
    return {"weights": weights, "steps": len(seen)}
