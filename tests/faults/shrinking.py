"""A training that loses agents for good, and that notes the rows and the size of the gang in each step."""

import importlib
import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pyarrow as pa

from sparktrain.training.elastic import step_boundary
from tests.support import drill
from tests.support.processes import wait_until

ROWS = 100
BATCH = 4
EPOCHS = 2
AFTER = 15
"""Steps of a gang that is whole again."""
OFFER_TIMEOUT_S = 60.0
_SIZES: list[int] = []
"""The members after each step."""
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
        if keras.backend.backend() == "jax":
            return inputs  # the batches of all members are one array there
        if keras.backend.backend() != "tensorflow":
            _note(keras.ops.convert_to_numpy(inputs))
            return inputs
        import tensorflow as tf

        noted = tf.numpy_function(_note, [inputs], tf.float32)
        noted.set_shape(inputs.shape)
        return noted


def _note(values: Any) -> Any:
    _SEEN.append([int(row) for row in values[:, 0]])
    return values


class Steps(keras.callbacks.Callback):  # type: ignore[misc] # Keras has no types
    """Writes down each finished step, and kills the agent of this process after some of them."""

    def __init__(self, folder: Path, ctx: Any, kills: list[list[int]], step_s: float, awaits_offer: bool) -> None:
        """`kills`: ranks and steps. With `step_s`, the work of a step, it ends once the gang is whole again.

        With `awaits_offer` the process that comes back finds, after the next step, rows for one of fewer members alone.
        """
        super().__init__()
        self._path = folder / f"steps-{ctx.generation}-{ctx.rank}.jsonl"
        self._rank = ctx.rank
        self._ctx = ctx
        self._kills = kills
        self._step_s = step_s
        self._awaits_offer = awaits_offer
        self._batches = 0

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """See base class."""
        self._batches = 0

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """See base class."""
        step = int(self.model.optimizer.iterations)
        if STEP not in _TRACES:
            _TRACES[-1] = STEP
        with self._path.open("a") as file:
            print(json.dumps([step, self._ctx.size, _SEEN[-1]]), file=file)
        first = len(list(self._path.parent.glob(f"pid-{self._rank}-*"))) == 1
        if [self._rank, step] in self._kills and first:
            os.kill(drill.pid_of("agent"), signal.SIGKILL)
            signal.pause()  # a step that this process makes with the others, and does not note, lacks rows
        if self._step_s:
            _SIZES.append(self._ctx.size)
            self._batches += self._ctx.size
            time.sleep(self._step_s)
            if self._awaits_offer and ROWS // BATCH - self._batches == 2 * self._ctx.size < 2 * max(_SIZES):
                wait_until(self._ctx._gang.healing.offer, OFFER_TIMEOUT_S, "a process that comes back")
            if len(set(_SIZES[:-AFTER])) > 1 and len(set(_SIZES[-AFTER:])) == 1 and _SIZES[-1] == _SIZES[0]:
                self.model.stop_training = True


def compiled(optimizer: Any) -> Any:
    """The model, with equal weights in each process."""
    keras.utils.set_random_seed(7)
    layers = [keras.Input((6,)), Noted(), keras.layers.Rescaling(0.02), keras.layers.Dense(8, "tanh")]
    model = keras.Sequential([*layers, keras.layers.Dense(1)])
    model.compile(optimizer=optimizer, loss="mse", metrics=["mae"], jit_compile=keras.backend.backend() == "jax")
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


def shrink(
    folder: str,
    kills: list[list[int]],
    ctx: Any,
    data: str = "arrays",
    step_s: float = 0.0,
    awaits_offer: bool = False,
) -> dict[str, float]:
    """Train; note what this member has trained on, and with what weights it has ended."""
    notes = Path(folder)
    rank = ctx.rank
    if awaits_offer:
        step_boundary.AGREE_S = 0.0  # after each step
    (notes / f"pid-{rank}-{os.getpid()}").touch()
    model = compiled(ctx.distribute(keras.optimizers.SGD(0.01, momentum=0.9)))
    if keras.backend.backend() == "jax":
        importlib.import_module("tests.faults.jax_steps").note_rows(_SEEN)
    if data == "arrays":
        feed = ctx.shard(examples(), batch_size=BATCH, shuffle=True, seed=3)
    elif data == "rows":
        rows = ctx.dataset("train")
        read = rows.to_tf if keras.backend.backend() == "tensorflow" else rows.to_keras
        feed = read(batch_size=BATCH, label_columns="y", stack=True, shuffle=True, seed=3)
    else:
        import tensorflow as tf

        feed = ctx.shard(tf.data.Dataset.from_tensor_slices(examples()).batch(BATCH))
    steps = Steps(notes, ctx, kills, step_s, awaits_offer)
    together = [*ctx.keras_callbacks(checkpoint_every=None), steps]
    model.fit(feed, epochs=1000 if step_s else EPOCHS, verbose=0, callbacks=together)
    np.savez(notes / f"weights-{rank}.npz", *model.get_weights())
    if keras.backend.backend() == "tensorflow":
        (notes / f"traces-{rank}").write_text(json.dumps([_TRACES.index(STEP) + 1, len(_TRACES)]))
    return {"size": ctx.size, "steps": int(model.optimizer.iterations)}


def repeat(folder: str, steps: list[list[int]]) -> dict[str, float]:
    """Train in one process on the rows of each step of a gang; keep the weights."""
    model = compiled(keras.optimizers.SGD(0.01, momentum=0.9))
    x, y = examples()
    for rows in steps:
        model.train_on_batch(x[rows], y[rows])
    np.savez(Path(folder) / "weights-alone.npz", *model.get_weights())
    return {"steps": len(steps)}
