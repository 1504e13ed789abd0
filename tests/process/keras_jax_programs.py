"""Functions that train Keras on JAX in a gang, and in one process.

They import Keras themselves: a process of tests that imports this module may have it on TensorFlow.
"""

import os
import signal
from pathlib import Path
from typing import Any

import numpy as np

ROWS = 64
BATCH = 16
EPOCHS = 3


def rows() -> tuple[Any, Any]:
    x = np.random.default_rng(2).normal(size=(ROWS, 4)).astype("float32")
    return x, np.sin(x.sum(axis=1, keepdims=True))


def network() -> Any:
    import keras

    start = keras.initializers.GlorotUniform(seed=1)
    return keras.Sequential(
        [
            keras.Input((4,)),
            keras.layers.Dense(8, "tanh", kernel_initializer=start, kernel_regularizer="l2"),
            keras.layers.BatchNormalization(),
            keras.layers.Dense(1, kernel_initializer=start),
        ]
    )


def share(array: Any, ctx: Any) -> Any:
    """The rows of this member of each batch of all."""
    return array.reshape(-1, ctx.size, BATCH // ctx.size, *array.shape[1:])[:, ctx.rank].reshape(-1, *array.shape[1:])


def train(folder: str, kill_at: int, ctx: Any) -> dict[str, float]:
    """Fit by the callbacks of `ctx`; rank 1 of the first generation ends after `kill_at` steps."""
    import keras

    model = network()
    model.compile(ctx.distribute(keras.optimizers.Adam(0.01)), "mse", metrics=["mae"])
    x, y = rows()

    class Kill(keras.callbacks.Callback):  # type: ignore[misc] # Keras has no types
        steps = 0

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            self.steps += 1
            if ctx.rank == 1 and ctx.generation == 1 and self.steps == kill_at:
                os.kill(os.getpid(), signal.SIGKILL)

    history = model.fit(
        share(x, ctx), share(y, ctx), batch_size=BATCH // ctx.size, epochs=EPOCHS, shuffle=False, verbose=0,
        validation_data=(x, y), validation_batch_size=ROWS,
        callbacks=[*ctx.keras_callbacks(), Kill()],
    )  # fmt: skip
    np.savez(Path(folder, f"{ctx.size}-rank-{ctx.rank}.npz"), *model.get_weights())
    # Each member evaluates by itself.
    loss = model.evaluate(x, y, batch_size=ROWS, verbose=0)[0] if ctx.rank == 0 else 0.0
    return {
        "loss": history.history["loss"][-1],
        "mae": history.history["mae"][-1],
        "val_mae": history.history["val_mae"][-1],
        "evaluated": loss,
        "generation": ctx.generation,
    }
