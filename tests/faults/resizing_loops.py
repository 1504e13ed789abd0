"""A loop of Keras that divides the rows of each step among the members that its ring has then."""

import time
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

from tests.support.resizing import STEPS, ResizedMember, examples, is_whole_again, keep_weights, rows_of

MOST = 1000
GO = "go"


def built() -> Any:
    """The model, with equal weights in each process."""
    keras.utils.set_random_seed(7)
    model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(8, "tanh"), keras.layers.Dense(1)])
    model.compile(optimizer=keras.optimizers.Adam(0.01), loss="mse")
    model.optimizer.build(model.trainable_variables)
    return model


def train(
    folder: str, kills: list[list[int]], lags: list[int], step_s: float, ctx: Any, awaits_go: bool = False
) -> dict[str, float]:
    """Train, with the losses of `ResizedMember`; where a member lags, steps are eager.

    With `step_s`, the work of a step, the loop ends once the gang was smaller, and is whole again; with `awaits_go`
    once there is a file `GO`.
    """
    model = built()
    x, y = examples()
    restored = ctx.checkpoint.restore(model)
    member = ResizedMember(Path(folder), ctx, kills, lags)

    def computed(x: Any, y: Any) -> Any:
        with ctx.distribute_tape(tf.GradientTape()) as tape:
            loss = tf.reduce_mean((model(x, training=True) - y) ** 2)
        gradients = tape.gradient(loss, model.trainable_variables)
        if lags:
            member.lag()
        model.optimizer.apply(gradients, model.trainable_variables)
        return loss

    step_of = computed if lags else tf.function(computed, reduce_retracing=True)

    def train_step() -> Any:
        rows = member.rows()
        member.kill(0)
        loss = step_of(x[rows], y[rows])
        member.note()
        return loss

    step = restored.step if restored else 0
    sizes: list[int] = restored["sizes"] if restored else []
    with ctx.memory_checkpoints(model, every="0.2s", resizable=True) as memory:
        while step < (MOST if step_s else STEPS):
            if awaits_go and step % 5 == 0 and ctx.allreduce(float(Path(folder, GO).exists())):
                break
            step += 1
            member.train(memory, train_step, step, sizes)
            if step_s:
                time.sleep(step_s)
                if is_whole_again(sizes):
                    break
    keep_weights(Path(folder), str(ctx.rank), model.get_weights())
    return {"size": ctx.size, "steps": step}


def repeat(folder: str, steps: int) -> None:
    """Train in one process on the rows of each step; keep the weights."""
    model = built()
    x, y = examples()
    for step in range(1, steps + 1):
        model.train_on_batch(x[rows_of(step)], y[rows_of(step)])
    keep_weights(Path(folder), "alone", model.get_weights())
