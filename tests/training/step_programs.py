"""A Keras program in which the second member takes longer for each step."""

import time
from typing import Any

import keras
import numpy as np

STEPS = 26
STEP_S = 0.03
SLOWER_S = 0.05


def train(ctx: Any) -> float:
    """Train a small model for some steps of about 30 ms, and of 80 ms on rank 1."""
    pause_s = STEP_S + SLOWER_S * ctx.rank
    slow_down = keras.callbacks.LambdaCallback(on_train_batch_begin=lambda batch, logs: time.sleep(pause_s))
    model = keras.Sequential([keras.Input((5,)), keras.layers.Dense(1)])
    model.compile(ctx.distribute(keras.optimizers.SGD(0.1)), "mse", jit_compile=False)
    x = np.random.default_rng(3).normal(size=(8 * STEPS * ctx.size, 5)).astype("float32")
    data = ctx.shard((x, x[:, :1]), batch_size=8)
    losses = model.fit(data, verbose=0, callbacks=[*ctx.keras_callbacks(checkpoint_every=None), slow_down])
    return float(losses.history["loss"][-1])
