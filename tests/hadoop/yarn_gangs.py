"""A Spark job that trains a model in gangs of two, on either ring, and writes how they ended."""

import json
import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession

import sparktrain as st


def fit(marks, ring, ctx):
    """A line through points, which all members find."""
    import keras
    import numpy as np

    Path(marks, f"{ring}-{ctx.rank}").write_text(f"{os.environ['CONTAINER_ID']}\n{Path.cwd()}\n")
    x = np.linspace(-1, 1, 64, dtype="float32").reshape(-1, 1)
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    model.compile(ctx.distribute(keras.optimizers.SGD(0.2)), "mse", jit_compile=False)
    data = ctx.shard((x, 3 * x + 1), batch_size=8, shuffle=True)
    model.fit(data, epochs=20, verbose=0, callbacks=ctx.keras_callbacks(checkpoint_every=20))
    ctx.export(model)
    weight, bias = (float(each.reshape(-1)[0]) for each in model.get_weights())
    return {"weight": weight, "bias": bias, "members": float(ctx.size)}


if __name__ == "__main__":
    marks, report = sys.argv[1:]
    spark = SparkSession.builder.getOrCreate()
    found = {}
    with st.pool(spark, agents=2, preload=["tensorflow", "keras", "horovod.tensorflow"]) as pool:
        for backend in ("horovod", "tensorflow"):
            params = {"marks": marks, "ring": backend}
            result = pool.run(fit, params, workers=2, backend=backend, dir="hdfs:///runs", name=backend, progress=False)
            found[backend] = {"metrics": result.metrics, "model": str(result.model_path)}
    Path(report).write_text(json.dumps(found))
    spark.stop()
