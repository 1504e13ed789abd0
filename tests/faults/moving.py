"""A training with members that move to other agents, and the steps and processes of each."""

import json
import os
import time
from pathlib import Path
from typing import Any

import keras
import numpy as np

STEP_S = 0.05
HELD_S = 120.0
GO = "go"
"""The file with which the training ends."""
HOLD = "hold"
"""Prefix of the file which, with the rank after it, has a later process of that rank wait in its function."""


class Note(keras.callbacks.Callback):  # type: ignore[misc] # Keras has no types
    """Writes each step down."""

    def __init__(self, folder: Path, rank: int) -> None:
        super().__init__()
        self._file = (folder / f"steps-{rank}.jsonl").open("a")
        self._go = folder / GO

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """See base class."""
        time.sleep(STEP_S)  # the work of a step
        print(json.dumps(int(self.model.optimizer.iterations.numpy())), file=self._file, flush=True)
        if self._go.exists():
            self.model.stop_training = True


def move(folder: str, ctx: Any) -> None:
    """Train until the test has seen what it waits for; note how this member has ended."""
    keras.utils.set_random_seed(3)
    notes = Path(folder)
    name = f"process-{ctx.rank}-"
    follows = bool(list(notes.glob(f"{name}*")))
    (notes / f"{name}{os.getpid()}").touch()
    deadline = time.monotonic() + HELD_S
    while follows and (notes / f"{HOLD}-{ctx.rank}").exists():
        assert time.monotonic() < deadline, "the test has not let this process continue"
        time.sleep(0.02)
    model = keras.Sequential([keras.Input((5,)), keras.layers.Dense(8, "tanh"), keras.layers.Dense(1)])
    model.compile(ctx.distribute(keras.optimizers.SGD(0.01, momentum=0.9)), "mse", jit_compile=False)
    x = np.random.default_rng(3).normal(size=(6000, 5)).astype("float32")
    data = ctx.shard((x, x.sum(1, keepdims=True)), batch_size=2)
    model.fit(data, epochs=500, verbose=0, callbacks=[*ctx.keras_callbacks(), Note(notes, ctx.rank)])
    np.save(notes / f"weights-{ctx.rank}.npy", np.concatenate([np.ravel(weight) for weight in model.get_weights()]))
