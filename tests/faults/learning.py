"""A training with weights that depend on each example and on their order; it can kill itself, and it can hang."""

import json
import os
import signal
from pathlib import Path
from typing import Any

from sparktrain.base.clock import pause
from tests.support import drill

EXAMPLES, BATCH, EPOCHS = 96, 4, 3


def examples() -> tuple[Any, Any]:
    """Features and labels; the first feature is the number of the example."""
    import numpy as np

    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(EXAMPLES, 6)).astype("float32"), rng.normal(size=(EXAMPLES, 1)).astype("float32")
    x[:, 0] = np.arange(EXAMPLES)
    return x, y


def table() -> Any:
    """The same as a table for `data=`."""
    import pyarrow as pa

    x, y = examples()
    return pa.table({**{f"x{column}": x[:, column] for column in range(6)}, "y": y[:, 0]})


def learn(
    folder: str,
    kill_at: int | None,
    hang_at: int | None,
    ctx: Any,
    rows: bool = False,
    victim: str = "member",
    dropout: float = 0.3,
    memory: str | None = None,
    every: int = 4,
) -> float:
    """Fit with dropout, shuffling and Adam; the chief writes its weights, each member the examples that it got.

    `rows`: of the dataset `train`, in place of arrays. `victim`: what `kill_at` kills: see `drill.pid_of`.
    `dropout`: the rate in a gang of one. `memory`: the `memory_checkpoint`. `every`: steps between checkpoints.
    """
    import keras
    import numpy as np

    keras.utils.set_random_seed(7)
    model = keras.Sequential(
        [
            keras.layers.Input((6,)),
            keras.layers.Rescaling(0.01),
            keras.layers.Dense(8, activation="tanh"),
            keras.layers.Dropout(0.0 if ctx.size > 1 else dropout, seed=5),
            keras.layers.Dense(1),
        ]
    )
    model.compile(optimizer=ctx.distribute(keras.optimizers.Adam(0.01)), loss="mse", jit_compile=False)
    seen = _Seen(Path(folder), kill_at, hang_at, ctx, victim)
    if rows:
        data = ctx.dataset("train").to_tf(batch_size=BATCH, label_columns="y", stack=True, shuffle=True, seed=3)
    else:
        data = ctx.shard(examples(), batch_size=BATCH, shuffle=True, seed=3)
    data = data.map(lambda a, b: (seen.note(a), b))
    callbacks = ctx.keras_callbacks(checkpoint_every=every, memory_checkpoint=memory)
    model.fit(data, epochs=EPOCHS, callbacks=[*callbacks, *seen.callbacks()], verbose=0)
    if ctx.rank == 0:
        np.savez(Path(folder) / "weights.npz", *model.get_weights())
    return float(sum(abs(each).sum() for each in model.get_weights()))


def learn_rows_twice(folder: Path) -> list[list[int | None]]:
    """As `learn_twice`, on a dataset."""
    return learn_twice(folder, rows=True)


def learn_twice(folder: Path, rows: bool = False) -> list[list[int | None]]:
    """A driver that trains as `run`, then as `whole`; the steps that restarts of each resumed from."""
    import sparktrain as st

    resumed = []
    for name in ("run", "whole"):
        (folder / name).mkdir(exist_ok=True)
        params = {"folder": str(folder / name), "kill_at": None, "hang_at": None, "rows": rows}
        result = st.run(
            learn, params, workers=1, backend="none", spark=st.local(slots=1), dir=str(folder / "runs"), name=name,
            seed=1, progress=False, data={"train": table()} if rows else {},
        )  # fmt: skip
        resumed.append([each.resumed_from_step for each in result.restarts])
    return resumed


def examples_of(folder: Path) -> list[list[int]]:
    """The examples of each epoch that `learn` notes in `folder`: in each step, those of the newest generation."""
    steps: dict[int, tuple[int, list[int]]] = {}
    for path in sorted(folder.glob("*.json")):  # generation by generation, rank by rank
        generation, _, step = map(int, path.stem.split("-"))
        newest, found = steps.get(step, (0, []))
        steps[step] = generation, (found if newest == generation else []) + json.loads(path.read_text())
    rows = [row for step in sorted(steps) for row in steps[step][1]]
    return [rows[start : start + EXAMPLES] for start in range(0, len(rows), EXAMPLES)]


class _Seen:
    """Writes the examples of each training step to a file."""

    def __init__(self, folder: Path, kill_at: int | None, hang_at: int | None, ctx: Any, victim: str) -> None:
        self._folder, self._ctx, self._victim = folder, ctx, victim
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
                os.kill(drill.pid_of(self._victim), signal.SIGKILL)
            while step == self._hang_at:
                pause(0.1)
