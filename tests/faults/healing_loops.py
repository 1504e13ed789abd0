"""A loop of Keras, with state that each member has of its own. Members kill themselves at chosen moments."""

import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tests.support.kills import Kills

ROWS = 96
BATCH = 8
STEPS = 30


def rows() -> tuple[Any, Any, Any]:
    """Features, labels, and the numbers of all rows."""
    rng = np.random.default_rng(3)
    return rng.normal(size=(ROWS, 8)).astype("float32"), rng.integers(0, 3, ROWS), np.arange(ROWS)


def build() -> Any:
    """A model with statistics, a metric and random numbers of its own, and its optimizer."""
    hidden = [keras.layers.Dense(16, activation="relu"), keras.layers.BatchNormalization(), keras.layers.Dropout(0.2)]
    model = keras.Sequential([keras.Input((8,)), *hidden, keras.layers.Dense(3)])
    model.accuracy = keras.metrics.SparseCategoricalAccuracy()
    optimizer = keras.optimizers.Adam(0.01)
    model.compile(optimizer=optimizer)
    optimizer.build(model.trainable_variables)
    return model


def train(folder: str, kills: list[Any], way: str, every: str, ctx: Any) -> None:
    """Train by a tape ("tape", or "eager"), or by an optimizer that averages ("optimizer"); note how it has ended.

    "late": by a tape, with a metric that the step updates last.
    """
    keras.utils.set_random_seed(7)
    notes = Path(folder)
    (notes / f"pid-{ctx.rank}-{os.getpid()}").touch()
    died = Kills(notes, ctx.rank, kills)
    model = build()
    loss_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    if way == "optimizer":
        ctx.distribute(model.optimizer)
    model.set_weights(ctx.broadcast(model.get_weights()))
    batches = ctx.shard(rows(), batch_size=BATCH, shuffle=True)
    restored = ctx.checkpoint.restore(model, batches)
    traces: list[int] = []
    calls: Counter[int] = Counter()

    def train_step(x: Any, y: Any) -> Any:
        traces.append(1)
        tape = tf.GradientTape()
        with tape if way == "optimizer" else ctx.distribute_tape(tape) as recorded:
            outputs = model(x, training=True)
            loss = loss_of(y, outputs)
        if way != "late":
            model.accuracy.update_state(y, outputs)
        if way == "eager":
            calls[died.step] += 1
            died.at("within")
            died.at(f"call {calls[died.step]}")
        gradients = recorded.gradient(loss, model.trainable_variables)
        if way == "eager":
            died.at("applying")
            died.at("lag")
        model.optimizer.apply(gradients, model.trainable_variables)
        if way == "late":
            model.accuracy.update_state(y, outputs)
        return loss

    step_of = train_step if way == "eager" else tf.function(train_step)
    step = restored.step if restored else 0
    losses = restored["losses"] if restored else []
    means = restored["means"] if restored else []
    seen = (notes / f"rows-{ctx.rank}-{os.getpid()}.jsonl").open("a")
    with ctx.memory_checkpoints(model, batches, every=every) as memory:
        while step < STEPS:
            for x, y, numbers in batches:
                step += 1
                print(json.dumps([step, numbers.numpy().tolist()]), file=seen, flush=True)
                died.step = step
                died.at("before")
                died.at("together")
                died.at("later")
                if died.at("spoil"):
                    model.trainable_variables[1].assign_add(np.full(16, 1e-6, "float32"))
                losses.append(float(memory.train(step_of, x, y)))
                died.at("after")
                memory.step(step, losses=losses, means=means)
                died.at("end")
                if step == STEPS:
                    break
            means.append(ctx.allreduce(float(step * ctx.rank)))
    facts = {"traces": 1 if way == "eager" else len(traces), "losses": losses[-3:], "means": means, "steps": step}
    note_end(notes, ctx.rank, model, facts)


def note_end(notes: Path, rank: int, model: Any, facts: dict[str, Any]) -> None:
    """Write all variables of a member, and what else it knows at the end."""
    variables = [*model.variables, *model.optimizer.variables, *model.metrics_variables]
    arrays = {str(number): np.asarray(variable.value) for number, variable in enumerate(variables)}
    np.savez(notes / f"member-{rank}.npz", **arrays)
    (notes / f"facts-{rank}.json").write_text(json.dumps(facts))
