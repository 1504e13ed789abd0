"""A training that loses agents for good, and that notes the rows and the size of the gang in each step."""

import json
import os
import signal
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pyarrow as pa
import tensorflow as tf

from tests.support import drill

ROWS = 100
BATCH = 4
EPOCHS = 2
BUILD = "the model"
STEP = "its training step"
_TRACES: list[str] = []
"""What is traced: the last one before the first step has ended is that step."""
_SEEN: list[list[int]] = []
"""The rows of the steps that this process has started."""


class Noted(keras.layers.Layer):  # type: ignore[misc] # Keras has no types
    """Notes the rows of each step, and how often it is traced. The first feature is the number of the row."""

    def call(self, inputs: Any, training: Any = None) -> Any:
        """See base class."""
        if not training:
            return inputs
        _TRACES.append(BUILD)
        noted = tf.numpy_function(_note, [inputs], tf.float32)
        noted.set_shape(inputs.shape)
        return noted


def _note(values: Any) -> Any:
    _SEEN.append([int(row) for row in values[:, 0]])
    return values


class Steps(keras.callbacks.Callback):  # type: ignore[misc] # Keras has no types
    """Writes down each finished step, and kills the agent of this process after some of them."""

    def __init__(self, folder: Path, ctx: Any, kills: list[list[int]]) -> None:
        """`kills` have a rank and a step."""
        super().__init__()
        self._path = folder / f"steps-{ctx.generation}-{ctx.rank}.jsonl"
        self._rank = ctx.rank
        self._ctx = ctx
        self._kills = kills

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """See base class."""
        step = int(self.model.optimizer.iterations)
        if STEP not in _TRACES:
            _TRACES[-1] = STEP
        with self._path.open("a") as file:
            print(json.dumps([step, self._ctx.size, _SEEN[-1]]), file=file)
        if [self._rank, step] in self._kills and self._ctx.generation == 1:
            os.kill(drill.pid_of("agent"), signal.SIGKILL)


def compiled(optimizer: Any) -> Any:
    """The model, with equal weights in each process."""
    keras.utils.set_random_seed(7)
    layers = [keras.Input((6,)), Noted(), keras.layers.Rescaling(0.02), keras.layers.Dense(8, "tanh")]
    model = keras.Sequential([*layers, keras.layers.Dense(1)])
    model.compile(optimizer=optimizer, loss="mse", metrics=["mae"], jit_compile=False)
    return model


def examples() -> tuple[Any, Any]:
    """Features, with the number of the row first, and labels."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(ROWS, 6)).astype("float32")
    x[:, 0] = np.arange(ROWS)
    return x, rng.normal(size=(ROWS, 1)).astype("float32")


def table() -> Any:
    """The examples for `data=`."""
    x, y = examples()
    return pa.table({**{f"x{column}": x[:, column] for column in range(6)}, "y": y[:, 0]})


def shrink(folder: str, kills: list[list[int]], ctx: Any, data: str = "arrays") -> dict[str, float]:
    """Train; note what this member has trained on, and with what weights it has ended."""
    notes = Path(folder)
    rank = ctx.rank
    (notes / f"pid-{rank}-{os.getpid()}").touch()
    model = compiled(ctx.distribute(keras.optimizers.Adam(0.01)))
    if data == "arrays":
        feed = ctx.shard(examples(), batch_size=BATCH, shuffle=True, seed=3)
    elif data == "rows":
        feed = ctx.dataset("train").to_tf(batch_size=BATCH, label_columns="y", stack=True, shuffle=True, seed=3)
    else:
        feed = ctx.shard(tf.data.Dataset.from_tensor_slices(examples()).batch(BATCH))
    callbacks = [*ctx.keras_callbacks(checkpoint_every=None), Steps(notes, ctx, kills)]
    model.fit(feed, epochs=EPOCHS, verbose=0, callbacks=callbacks)
    np.savez(notes / f"weights-{rank}.npz", *model.get_weights())
    (notes / f"traces-{rank}").write_text(json.dumps([_TRACES.index(STEP) + 1, len(_TRACES)]))
    return {"size": ctx.size, "steps": int(model.optimizer.iterations)}


def repeat(folder: str, steps: list[list[int]]) -> dict[str, float]:
    """Train in one process on the rows of each step of a gang; keep the weights."""
    model = compiled(keras.optimizers.Adam(0.01))
    x, y = examples()
    for rows in steps:
        model.train_on_batch(x[rows], y[rows])
    np.savez(Path(folder) / "weights-alone.npz", *model.get_weights())
    return {"steps": len(steps)}
