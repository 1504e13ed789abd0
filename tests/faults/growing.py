"""A training of a gang that shrinks and grows, and the time of each step of each member."""

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import keras
import numpy as np

from tests.support import drill

STEP_S = 0.02
AFTER = 30
"""Steps that the gang trains on after it has grown."""
_STEPS: list[int] = []
"""The batches of this process: attributes of a callback are restored with the training."""
_SIZES: list[int] = []
"""The members of the gang after each of them."""


class Note(keras.callbacks.Callback):  # type: ignore[misc] # Keras has no types
    """Writes each step down, kills one agent at first, and ends some steps after the gang has grown.

    With `again` the agent of the member that has joined is killed at its first step, too, so that the gang grows twice.
    """

    def __init__(self, folder: Path, ctx: Any, again: bool, last: int | None) -> None:
        super().__init__()
        self._last = last
        self._kills = {(1, 1): 20, (3, 1): 1} if again else {(1, 1): 20}
        self._file = (folder / f"{ctx.generation}-{ctx.rank}.jsonl").open("a")
        self._ctx = ctx
        self._folder = folder

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        time.sleep(STEP_S)  # the work of a step
        ctx = self._ctx
        _STEPS.append(batch)
        step = int(ctx._position.step)
        print(json.dumps([time.time(), step, ctx.size]), file=self._file, flush=True)
        mark = self._folder / f"killed-{ctx.generation}-{ctx.rank}"
        if self._kills.get((ctx.generation, ctx.rank)) == len(_STEPS) and not mark.exists():
            mark.touch()
            os.kill(drill.pid_of("agent"), signal.SIGKILL)
        _SIZES.append(ctx.size)
        has_grown = ctx.generation == self._last if self._last else 1 in _SIZES[:-AFTER] and 1 not in _SIZES[-AFTER:]
        if has_grown and len(_STEPS) >= AFTER:
            self.model.stop_training = True


def grow(folder: str, ctx: Any, again: bool = False, last: int | None = 3) -> dict[str, float]:
    """Train until the gang has been smaller, and then whole again, in generation `last`, or in the present one."""
    keras.utils.set_random_seed(3)
    model = keras.Sequential([keras.Input((5,)), keras.layers.Dense(8, "tanh"), keras.layers.Dense(1)])
    model.compile(ctx.distribute(keras.optimizers.SGD(0.01, momentum=0.9)), "mse")
    x = np.random.default_rng(3).normal(size=(48, 5)).astype("float32")
    data = ctx.shard((x, x.sum(1, keepdims=True)), batch_size=2)
    callbacks = [*ctx.keras_callbacks(checkpoint_every=None), Note(Path(folder), ctx, again, last)]
    model.fit(data, epochs=500, verbose=0, callbacks=callbacks)
    return {"size": ctx.size, "steps": int(model.optimizer.iterations.numpy())}
