"""A Spark job with a ring of two members that move between pods; both write down their steps, and their pods."""

import json
import logging
import os
import socket
import sys
import time
from pathlib import Path

from pyspark.sql import SparkSession

import sparktrain as st

GO = "go"
"""The file with which the training ends."""
STEP_S = 0.05


def train(folder, ctx):
    """Train until the test has seen what it waits for."""
    import horovod.tensorflow as hvd
    import keras
    import numpy as np

    notes = Path(folder, f"steps-{ctx.rank}.jsonl")
    end = Path(folder, GO)
    place = {"pod": socket.gethostname(), "node": os.environ["SPARKTRAIN_NODE"], "entered": time.time()}

    class Note(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            time.sleep(STEP_S)  # the work of a step
            step = int(self.model.optimizer.iterations.numpy())
            with notes.open("a") as file:
                print(json.dumps({"step": step, "at": time.time(), "local_size": hvd.local_size(), **place}), file=file)
            if end.exists():
                self.model.stop_training = True

    keras.utils.set_random_seed(3)
    model = keras.Sequential([keras.Input((5,)), keras.layers.Dense(8, "tanh"), keras.layers.Dense(1)])
    model.compile(ctx.distribute(keras.optimizers.SGD(0.01, momentum=0.9)), "mse", jit_compile=False)
    x = np.random.default_rng(3).normal(size=(6000, 5)).astype("float32")
    data = ctx.shard((x, x.sum(1, keepdims=True)), batch_size=2)
    model.fit(data, epochs=500, verbose=0, callbacks=[*ctx.keras_callbacks(), Note()])


if __name__ == "__main__":
    folder, retries = Path(sys.argv[1]), int(sys.argv[2])
    logging.basicConfig()
    logging.getLogger("sparktrain").setLevel(logging.INFO)  # the agents that join
    spark = SparkSession.builder.getOrCreate()
    runs = folder / "runs"
    with st.pool(spark, agents=4, preload=["tensorflow", "keras", "horovod.tensorflow"]) as pool:
        result = pool.run(
            train, {"folder": str(folder)}, workers=2, spread=True, backend="horovod", dir=runs, name="moves",
            max_retries=retries, progress=False,
        )  # fmt: skip
    keys = ("rank", "cause", "loss", "healed", "steps_lost")
    restarts = [{key: getattr(restart, key) for key in keys} for restart in result.restarts]
    (folder / "results.json").write_text(json.dumps(restarts))
    spark.stop()
