"""A training with weights that depend on each example and on their order; it can kill itself, and it can hang."""

import json
import os
import signal
from pathlib import Path
from typing import Any

from sparktrain.clock import pause

EXAMPLES, BATCH, EPOCHS = 96, 4, 3


def learn(folder: str, kill_at: int | None, hang_at: int | None, ctx: Any) -> float:
    """Fit with dropout, shuffling and Adam; the chief writes its weights, each member the examples that it got."""
    import keras
    import numpy as np

    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(EXAMPLES, 6)).astype("float32"), rng.normal(size=(EXAMPLES, 1)).astype("float32")
    x[:, 0] = np.arange(EXAMPLES)  # the number of the example
    keras.utils.set_random_seed(7)
    model = keras.Sequential(
        [
            keras.layers.Input((6,)),
            keras.layers.Rescaling(0.01),
            keras.layers.Dense(8, activation="tanh"),
            keras.layers.Dropout(0.0 if ctx.size > 1 else 0.3, seed=5),
            keras.layers.Dense(1),
        ]
    )
    model.compile(optimizer=ctx.distribute(keras.optimizers.Adam(0.01)), loss="mse", jit_compile=False)
    seen = _Seen(Path(folder), kill_at, hang_at, ctx)
    data = ctx.shard((x, y), batch_size=BATCH, shuffle=True, seed=3)
    data = data.map(lambda a, b: (seen.note(a), b))
    model.fit(data, epochs=EPOCHS, callbacks=[*ctx.keras_callbacks(checkpoint_every=4), *seen.callbacks()], verbose=0)
    if ctx.rank == 0:
        np.savez(Path(folder) / "weights.npz", *model.get_weights())
    return float(sum(abs(each).sum() for each in model.get_weights()))


def learn_twice(folder: Path) -> list[list[int | None]]:
    """A driver that trains as `run`, then as `whole`; the steps that restarts of each resumed from."""
    import sparktrain as st

    resumed = []
    for name in ("run", "whole"):
        (folder / name).mkdir(exist_ok=True)
        params = {"folder": str(folder / name), "kill_at": None, "hang_at": None}
        result = st.run(
            learn, params, workers=1, backend="none", spark=st.local(slots=1), dir=str(folder / "runs"), name=name,
            seed=1, progress=False,
        )  # fmt: skip
        resumed.append([each.resumed_from_step for each in result.restarts])
    return resumed


class _Seen:
    """Writes the examples of each training step to a file."""

    def __init__(self, folder: Path, kill_at: int | None, hang_at: int | None, ctx: Any) -> None:
        self._folder, self._ctx = folder, ctx
        self._kill_at, self._hang_at = kill_at, hang_at
        self._given: list[list[int]] = []
        self._step = 0
        self._from = 0
        self._done = 0

    def note(self, batch: Any) -> Any:
        import tensorflow as tf

        def keep(values: Any) -> Any:
            self._given.append([int(each) for each in values[:, 0]])
            return values

        noted = tf.numpy_function(keep, [batch], tf.float32)
        noted.set_shape(batch.shape)
        return noted

    def callbacks(self) -> list[Any]:
        import keras

        return [keras.callbacks.LambdaCallback(on_train_batch_end=self._after)]

    def _after(self, batch: int, logs: Any) -> None:
        step = int(self._ctx._position.step)
        name = f"{self._ctx.generation:02d}-{self._ctx.rank}-{step:04d}.json"
        (self._folder / name).write_text(json.dumps(self._given[self._done]))
        self._done += 1
        pause(0.02)
        if self._ctx.generation == 1 and self._ctx.rank == self._ctx.size - 1:
            if step == self._kill_at:
                os.kill(os.getpid(), signal.SIGKILL)
            while step == self._hang_at:
                pause(0.1)
