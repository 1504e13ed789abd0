"""A Spark job that runs a sweep of three trials and a gang of two on Horovod, and writes what came out of them."""

import json
import os
import socket
import sys
from pathlib import Path

from pyspark.sql import SparkSession

import sparktrain as st


def double(x):
    """A result that is exact, and the pod that it comes from."""
    return {"y": 2 * x, "pod": socket.gethostname()}


def fit(marks, ctx):
    """A line through points, which both members find."""
    import keras
    import numpy as np

    shared_memory = os.statvfs("/dev/shm")
    facts = {
        "address": os.environ["SPARK_EXECUTOR_POD_IP"],
        "user": os.getuid(),
        "shared_bytes": shared_memory.f_frsize * shared_memory.f_blocks,
    }
    Path(marks, str(ctx.rank)).write_text(json.dumps(facts))
    x = np.linspace(-1, 1, 64, dtype="float32").reshape(-1, 1)
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    model.compile(ctx.distribute(keras.optimizers.SGD(0.2)), "mse", jit_compile=False)
    data = ctx.shard((x, 3 * x + 1), batch_size=8, shuffle=True)
    model.fit(data, epochs=20, verbose=0, callbacks=ctx.keras_callbacks(checkpoint_every=20))
    weight, bias = (float(value.reshape(-1)[0]) for value in model.get_weights())
    return {"weight": weight, "bias": bias, "members": float(ctx.size)}


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    spark = SparkSession.builder.getOrCreate()
    with st.pool(spark, agents=2, preload=["tensorflow", "keras", "horovod.tensorflow"]) as pool:
        sweep = pool.sweep(double, {"x": [1, 2, 3]}, metric="y", mode="max", dir=folder / "runs", progress=False)
        gang = pool.run(fit, {"marks": str(folder)}, workers=2, backend="horovod", dir=folder / "runs", progress=False)
    found = {"sweep": [trial.metrics for trial in sweep.trials], "gang": gang.metrics}
    (folder / "results.json").write_text(json.dumps(found))
    spark.stop()
