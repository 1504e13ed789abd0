"""Keras programs of users for gangs that average weights after some steps."""

import os
import signal
from pathlib import Path
from typing import Any

import keras
import numpy as np

from sparktrain.base.clock import pause
from tests.training.local_gang import flat

ROWS, BATCH, EPOCHS = 96, 6, 3
STEPS = ROWS // BATCH // 2
"""Of an epoch, in a gang of two."""


def rows() -> tuple[Any, Any]:
    x = np.random.default_rng(3).normal(size=(ROWS, 5)).astype("float32")
    return x, np.sin(x.sum(1, keepdims=True)).astype("float32")


class Note(keras.callbacks.Callback):  # type: ignore[misc] # Keras has no types
    """Notes this member's weights where validation starts, and kills it once after a step."""

    def __init__(self, folder: str, kill_at: int | None, victim: int, ctx: Any) -> None:
        super().__init__()
        self.validated: list[Any] = []
        self._mark = Path(folder, "killed")
        self._kill_at = kill_at if ctx.rank == victim else None
        self._ctx = ctx

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        pause(0.02)
        if self._ctx._position.step == self._kill_at and not self._mark.exists():
            self._mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)

    def on_test_begin(self, logs: Any = None) -> None:
        self.validated.append(flat(self.model))


def train(
    folder: str,
    ctx: Any,
    kill_at: int | None = None,
    victim: int = 1,
    momentum: float = 0.0,
    policy: str = "float32",
    **callbacks: Any,
) -> dict[str, float]:
    """Train as a member, and write what this member computed to `folder`."""
    keras.config.set_dtype_policy(policy)
    keras.utils.set_random_seed(ctx.rank)
    model = keras.Sequential([keras.Input((5,)), keras.layers.Dense(8, "tanh"), keras.layers.Dense(1)])
    model.compile(ctx.distribute(keras.optimizers.SGD(0.1, momentum=momentum)), "mse")
    note = Note(folder, kill_at, victim, ctx)
    data = ctx.shard(rows(), batch_size=BATCH * 2 // (ctx._gang.readers or ctx.size))
    history = model.fit(
        data, epochs=EPOCHS, validation_data=rows(), validation_batch_size=ROWS, verbose=0,
        callbacks=[*ctx.keras_callbacks(**{"memory_checkpoint": None, **callbacks}), note],
    ).history  # fmt: skip
    ctx.export(model)
    np.savez(Path(folder, f"rank-{ctx.rank}.npz"), weights=flat(model), validated=note.validated, **history)
    return {"loss": history["loss"][-1]}


def train_alone() -> Any:
    """The weights that one process trains on all rows."""
    model = _untrained()
    model.fit(*rows(), batch_size=2 * BATCH, epochs=EPOCHS, shuffle=False, verbose=0)
    return flat(model)


def loss_of_rank_0_untrained() -> float:
    """The loss on all rows before the first step."""
    return float(_untrained().evaluate(*rows(), batch_size=ROWS, verbose=0))


def _untrained() -> Any:
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((5,)), keras.layers.Dense(8, "tanh"), keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(0.1, momentum=0.9), "mse", jit_compile=False)
    return model
