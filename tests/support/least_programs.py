"""The least program of each training of the matrix: a fixed number of steps, in which a member may be slow or hang."""

import importlib
import os
import time
from pathlib import Path
from typing import Any

import numpy as np

from sparktrain.base.clock import pause
from tests.support.resizing import examples, rows_of

WORKERS = 2
"""Members that train, unless the training has a single one."""
SLOWER_S = 0.05
LOSER = 1
"""The rank that is slow or hangs; that of a training of one member is 0."""


class Steps:
    """The end of each step of a member: it notes the step and its process."""

    def __init__(self, folder: str, ctx: Any, *, steps: int, step_s: float, slow: bool, hang_at: int) -> None:
        """Rank `LOSER` is `slow`, or makes no step after `hang_at`, once in a run; `step_s` is the work of a step."""
        self.steps = steps
        self._hang_at = hang_at
        self._loses = ctx.rank == min(LOSER, ctx.size - 1)
        self._step_s = step_s + SLOWER_S * (slow and self._loses)
        self._mark = Path(folder, "hung")
        self._path = Path(folder, f"steps-{ctx.rank}-{os.getpid()}")
        self.ended(0)

    def ended(self, step: int) -> None:
        """This member has finished `step`."""
        self._path.write_text(str(step))
        time.sleep(self._step_s)
        if self._loses and 0 < self._hang_at <= step and not self._mark.exists():
            self._mark.touch()
            while True:  # a mistake of the user's
                pause(0.05)


def fit(ctx: Any, folder: str, **plan: Any) -> dict[str, float]:
    """A `fit` of Keras, on any backend, and in a ring or beside parameter servers."""
    import keras

    steps = Steps(folder, ctx, **plan)
    keras.utils.set_random_seed(7)
    model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(1)])
    model.compile(ctx.distribute(keras.optimizers.SGD(0.01)), "mse")
    x, y = (np.resize(rows, (2 * WORKERS * steps.steps, rows.shape[1])) for rows in examples())
    position = ctx._position
    end = keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: steps.ended(int(position.step)))
    model.fit(ctx.shard((x, y), batch_size=2), verbose=0, callbacks=[*ctx.keras_callbacks(checkpoint_every=4), end])
    return {"y": float(position.step)}


def loop(ctx: Any, folder: str, module: str, name: str, **plan: Any) -> dict[str, float]:
    """A loop of a framework: the class `name` of `module` has its parts and its step."""
    steps = Steps(folder, ctx, **plan)
    training = getattr(importlib.import_module(module), name)(ctx, None)
    x, y = examples()
    restored = ctx.checkpoint.restore(*training.parts)
    if restored and training.state:
        training.state = tuple(restored["state"])
    with ctx.memory_checkpoints(*training.parts, every="0.2s") as memory:
        for step in range(restored.step + 1 if restored else 1, steps.steps + 1):
            rows = rows_of(step)[ctx.rank :: ctx.size]
            training.stepped(memory.train(training.train_step, *training.state, x[rows], y[rows]))
            steps.ended(step)
            memory.step(step, **training.values())
    return {"y": float(step)}


def arrays(ctx: Any, folder: str, **plan: Any) -> dict[str, float]:
    """A loop of NumPy's arrays that members average."""
    steps = Steps(folder, ctx, **plan)
    restored = ctx.checkpoint.restore()
    total = restored["total"] if restored else np.zeros(3)
    with ctx.memory_checkpoints(every="0.2s") as memory:
        for step in range(restored.step + 1 if restored else 1, steps.steps + 1):
            total = total + ctx.allreduce(np.full(3, float(step)))
            steps.ended(step)
            memory.step(step, total=total)
    assert total.tolist() == [steps.steps * (steps.steps + 1) / 2] * 3, "each step counts once"
    return {"y": float(step)}


def session(ctx: Any, folder: str, **plan: Any) -> dict[str, float]:
    """A worker, or a server, of TensorFlow 1: each worker makes steps until all together have made twice theirs.

    So those that are left train for long enough while one of them hangs.
    """
    import tensorflow.compat.v1 as tf

    tf.disable_v2_behavior()
    spec = ctx.cluster_spec
    cluster = tf.train.ClusterSpec({"ps": spec["ps"], "worker": [*spec["chief"], *spec.get("worker", ())]})
    job, index = ("ps", ctx.index) if ctx.role == "ps" else ("worker", ctx.rank)
    server = tf.train.Server(cluster, job_name=job, task_index=index)
    if job == "ps":
        server.join()
    steps = Steps(folder, ctx, **plan)
    with tf.device(tf.train.replica_device_setter(worker_device=f"/job:worker/task:{index}", cluster=cluster)):
        weight = tf.get_variable("weight", [])
        step = tf.train.get_or_create_global_step()
        train = tf.train.GradientDescentOptimizer(0.01).minimize(tf.square(weight - 1.0), global_step=step)
    at = 0
    with tf.train.MonitoredTrainingSession(server.target, index == 0, save_checkpoint_steps=20) as monitored:
        while at < 2 * WORKERS * steps.steps:
            _, at = monitored.run([train, step])
            steps.ended(int(at))
    return {"y": float(at)}


def strategy(ctx: Any, folder: str, **plan: Any) -> dict[str, float]:
    """A coordinator of TensorFlow in the chief, which alone runs this function."""
    import tensorflow as tf

    steps = Steps(folder, ctx, **plan)
    served = ctx.strategy("parameter_server")
    coordinator = tf.distribute.coordinator.ClusterCoordinator(served)
    restored = ctx.checkpoint.restore()
    with served.scope():
        total = tf.Variable(float(restored["total"]) if restored else 0.0)

    train_step = tf.function(lambda: total.assign_add(1.0))
    for step in range(restored.step + 1 if restored else 1, steps.steps + 1):
        coordinator.schedule(train_step)
        coordinator.join()
        steps.ended(step)
        if step % 20 == 0:
            ctx.checkpoint.save(step, total=float(total.numpy()))
    return {"y": float(total.numpy())}


def boost(ctx: Any, folder: str, **plan: Any) -> dict[str, float]:
    """A training of XGBoost, which reports each round."""
    from tests.support.boosted import USES

    steps = Steps(folder, ctx, **plan)
    USES["xgboost"].train(ctx, steps.steps, hook=steps.ended, metric="valid_logloss", checkpoint_every=4)
    return {"y": float(steps.steps)}
