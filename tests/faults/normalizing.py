"""A training with state that each member has of its own: moving averages and metrics."""

import json
import os
import signal
from pathlib import Path
from typing import Any

import keras
import numpy as np

ROWS = 256
BATCH = 16


def normalize(
    folder: str, kills: list[int], victim: int, every: int | None, memory: str | None, sharded: bool, ctx: Any
) -> None:
    """Train on plain arrays or by `ctx.shard`; member `victim` ends itself after the steps in `kills`, once each."""
    keras.utils.set_random_seed(7)
    rng = np.random.default_rng(3)
    x = rng.normal(size=(ROWS, 8)).astype("float32")
    y = rng.integers(0, 3, ROWS)
    model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(3), keras.layers.BatchNormalization()])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer=ctx.distribute(keras.optimizers.SGD(0.01, momentum=0.9)), loss=loss, metrics=["accuracy"])
    notes = Path(folder)

    class Kill(keras.callbacks.Callback):  # type: ignore[misc] # Keras has no types
        def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
            """A `fit` with such a callback does not heal: all members restart."""

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            step = int(model.optimizer.iterations)
            mark = notes / f"killed-{step}"
            if ctx.rank == victim and step in kills and not mark.exists():
                mark.touch()
                os.kill(os.getpid(), signal.SIGKILL)

    callbacks = [*ctx.keras_callbacks(checkpoint_every=every, memory_checkpoint=memory), Kill()]
    if sharded:
        import tensorflow as tf

        rows = ctx.shard(tf.data.Dataset.from_tensor_slices((x, y)).batch(2 * BATCH))
        history = model.fit(rows, epochs=2, verbose=0, callbacks=callbacks)
    else:
        mine = slice(ctx.rank, None, ctx.size)
        history = model.fit(
            x[mine], y[mine], batch_size=BATCH, shuffle=False, epochs=2, verbose=0, callbacks=callbacks
        )  # fmt: skip
    variables = [*model.variables, *model.optimizer.variables]
    np.savez(notes / f"member-{ctx.rank}.npz", **{variable.path: np.asarray(variable.value) for variable in variables})
    (notes / f"history-{ctx.rank}.json").write_text(json.dumps(history.history))
