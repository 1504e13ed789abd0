"""Trainings that note their processes and traces. Before they train, they read their rank only with the feed "rank"."""

import os
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

from tests.faults import healing_loops
from tests.faults.healing_programs import BATCH, EPOCHS, ROWS, compiled, examples, note_end, wait_for

HOLDS = (5, 9)
"""Steps after which all members wait for a file of the test."""
HELD_S = 200.0
"""A guard against a test that hangs."""


class Hold(keras.callbacks.Callback):  # type: ignore[misc] # Keras has no types
    """Notes the process of each rank, and waits where the test kills one."""

    def __init__(self, notes: Path, ctx: Any, holds: tuple[int, ...]) -> None:
        super().__init__()
        self._notes = notes
        self._ctx = ctx
        self._holds = holds

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """See base class."""
        self.after(int(self.model.optimizer.iterations))

    def after(self, steps: int) -> None:
        """The member has trained so many steps."""
        if steps in self._holds:
            number = self._holds.index(steps)
            (self._notes / f"held-{number}-{self._ctx.rank}").write_text(str(os.getpid()))
            wait_for(self._notes / f"go-{number}", HELD_S)  # until a process is ready, which takes as long as it takes


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
    else:
        batches = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(ROWS, seed=ctx.seed).batch(BATCH)
        history = model.fit(ctx.shard(batches), **options)
    note_end(notes, ctx, model, history)


def loop(folder: str, feed: str, holds: int, ctx: Any) -> None:
    """The same in a loop of the user's own."""
    keras.utils.set_random_seed(7)
    notes = Path(folder)
    (notes / f"pid-{os.getpid()}").touch()
    model = healing_loops.build()
    loss_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.set_weights(ctx.broadcast(model.get_weights()))
    batches = ctx.shard(healing_loops.rows(), batch_size=healing_loops.BATCH, shuffle=True)
    restored = ctx.checkpoint.restore(model, batches)
    step = restored.step if restored else 0
    losses = restored["losses"] if restored else []
    hold = Hold(notes, ctx, HOLDS[:holds])
    traces: list[int] = []

    @tf.function
    def train_step(x: Any, y: Any) -> Any:
        traces.append(1)
        with ctx.distribute_tape(tf.GradientTape()) as tape:
            outputs = model(x, training=True)
            loss = loss_of(y, outputs)
        model.accuracy.update_state(y, outputs)
        model.optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
        return loss

    with ctx.memory_checkpoints(model, batches) as memory:
        while step < healing_loops.STEPS:
            for x, y, _ in batches:
                step += 1
                losses.append(float(memory.train(train_step, x, y)))
                memory.step(step, losses=losses)
                hold.after(step)
                if step == healing_loops.STEPS:
                    break
    facts = {"pid": os.getpid(), "traces": len(traces), "history": losses[-1]}
    healing_loops.note_end(notes, ctx.rank, model, facts)
