"""A training with members that are killed at chosen places, and that notes which processes and traces it had."""

import json
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import keras
import numpy as np

ROWS = 192
BATCH = 8
EPOCHS = 2


class Counted(keras.layers.Dense):  # type: ignore[misc] # Keras has no types
    """Counts how often the training step is traced."""

    traces = 0

    def call(self, inputs: Any, training: Any = None) -> Any:
        """See base class."""
        if training:
            Counted.traces += 1
        return super().call(inputs)


class Kill(keras.callbacks.Callback):  # type: ignore[misc] # Keras has no types
    """Kills this process at the places of its rank, each once in a run."""

    def __init__(self, notes: Path, rank: int, places: list[tuple[int, str, int]], step_s: float = 0.0) -> None:
        """`places` have a rank, an event of Keras or "later", and the steps before it; a step takes `step_s` more."""
        super().__init__()
        self._step_s = step_s
        self._notes = notes
        self._rank = rank
        self._places = places

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """See base class."""
        if self._step_s:
            time.sleep(self._step_s)  # the work of a step
            (self._notes / f"steps-{self._rank}").write_text(str(int(self.model.optimizer.iterations)))
        self._at("batch")
        self._at("later")

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """See base class."""
        self._at("start")

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """See base class."""
        self._at("epoch")

    def _at(self, event: str) -> None:
        steps = int(self.model.optimizer.iterations)
        for number, place in enumerate(self._places):
            mark = self._notes / f"killed-{number}"
            if place == [self._rank, event, steps] and not mark.exists():
                mark.touch()
                if event == "later":
                    # In the next step, wherever that is then.
                    threading.Timer(0.002, os.kill, (os.getpid(), signal.SIGKILL)).start()
                else:
                    os.kill(os.getpid(), signal.SIGKILL)


def train(folder: str, kills: list[Any], sharded: bool, ctx: Any, step_s: float = 0.0) -> None:
    """Train on plain arrays or, in another order in each epoch, by `ctx.shard`; note how this member has ended."""
    keras.utils.set_random_seed(7)
    notes = Path(folder)
    (notes / f"pid-{ctx.rank}-{os.getpid()}").touch()
    rng = np.random.default_rng(3)
    x = rng.normal(size=(ROWS, 8)).astype("float32")
    y = rng.integers(0, 3, ROWS)
    hidden = [Counted(16, activation="relu"), keras.layers.BatchNormalization(), keras.layers.Dropout(0.2)]
    model = keras.Sequential([keras.Input((8,)), *hidden, keras.layers.Dense(3)])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer=ctx.distribute(keras.optimizers.Adam(0.01)), loss=loss, metrics=["accuracy"])
    stopper = keras.callbacks.EarlyStopping(monitor="loss", patience=EPOCHS)
    callbacks = [*ctx.keras_callbacks(checkpoint_every=None), Kill(notes, ctx.rank, kills, step_s), stopper]
    options = {"epochs": EPOCHS, "verbose": 0, "callbacks": callbacks}
    if sharded:
        history = model.fit(ctx.shard((x, y), batch_size=BATCH, shuffle=True), **options)
    else:
        mine = slice(ctx.rank, None, ctx.size)
        history = model.fit(x[mine], y[mine], batch_size=BATCH, shuffle=False, **options)
    variables = [*model.variables, *model.optimizer.variables]
    np.savez(notes / f"member-{ctx.rank}.npz", **{variable.path: np.asarray(variable.value) for variable in variables})
    facts = {"pid": os.getpid(), "traces": Counted.traces, "history": history.history, "wait": stopper.wait}
    (notes / f"facts-{ctx.rank}.json").write_text(json.dumps(facts))
