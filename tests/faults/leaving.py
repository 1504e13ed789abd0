"""Trainings on agents that are drained, with the time of each step of each member."""

import itertools
import json
import os
import time
from pathlib import Path
from typing import Any

import keras
import numpy as np

STEP_S = 0.02
AFTER = 20
"""Steps of a training after it has moved."""
GO = "go"
"""The file with which a training that does not move may end."""


class Note(keras.callbacks.Callback):  # type: ignore[misc] # Keras has no types
    """Writes each step down, and ends some steps after the training has moved, or once it may."""

    def __init__(self, folder: Path, ctx: Any, moves: bool) -> None:
        super().__init__()
        name = f"{ctx.trial}-{ctx.rank}-process-"
        self._follows = bool(list(folder.glob(f"{name}*")))
        (folder / f"{name}{os.getpid()}").touch()
        self._file = (folder / f"{ctx.trial}-{ctx.generation}-{ctx.rank}.jsonl").open("a")
        self._go = folder / GO
        # No number: the next process would continue with it.
        self._counts = itertools.count(1)
        self._moves = moves
        self._position = ctx._position

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        time.sleep(STEP_S)  # the work of a step
        step = int(self._position.step)
        print(json.dumps([time.time(), step]), file=self._file, flush=True)
        if self._moves:
            self.model.stop_training = next(self._counts) >= AFTER and self._follows
        elif self._go.exists():
            self.model.stop_training = True


def leave(folder: str, ctx: Any, number: int = 0) -> dict[str, float]:
    """Train until the first trial has moved to another agent."""
    keras.utils.set_random_seed(3)
    model = keras.Sequential([keras.Input((5,)), keras.layers.Dense(8, "tanh"), keras.layers.Dense(1)])
    model.compile(ctx.distribute(keras.optimizers.SGD(0.01, momentum=0.9)), "mse")
    x = np.random.default_rng(3).normal(size=(6000, 5)).astype("float32")
    data = ctx.shard((x, x.sum(1, keepdims=True)), batch_size=2)
    callbacks = [*ctx.keras_callbacks(), Note(Path(folder), ctx, moves=number == 0)]
    model.fit(data, epochs=500, verbose=0, callbacks=callbacks)
    return {"steps": int(model.optimizer.iterations.numpy())}
