"""A Keras program of a user, for one process and for a gang on the local engine."""

from functools import cache
from pathlib import Path
from typing import Any

import keras
import numpy as np

ROWS, BATCH, EPOCHS = 48, 12, 3


def train(folder: str, ctx: Any) -> dict[str, float]:
    """Train as a member, and write what this member computed to `folder`."""
    data, optimizer = ctx.shard(rows(), batch_size=BATCH // ctx.size), ctx.distribute(sgd())
    weights, losses = fit(ctx.rank, data, optimizer, callbacks=ctx.keras_callbacks())
    np.savez(Path(folder, f"rank-{ctx.rank}.npz"), weights=weights, losses=losses)
    return {"loss": losses[-1], "size": ctx.size}


@cache
def train_alone() -> tuple[Any, list[float]]:
    """Train with Keras alone: the weights in one array, and the loss of each epoch."""
    return fit(0, rows(), sgd(), batch_size=BATCH, shuffle=False)


def rows() -> tuple[Any, Any]:
    x = np.random.default_rng(3).normal(size=(ROWS, 5)).astype("float32")
    return x, np.sin(x.sum(1, keepdims=True)).astype("float32")


def sgd() -> Any:
    return keras.optimizers.SGD(0.1, momentum=0.9)


def fit(seed: int, data: Any, optimizer: Any, **options: Any) -> tuple[Any, list[float]]:
    """Train a model from the weights that `seed` draws."""
    keras.utils.set_random_seed(seed)
    model = keras.Sequential([keras.Input((5,)), keras.layers.Dense(8, "tanh"), keras.layers.Dense(1)])
    model.compile(optimizer, "mse", jit_compile=False)
    pairs = {"x": data} if "batch_size" not in options else dict(zip("xy", data, strict=True))
    history = model.fit(**pairs, epochs=EPOCHS, verbose=0, **options)
    return flat(model), history.history["loss"]


def train_by_horovod(folder: str) -> dict[str, float]:
    """Train as Horovod's documentation has it, and write what this member computed to `folder`."""
    import horovod.keras as hvd

    hvd.init()
    share = [each[hvd.rank() :: hvd.size()] for each in rows()]
    callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0), hvd.callbacks.MetricAverageCallback()]
    options = {"batch_size": BATCH // hvd.size(), "shuffle": False, "callbacks": callbacks}
    weights, losses = fit(0, share, hvd.DistributedOptimizer(sgd()), **options)
    np.savez(Path(folder, f"rank-{hvd.rank()}.npz"), weights=weights, losses=losses)
    return {"loss": losses[-1], "size": hvd.size()}


def refine(lr: float, epochs: int, folder: str, ctx: Any) -> dict[str, float]:
    """Train to `epochs`, and write what this member started and ended with to `folder`."""
    keras.utils.set_random_seed(ctx.rank)
    model = keras.Sequential([keras.Input((5,)), keras.layers.Dense(8, "tanh"), keras.layers.Dense(1)])
    model.compile(ctx.distribute(keras.optimizers.SGD(lr, momentum=0.9)), "mse", jit_compile=False)
    first: dict[str, Any] = {}

    def note(epoch: int, logs: Any) -> None:
        first.setdefault("epoch", epoch)
        first.setdefault("step", int(model.optimizer.iterations.numpy()))
        first.setdefault("weights", flat(model))

    callbacks = [*ctx.keras_callbacks(), keras.callbacks.LambdaCallback(on_epoch_begin=note)]
    data = ctx.shard(rows(), batch_size=BATCH // ctx.size)
    losses = model.fit(data, epochs=epochs, verbose=0, callbacks=callbacks).history["loss"]
    np.savez(Path(folder, f"{ctx.size}-{lr}-{ctx.rank}.npz"), **first, ended=flat(model))
    return {"loss": losses[-1], "epochs": len(losses), "size": ctx.size}


def flat(model: Any) -> Any:
    """The weights in one array."""
    return np.concatenate([each.ravel() for each in model.get_weights()])
