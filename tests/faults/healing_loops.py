"""A loop of Keras, with state that each member has of its own. Members kill themselves at chosen moments."""

import json
import os
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tests.support.kills import Kills

ROWS = 16
"""Of a step of the gang."""
STEPS = 30


def rows_of(step: int, rank: int, size: int) -> tuple[Any, Any]:
    """A member's rows of a step."""
    rng = np.random.default_rng(step)
    x = rng.normal(size=(ROWS, 8)).astype("float32")
    y = rng.integers(0, 3, ROWS)
    return tf.constant(x[rank::size]), tf.constant(y[rank::size])


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
    restored = ctx.checkpoint.restore(model)
    traces: list[int] = []

    def train_step(x: Any, y: Any) -> Any:
        traces.append(1)
        tape = tf.GradientTape()
        with tape if way == "optimizer" else ctx.distribute_tape(tape) as recorded:
            outputs = model(x, training=True)
            loss = loss_of(y, outputs)
        if way != "late":
            model.accuracy.update_state(y, outputs)
        if way == "eager":
            died.at("within")
        gradients = recorded.gradient(loss, model.trainable_variables)
        if way == "eager":
            died.at("applying")
            died.at("lag")
        model.optimizer.apply(gradients, model.trainable_variables)
        if way == "late":
            model.accuracy.update_state(y, outputs)
        return loss

    step_of = train_step if way == "eager" else tf.function(train_step)
    done = restored.step if restored else 0
    losses = restored["losses"] if restored else []
    means = restored["means"] if restored else []
    with ctx.memory_checkpoints(model, every=every) as memory:
        for step in range(done + 1, STEPS + 1):
            died.step = step
            if step % 5 == 1 and step > 1:
                means.append(ctx.allreduce(float(step * ctx.rank)))
            died.at("before")
            died.at("later")
            losses.append(float(memory.train(step_of, *rows_of(step, ctx.rank, ctx.size))))
            died.at("after")
            memory.step(step, losses=losses, means=means)
            died.at("end")
    variables = [*model.variables, *model.optimizer.variables, *model.metrics_variables]
    np.savez(notes / f"member-{ctx.rank}.npz", **{str(n): np.asarray(v.value) for n, v in enumerate(variables)})
    facts = {
        "traces": len(traces) if way != "eager" else 1,
        "losses": losses[-3:],
        "means": means,
        "steps": len(losses),
    }
    (notes / f"facts-{ctx.rank}.json").write_text(json.dumps(facts))
