"""A Keras program in which the second member takes longer for each step."""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np

from sparktrain.training.collectives import step_notes

STEPS = 26
STEP_S = 0.03
SLOWER_S = 0.05


def train(ctx: Any, by_data: bool = False) -> float:
    """Train a small model for some steps of about 30 ms, and of 80 ms on rank 1: that computes longer, or waits."""
    slower_s = SLOWER_S * ctx.rank
    pause_s = STEP_S + (0 if by_data else slower_s)
    slow_down = keras.callbacks.LambdaCallback(on_train_batch_begin=lambda batch, logs: time.sleep(pause_s))
    model = keras.Sequential([keras.Input((5,)), keras.layers.Dense(1)])
    model.compile(ctx.distribute(keras.optimizers.SGD(0.1)), "mse", jit_compile=False)
    x = np.random.default_rng(3).normal(size=(8 * STEPS * ctx.size, 5)).astype("float32")
    if by_data:
        import tensorflow as tf

        def batches() -> Iterator[Any]:
            for first in range(0, len(x), 8):
                time.sleep((STEP_S + 2 * slower_s) / ctx.size)  # a member reads the batches of all
                yield x[first : first + 8], x[first : first + 8, :1]

        shapes = tf.TensorSpec((None, 5)), tf.TensorSpec((None, 1))
        data = ctx.shard(tf.data.Dataset.from_generator(batches, output_signature=shapes))
    else:
        data = ctx.shard((x, x[:, :1]), batch_size=8)
    losses = model.fit(data, verbose=0, callbacks=[*ctx.keras_callbacks(checkpoint_every=None), slow_down])
    return float(losses.history["loss"][-1])


def train_on(folder: str, ctx: Any) -> None:
    """Train until the test has seen a trace; then rank 1 kills itself."""
    step_notes.SHORTEST_S = 0.2

    def look(batch: int, logs: Any) -> None:
        time.sleep(0.01)
        if ctx.rank and Path(folder, "seen").exists():
            os.kill(os.getpid(), signal.SIGKILL)

    model = keras.Sequential([keras.Input((5,)), keras.layers.Dense(1)])
    model.compile(ctx.distribute(keras.optimizers.SGD(0.1)), "mse", jit_compile=False)
    x = np.zeros((16 * 10_000, 5), "float32")
    callbacks = ctx.keras_callbacks(checkpoint_every=None, memory_checkpoint=None)
    look_on = keras.callbacks.LambdaCallback(on_train_batch_end=look)
    model.fit(ctx.shard((x, x[:, :1]), batch_size=8), verbose=0, callbacks=[*callbacks, look_on])
