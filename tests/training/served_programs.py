"""Keras programs of users for gangs with parameter servers of sparktrain's own."""

import os
import signal
from pathlib import Path
from typing import Any

import keras
import numpy as np
import psutil

from tests.training.local_gang import BATCH, EPOCHS, fit, flat, rows, sgd


def train(folder: str, workers: int, ctx: Any) -> dict[str, float]:
    """Train as a member, and write what this member computed to `folder`."""
    data, optimizer = ctx.shard(rows(), batch_size=BATCH // workers), ctx.distribute(sgd())
    weights, losses = fit(ctx.rank, data, optimizer, callbacks=ctx.keras_callbacks())
    np.savez(Path(folder, f"rank-{ctx.rank}.npz"), weights=weights, losses=losses)
    return {"loss": losses[-1]}


class Killed(keras.callbacks.Callback):  # type: ignore[misc] # Keras has no types
    """Kills one process, once, after a step of the epoch in the middle."""

    def __init__(self, folder: str, whom: str, ctx: Any) -> None:
        super().__init__()
        self._mark = Path(folder, "killed")
        self._whom = whom
        self._ctx = ctx

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        if epoch == EPOCHS // 2 and self._ctx.role == "worker" and not self._mark.exists():
            victim = os.getpid() if self._whom == "worker" else _listener(self._ctx.cluster_spec["ps"][0])
            self._mark.touch()
            os.kill(victim, signal.SIGKILL)


def _listener(place: str) -> int:
    """The process that listens there."""
    port = int(place.rpartition(":")[2])
    return next(
        each.pid
        for each in psutil.net_connections("tcp")
        if each.laddr.port == port and each.status == psutil.CONN_LISTEN and each.pid is not None
    )


def lose(folder: str, whom: str, ctx: Any) -> dict[str, float]:
    """Train while a process is killed."""
    keras.utils.set_random_seed(ctx.rank)
    model = keras.Sequential([keras.Input((5,)), keras.layers.Dense(8, "tanh"), keras.layers.Dense(1)])
    model.compile(ctx.distribute(keras.optimizers.Adam(0.01)), "mse")
    note = Killed(folder, whom, ctx)
    data = ctx.shard(rows(), batch_size=BATCH)
    history = model.fit(data, epochs=30, verbose=0, callbacks=[*ctx.keras_callbacks(), note]).history["loss"]
    np.savez(Path(folder, f"rank-{ctx.rank}.npz"), weights=flat(model), losses=history)
    return {"loss": history[-1], "epochs": len(history)}


class Crash(keras.callbacks.Callback):  # type: ignore[misc] # Keras has no types
    """Kills the chief once, in the middle of the last epoch."""

    def __init__(self, folder: str) -> None:
        super().__init__()
        self._mark = Path(folder, "killed")
        self._last = False

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self._last = epoch == EPOCHS - 1

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if self._last and batch == 1 and not self._mark.exists():
            self._mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)


def resume(folder: str, ctx: Any) -> dict[str, float]:
    """Train through the loss of the whole gang."""
    data, optimizer = ctx.shard(rows(), batch_size=BATCH), ctx.distribute(sgd())
    callbacks = [*ctx.keras_callbacks(checkpoint_every=1), Crash(folder)]
    weights, losses = fit(ctx.rank, data, optimizer, callbacks=callbacks)
    np.savez(Path(folder, "rank-0.npz"), weights=weights, losses=losses)
    return {"loss": losses[-1]}


class StopAt(keras.callbacks.Callback):  # type: ignore[misc] # Keras has no types
    """Stops at the end of an epoch."""

    def __init__(self, epoch: int) -> None:
        super().__init__()
        self._epoch = epoch

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.model.stop_training = epoch >= self._epoch


def stop(who: str, ctx: Any) -> dict[str, float]:
    """Train until one member stops."""
    model = keras.Sequential([keras.Input((5,)), keras.layers.Dense(1)])
    model.compile(ctx.distribute(sgd()), "mse")
    own = [StopAt(2)] if ctx.role == who else []
    history = model.fit(
        ctx.shard(rows(), batch_size=2), epochs=2000, verbose=0, callbacks=[*ctx.keras_callbacks(), *own]
    )
    return {"epochs": len(history.history["loss"])}


def refine(folder: str, ctx: Any) -> dict[str, float]:
    """Call fit twice, and change the weights between: what one process does."""
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((5,)), keras.layers.Dense(8, "tanh"), keras.layers.Dense(1)])
    model.compile(ctx.distribute(sgd()) if ctx.size > 1 else sgd(), "mse", jit_compile=False)
    for _ in range(2):
        model.fit(ctx.shard(rows(), batch_size=BATCH), epochs=2, verbose=0, callbacks=ctx.keras_callbacks())
        model.set_weights([each / 2 for each in model.get_weights()])
    np.savez(Path(folder, f"size-{ctx.size}.npz"), weights=flat(model))
    return {"done": 1.0}


def wrong(what: str, ctx: Any) -> None:
    """Make one mistake."""
    constraint = keras.constraints.NonNeg() if what == "constraint" else None
    model = keras.Sequential([keras.Input((5,)), keras.layers.Dense(1, kernel_constraint=constraint)])
    model.trainable = what != "frozen"
    optimizers = {
        "scale": lambda: keras.optimizers.LossScaleOptimizer(sgd()),
        "ema": lambda: keras.optimizers.SGD(0.1, use_ema=True),
        "norm": lambda: keras.optimizers.SGD(0.1, global_clipnorm=1.0),
    }
    optimizer = optimizers.get(what, sgd)()
    if what != "plain":
        optimizer = ctx.distribute(optimizer, compression="fp16" if what == "fp16" else "none")
    model.compile(optimizer, "mse")
    if what == "allreduce":
        ctx.allreduce(1.0)
    if what == "tape":
        ctx.distribute_tape(None)
    if what == "strategy":
        ctx.strategy()
    callbacks = ctx.keras_callbacks(warmup=1 if what == "warmup" else 0)
    if what == "rate":
        callbacks.append(keras.callbacks.LearningRateScheduler(lambda epoch: 0.1 / (epoch + 1)))
    model.fit(ctx.shard(rows(), batch_size=BATCH), epochs=3, verbose=0, callbacks=callbacks)
