"""Programs of Horovod's documentation for elastic training; each loses a member once."""

import os
import signal
from pathlib import Path
from typing import Any

import keras
import numpy as np

from tests.training import local_gang

BATCHES = local_gang.ROWS // local_gang.BATCH


def _model() -> Any:
    keras.utils.set_random_seed(0)
    return keras.Sequential([keras.Input((5,)), keras.layers.Dense(8, "tanh"), keras.layers.Dense(1)])


def _killed(ctx: Any, epoch: int) -> None:
    """Rank 1 dies in the second epoch, once; what was committed is a checkpoint by then."""
    if ctx.generation == 1 and epoch == 1:
        if ctx.rank == 0:
            ctx.checkpoint.wait()
        ctx.allreduce(0.0)
        if ctx.rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)


def _noted(folder: str, rank: int, model: Any, **values: Any) -> None:
    weights = np.concatenate([each.ravel() for each in model.get_weights()])
    np.savez(Path(folder, f"rank-{rank}.npz"), weights=weights, **values)


def loop(folder: str, ctx: Any) -> dict[str, float]:
    """A loop that commits after each epoch."""
    import horovod.tensorflow as hvd
    import tensorflow as tf

    hvd.init()
    model, optimizer = _model(), local_gang.sgd()
    x, y = (each.reshape(BATCHES, hvd.size(), -1, each.shape[1])[:, hvd.rank()] for each in local_gang.rows())
    resets: list[int] = []

    @hvd.elastic.run
    def train(state: Any, first: int) -> None:
        while state.epoch < local_gang.EPOCHS:
            _killed(ctx, state.epoch)
            for batch in range(first, BATCHES):
                with hvd.DistributedGradientTape(tf.GradientTape()) as tape:
                    loss = tf.reduce_mean(tf.square(model(x[batch]) - y[batch]))
                optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
            state.seen = [*state.seen, state.epoch]
            state.epoch += 1
            state.commit()

    state = hvd.elastic.TensorFlowKerasState(model, optimizer, epoch=0, seen=[])
    state.register_reset_callbacks([lambda: resets.append(state.epoch)])
    train(state, 0)
    _noted(folder, ctx.rank, model, seen=state.seen, resets=resets)
    return {"epochs": float(state.epoch)}


def fit(folder: str, ctx: Any) -> dict[str, float]:
    """Keras's `fit` with the callbacks of `hvd.elastic`."""
    import horovod.keras as hvd

    hvd.init()
    model = _model()
    model.compile(hvd.DistributedOptimizer(local_gang.sgd()), "mse")
    share = [each.reshape(BATCHES, hvd.size(), -1, each.shape[1])[:, hvd.rank()] for each in local_gang.rows()]
    x, y = (each.reshape(-1, each.shape[2]) for each in share)
    resets: list[int] = []
    state = hvd.elastic.KerasState(model, batch=0, epoch=0, seen=[])
    state.register_reset_callbacks([lambda: resets.append(state.epoch)])
    killer = keras.callbacks.LambdaCallback(on_epoch_begin=lambda *_: _killed(ctx, state.epoch))
    seer = keras.callbacks.LambdaCallback(on_epoch_end=lambda *_: state.seen.append(len(state.seen)))
    callbacks = [
        killer,
        seer,
        hvd.elastic.UpdateEpochStateCallback(state),
        hvd.elastic.UpdateBatchStateCallback(state),
        hvd.elastic.CommitStateCallback(state, batches_per_commit=100),
    ]

    @hvd.elastic.run
    def train(state: Any) -> None:
        options = {"batch_size": local_gang.BATCH // hvd.size(), "shuffle": False, "verbose": 0}
        model.fit(x, y, epochs=local_gang.EPOCHS - state.epoch, callbacks=callbacks, **options)

    train(state)
    _noted(folder, ctx.rank, model, seen=state.seen, resets=resets)
    return {"epochs": float(state.epoch)}


def values(ctx: Any) -> dict[str, float]:
    """What a state does with its values in one process."""
    import horovod.tensorflow as hvd

    state = hvd.elastic.ObjectState(numbers=[1, 2], name="start", table=np.arange(6.0).reshape(2, 3))
    state.name, state.numbers[0] = "changed", 5
    state.restore()
    assert (state.name, state.numbers) == ("start", [1, 2])
    state.name = "committed"
    state.commit()
    state.name = "changed"
    state.restore()
    state.sync()
    assert state.name == "committed"
    assert state.table.tolist() == [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]
    return {"rank": float(ctx.rank)}
