"""Between-graph replication as programs of TensorFlow 1 have it: workers with graphs of their own share variables.

    python examples/between_graph.py
    sparktrain run examples/between_graph.py:train --workers 3 --ps 1 --backend tensorflow --local --slots 4

A parameter server keeps the variables. Asynchronous workers apply their gradients to them as soon as they have some,
which other workers may have overtaken; `SyncReplicasOptimizer` waits for one gradient of each worker, and applies their
mean. The table has the accuracy after equal wall time, by the number of workers.
"""

import time

import numpy as np
from fashion_mnist import load

import sparktrain as st

BATCH, IMAGES = 64, 12_800


def train(ctx, sync=False, seconds=8.0, learning_rate=0.05):
    import tensorflow.compat.v1 as tf

    tf.disable_v2_behavior()
    names = ctx.cluster_spec
    cluster = tf.train.ClusterSpec({"ps": names["ps"], "worker": [*names["chief"], *names.get("worker", ())]})
    if ctx.role == "ps":
        tf.train.Server(cluster, job_name="ps", task_index=ctx.index).join()
    worker, workers = ctx.rank, cluster.num_tasks("worker")
    server = tf.train.Server(cluster, job_name="worker", task_index=worker)

    with tf.device(tf.train.replica_device_setter(worker_device=f"/job:worker/task:{worker}", cluster=cluster)):
        images, labels = tf.placeholder(tf.float32, [None, 784]), tf.placeholder(tf.int32, [None])
        hidden = tf.nn.relu(images @ tf.get_variable("hidden", [784, 64]) + tf.get_variable("hidden_bias", [64]))
        scores = hidden @ tf.get_variable("out", [64, 10]) + tf.get_variable("out_bias", [10])
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=scores))
        right = tf.reduce_mean(tf.cast(tf.equal(tf.argmax(scores, 1, output_type=tf.int32), labels), tf.float32))
        step = tf.train.get_or_create_global_step()
        optimizer, hooks = tf.train.GradientDescentOptimizer(learning_rate), []
        if sync:
            optimizer = tf.train.SyncReplicasOptimizer(optimizer, replicas_to_aggregate=workers)
            hooks = [optimizer.make_session_run_hook(is_chief=worker == 0, num_tokens=workers)]
        minimize = optimizer.minimize(loss, global_step=step)

    pixels, classes = load("train", IMAGES)
    pixels, random = pixels.reshape(-1, 784), np.random.default_rng(worker)
    with tf.train.MonitoredTrainingSession(server.target, worker == 0, hooks=hooks) as session:
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            rows = random.integers(IMAGES, size=BATCH)
            limit = tf.RunOptions(timeout_in_ms=1 + int(1000 * left))
            try:
                session.run(minimize, {images: pixels[rows], labels: classes[rows]}, options=limit)
            except tf.errors.DeadlineExceededError:
                break  # in step, a worker waits for the gradients of others, which have finished
        if worker == 0:  # what the chief returns is the result
            test, answers = load("t10k", 2_000)
            accuracy, steps = session.run([right, step], {images: test.reshape(-1, 784), labels: answers})
            return {"accuracy": float(accuracy), "steps": int(steps)}


def compare(pool, seconds=8.0, **options):
    """The lines of the table."""
    yield f"{'workers':>7}  {'asynchronous':>20}  {'synchronous':>20}"
    for workers in (1, 2, 3):
        cells = []
        for sync in (False, True):
            params = {"sync": sync, "seconds": seconds}
            found = pool.run(train, params, workers=workers, ps=1, backend="tensorflow", **options).metrics
            cells.append(f"{found['accuracy']:.3f} ({found['steps']:,.0f} steps)")
        yield f"{workers:>7}  {cells[0]:>20}  {cells[1]:>20}"


if __name__ == "__main__":
    with st.pool(st.local(slots=4), preload=["tensorflow"]) as pool:
        for line in compare(pool, seed=1, progress=False):
            print(line)
