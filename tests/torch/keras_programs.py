"""Keras programs of a user on PyTorch, for one process and for a gang."""

import os
import signal
import sys
from pathlib import Path
from typing import Any

import keras
import numpy as np

from sparktrain.base.clock import pause

ROWS, BATCH, EPOCHS = 48, 12, 4
STEPS = ROWS // BATCH


def rows() -> tuple[Any, Any]:
    x = np.random.default_rng(3).normal(size=(ROWS, 5)).astype("float32")
    return x, np.sin(x.sum(1, keepdims=True)).astype("float32")


def share(rank: int, size: int) -> tuple[Any, Any]:
    """Of each batch, a member's part."""
    batches = np.arange(ROWS).reshape(-1, size, BATCH // size)
    chosen = batches[:, rank].reshape(-1)
    x, y = rows()
    return x[chosen], y[chosen]


def model(seed: int) -> Any:
    keras.utils.set_random_seed(seed)
    return keras.Sequential([keras.Input((5,)), keras.layers.Dense(8, "tanh"), keras.layers.Dense(1)])


def train(
    folder: str, kill_at: int, compression: str, ctx: Any, memory: str = "", spoil_at: int = 0
) -> dict[str, float]:
    """Fit as a member, and write the weights; rank 1 of the first generation ends by a signal after a step.

    `memory`: how often members copy their state to shared memory, in place of checkpoints in the store. After
    `spoil_at` steps rank 1 has other weights.
    """
    options = {"checkpoint_every": None, "memory_checkpoint": memory} if memory else {"checkpoint_every": "epoch"}
    trained = model(ctx.rank)
    optimizer = ctx.distribute(keras.optimizers.Adam(0.01), compression=compression)
    trained.compile(optimizer, "mse", metrics=["mae"])

    class Kill(keras.callbacks.Callback):  # type: ignore[misc] # Keras has no types
        steps = 0

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            self.steps += 1
            pause(0.02 if memory else 0)  # an agent holds a copy some milliseconds after its step
            if (ctx.rank, ctx.generation, self.steps) == (1, 1, kill_at):
                os.kill(os.getpid(), signal.SIGKILL)
            if ctx.rank == 1 and self.steps == spoil_at:
                self.model.layers[0].bias.assign(self.model.layers[0].bias + 1e-6)

    history = trained.fit(
        *share(ctx.rank, ctx.size), batch_size=BATCH // ctx.size, epochs=EPOCHS, shuffle=False, verbose=0,
        callbacks=[*ctx.keras_callbacks(**options), Kill()],
    ).history  # fmt: skip
    np.save(Path(folder, f"rank-{ctx.rank}.npy"), flat(trained))
    return {"loss": history["loss"][-1], "mae": history["mae"][-1], "generation": ctx.generation}


def train_alone() -> tuple[Any, dict[str, float]]:
    """The weights, and the metrics of the last epoch, of one process on all rows."""
    trained = model(0)
    trained.compile(keras.optimizers.Adam(0.01), "mse", metrics=["mae"])
    history = trained.fit(*rows(), batch_size=BATCH, epochs=EPOCHS, shuffle=False, verbose=0).history
    return flat(trained), {name: values[-1] for name, values in history.items()}


def flat(trained: Any) -> Any:
    return np.concatenate([weight.ravel() for weight in trained.get_weights()])


def name_backends(ctx: Any) -> dict[str, float]:
    """What this process has imported, and a mean over the members."""
    imported = {name: float(name in sys.modules) for name in ("tensorflow", "jax")}
    mean = ctx.allreduce(float(ctx.rank))
    return imported | {"keras on torch": float(keras.backend.backend() == "torch"), "mean": mean}
