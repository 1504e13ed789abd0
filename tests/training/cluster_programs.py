"""Programs as TensorFlow's tutorials have them, which connect a gang by TF_CONFIG themselves."""

import os
import signal
from pathlib import Path
from typing import Any

import numpy as np

from tests.training import local_gang

STEPS = 200


def fit_by_helper(folder: str, ctx: Any) -> dict[str, float]:
    """Keras's `fit` under a strategy that a helper makes."""
    import tensorflow as tf

    from tests.training.making_strategies import mirrored

    strategy = mirrored()
    with strategy.scope():
        optimizer = local_gang.sgd()
        data = tf.data.Dataset.from_tensor_slices(local_gang.rows()).batch(local_gang.BATCH)
        weights, losses = local_gang.fit(0, data, optimizer)
    np.savez(Path(folder, f"rank-{ctx.rank}.npz"), weights=weights, losses=losses)
    return {"loss": losses[-1], "ranks": ctx.allreduce(ctx.rank, average=False)}


def loop(folder: str, ctx: Any) -> dict[str, float]:
    """A loop with `strategy.run`; saves each epoch, and resumes. Kills rank 1 in the second epoch, once."""
    import keras
    import tensorflow as tf

    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    with strategy.scope():
        keras.utils.set_random_seed(0)
        model = keras.Sequential([keras.Input((5,)), keras.layers.Dense(8, "tanh"), keras.layers.Dense(1)])
        optimizer = local_gang.sgd()
        optimizer.build(model.trainable_variables)
        model.compile(optimizer, "mse")
    data = tf.data.Dataset.from_tensor_slices(local_gang.rows()).batch(local_gang.BATCH)

    def replica(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.square(model(x, training=True) - y)) / local_gang.BATCH
        optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
        return loss

    @tf.function
    def step(batch: Any) -> Any:
        return strategy.reduce("SUM", strategy.run(replica, args=batch), axis=None)

    restored = ctx.checkpoint.restore(model)
    start, losses = (restored.epoch, restored["losses"]) if restored else (0, [])
    for epoch in range(start, local_gang.EPOCHS):
        if epoch == 1 and ctx.rank == 1 and ctx.generation == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        steps = [float(step(batch)) for batch in strategy.experimental_distribute_dataset(data)]
        losses.append(float(np.mean(steps)))
        if ctx.rank == 0:
            ctx.checkpoint.save(epoch + 1, model, epoch=epoch + 1, losses=losses)
            ctx.checkpoint.wait()
    weights = np.concatenate([each.ravel() for each in model.get_weights()])
    np.savez(Path(folder, f"rank-{ctx.rank}.npz"), weights=weights, losses=losses)
    return {"loss": losses[-1], "ranks": ctx.allreduce(ctx.rank, average=False)}


def asked_in_helper(ctx: Any) -> dict[str, float]:
    """Get the strategy of the context in a module that is imported late, after an operation."""
    import importlib

    helper = importlib.import_module("tests.training.making_strategies")
    helper.computed()
    return {"replicas": helper.asked(ctx).num_replicas_in_sync}


def distributed_twice(ctx: Any) -> None:
    """Average by a strategy, and by the ring too."""
    import tensorflow as tf

    tf.distribute.MultiWorkerMirroredStrategy()
    ctx.distribute(local_gang.sgd())


def asked_late(ctx: Any) -> None:
    """Ask for a strategy after a helper has started TensorFlow."""
    from tests.training.making_strategies import computed

    computed()
    ctx.strategy("multi_worker_mirrored")


def asked_by_horovod(ctx: Any) -> None:
    """Ask the context for a strategy, in a helper, in a gang that Horovod connects."""
    from tests.training.making_strategies import asked

    asked(ctx)


def mirrored_by_horovod() -> None:
    """A strategy in a gang that Horovod connects."""
    from tests.training.making_strategies import mirrored

    mirrored()


def coordinated() -> dict[str, float]:
    """As the tutorial of ParameterServerStrategy: every member runs it, and servers join."""
    import tensorflow as tf

    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    if resolver.task_type in ("worker", "ps"):
        server = tf.distribute.Server(
            resolver.cluster_spec(), job_name=resolver.task_type, task_index=resolver.task_id, protocol="grpc"
        )
        server.join()
    strategy = tf.distribute.ParameterServerStrategy(resolver)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    with strategy.scope():
        total = tf.Variable(0.0)

    @tf.function
    def step() -> None:
        total.assign_add(1.0)

    for _ in range(20):
        coordinator.schedule(step)
    coordinator.join()
    return {"total": float(total.numpy())}


def served(folder: str, ctx: Any, kill: str = "", sync: bool = False, steps: int = STEPS) -> dict[str, float]:
    """Between-graph replication as programs of 2017 have it. Kills the member with the role `kill`, once."""
    import tensorflow.compat.v1 as tf

    tf.disable_v2_behavior()
    spec = ctx.cluster_spec
    cluster = tf.train.ClusterSpec({"ps": spec["ps"], "worker": [*spec["chief"], *spec.get("worker", ())]})
    job, index = ("ps", ctx.index) if ctx.role == "ps" else ("worker", ctx.rank)
    server = tf.train.Server(cluster, job_name=job, task_index=index)
    Path(folder, f"{ctx.role}.pid").write_text(str(os.getpid()))
    if job == "ps":
        server.join()
    with tf.device(tf.train.replica_device_setter(worker_device=f"/job:worker/task:{index}", cluster=cluster)):
        x, y = (tf.placeholder(tf.float32, [None, width]) for width in (5, 1))
        hidden = tf.tanh(x @ tf.get_variable("hidden", [5, 8]) + tf.get_variable("bias", [8]))
        loss = tf.reduce_mean(tf.square(hidden @ tf.get_variable("out", [8, 1]) - y))
        step = tf.train.get_or_create_global_step()
        optimizer, hooks = tf.train.GradientDescentOptimizer(0.05), [tf.train.StopAtStepHook(last_step=steps)]
        if sync:
            workers = cluster.num_tasks("worker")
            optimizer = tf.train.SyncReplicasOptimizer(optimizer, workers - 1, workers)
            hooks.append(optimizer.make_session_run_hook(index == 0))
        train = optimizer.minimize(loss, global_step=step)
    data, done, first = local_gang.rows(), 0, None
    with tf.train.MonitoredTrainingSession(
        server.target, index == 0, "hdfs://model", hooks=hooks, save_checkpoint_steps=20
    ) as session:
        while not session.should_stop():
            _, last, at = session.run([train, loss, step], dict(zip((x, y), data, strict=True)))
            done, first = done + 1, at if first is None else first
            if kill and ctx.generation == 1 and index == 0 and at >= steps // 2:
                ctx.checkpoint.wait()
                os.kill(int(Path(folder, f"{kill}.pid").read_text()), signal.SIGKILL)
                kill = ""
    Path(folder, f"done-{ctx.rank}").write_text(str(done))
    return {"loss": float(last), "first": float(first)}


def supervised(folder: str, ctx: Any) -> dict[str, float]:
    """The same by `Supervisor`, which programs of 2016 have."""
    import tensorflow.compat.v1 as tf

    tf.disable_v2_behavior()
    cluster = tf.train.ClusterSpec(ctx.cluster_spec)
    server = tf.train.Server(cluster, job_name=ctx.role, task_index=ctx.index)
    if ctx.role == "ps":
        server.join()
    worker = f"/job:{ctx.role}/task:{ctx.index}"
    with tf.device(tf.train.replica_device_setter(worker_device=worker, cluster=cluster)):
        step = tf.train.get_or_create_global_step()
        total = tf.get_variable("total", [], initializer=tf.zeros_initializer())
        add = tf.group(tf.assign_add(step, 1), tf.assign_add(total, 2.0, use_locking=True))
    supervisor = tf.train.Supervisor(is_chief=ctx.role == "chief", global_step=step)
    session = supervisor.prepare_or_wait_for_session(server.target)
    while session.run(step) < STEPS:
        session.run(add)
    return {"total": float(session.run(total))}


def without_server(ctx: Any) -> None:
    """The parameter server returns, and the chief waits for it in vain."""
    import tensorflow.compat.v1 as tf

    from sparktrain.training.frameworks.tensorflow.strategies import sessions

    if ctx.role == "ps":
        return
    tf.disable_v2_behavior()
    sessions.SERVERS_TIMEOUT_S = 1.0
    server = tf.train.Server(tf.train.ClusterSpec(ctx.cluster_spec), job_name=ctx.role, task_index=ctx.index)
    tf.train.get_or_create_global_step()
    with tf.train.MonitoredTrainingSession(server.target, ctx.role == "chief"):
        pass


def without_chief(ctx: Any) -> None:
    """The chief lives, and starts no session: the worker waits for it in vain."""
    import tensorflow.compat.v1 as tf

    from sparktrain.training.frameworks.tensorflow.strategies import sessions

    tf.disable_v2_behavior()
    sessions.CHIEF_TIMEOUT_S = 1.0
    cluster = tf.train.ClusterSpec(ctx.cluster_spec)
    server = tf.train.Server(cluster, job_name=ctx.role, task_index=ctx.index)
    if ctx.role != "worker":
        server.join()
    with tf.device(tf.train.replica_device_setter(worker_device="/job:worker/task:0", cluster=cluster)):
        tf.train.get_or_create_global_step()
    with tf.train.MonitoredTrainingSession(server.target, is_chief=False):
        pass
