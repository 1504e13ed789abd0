"""Trainings that note their processes and traces. Before they train, they read their rank only with the feed "rank"."""

import os
from pathlib import Path
from typing import Any

import keras

from tests.faults.healing_programs import BATCH, EPOCHS, ROWS, compiled, examples, note_end
from tests.support.kills import hold

HOLDS = (5, 9)
"""Steps after which all members wait for a file of the test."""


class Hold(keras.callbacks.Callback):  # type: ignore[misc] # Keras has no types
    """Notes the process of each rank, and waits where the test kills one."""

    def __init__(self, notes: Path, ctx: Any, holds: tuple[int, ...]) -> None:
        super().__init__()
        self._notes = notes
        self._ctx = ctx
        self._holds = holds

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """See base class."""
        if (steps := int(self.model.optimizer.iterations)) in self._holds:
            hold(self._notes, self._holds.index(steps), self._ctx.rank)


def train(folder: str, feed: str, holds: int, ctx: Any) -> None:
    """Train on arrays or a dataset that is shuffled, by `ctx.shard`; with the feed "rank" read the rank before."""
    keras.utils.set_random_seed(7)
    notes = Path(folder)
    (notes / f"pid-{os.getpid()}").touch()
    if feed == "rank":
        (notes / f"rank-{ctx.rank}-{os.getpid()}").touch()
    x, y = examples()
    model = compiled(ctx)
    callbacks = [*ctx.keras_callbacks(checkpoint_every=None), Hold(notes, ctx, HOLDS[:holds])]
    options = {"epochs": EPOCHS, "verbose": 0, "callbacks": callbacks}
    if feed in ("arrays", "rank"):
        history = model.fit(ctx.shard((x, y), batch_size=BATCH, shuffle=True), **options)
    elif keras.backend.backend() != "tensorflow":
        batches = [(x[first : first + BATCH], y[first : first + BATCH]) for first in range(0, ROWS, BATCH)]
        history = model.fit(ctx.shard(batches), **options)
    else:
        import tensorflow as tf

        batches = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(ROWS, seed=ctx.seed).batch(BATCH)
        history = model.fit(ctx.shard(batches), **options)
    note_end(notes, ctx, model, history)
