"""Batch inference of small dense models: rows a second of `sparktrain.predict`, beside `predict_batch_udf` of PySpark.

python -m benchmarks.inference [--rows 1000000] [--images 100000] [--rounds 3]

One executor with one core. Rows are cached in it; a job adds up the predictions, so that no result travels. The rates
are those of a whole job, and of the model within a task: the tensors of a batch, the call, and the column of results.
"""

import argparse
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.ml.functions import predict_batch_udf
from pyspark.sql import DataFrame, SparkSession, functions
from pyspark.sql.types import FloatType

import sparktrain as st
from benchmarks.machine import at_least, show
from benchmarks.session import seconds_of
from tests.support.local_spark import spark_session

MASTER = "local-cluster[1,1,3072]"
TARGET = 100_000
MODELS = {"20-32-1": (20, (32,), 1), "784-32-10": (784, (32,), 10)}
LARGE = ("1024-4096-1", 1024, (4096,) * 6, 1)
"""A model of 336 MiB: what do two workers of a host hold in memory?"""
MAKE = """
import sys, keras
from keras import Input, Model, layers
folder, name, inputs, outputs, *hidden = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:])
x = y = Input((inputs,), name="features")
for units in hidden:
    y = layers.Dense(units, activation="relu")(y)
Model(x, layers.Dense(outputs)(y)).save(f"{folder}/{name}.keras")
"""
LOAD = """
import pathlib, sys, time
import keras
from sparktrain.ml.inference.backend_setup import set_up
from sparktrain.ml.inference.loaded_model import LoadedModel

def own():
    lines = open("/proc/self/smaps_rollup").read().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Anonymous:")) / 1024

folder, mapped = pathlib.Path(sys.argv[1]), sys.argv[2] == "mapped"
set_up(1, None)
before, started_at = own(), time.perf_counter()
model = LoadedModel(folder / "1024-4096-1.keras")
if mapped:
    if not (weights := folder / "weights.bin").exists():
        model.store_weights(weights)
    model.share_weights(weights)
print(own() - before, time.perf_counter() - started_at)
"""


def make(folder: Path) -> dict[str, str]:
    """The paths of the models, made in a process of its own."""
    for name, inputs, hidden, outputs in (*((name, *model) for name, model in MODELS.items()), LARGE):
        words = [str(folder), name, *map(str, (inputs, outputs, *hidden))]
        subprocess.run([sys.executable, "-c", MAKE, *words], check=True, capture_output=True)
    return {name: str(folder / f"{name}.keras") for name in MODELS}


def table(spark: SparkSession, rows: int, width: int, cell: str) -> DataFrame:
    """Rows with one column `features`, cached."""

    def fill(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        random = np.random.default_rng(1)
        for batch in batches:
            count = len(batch)
            if cell == "binary":
                pixels = random.integers(0, 256, (count, width), np.uint8)
                yield pa.RecordBatch.from_pydict({"features": [each.tobytes() for each in pixels]})
            else:
                flat = pa.array(random.random(count * width, np.float32))
                offsets = pa.array(np.arange(count + 1, dtype=np.int32) * width)
                yield pa.RecordBatch.from_pydict({"features": pa.ListArray.from_arrays(offsets, flat)})

    frame = spark.range(0, rows, 1, 2).mapInArrow(fill, f"features {cell}").cache()
    frame.count()
    return frame


def rival(path: str, width: int) -> Any:
    """The same model by PySpark's own way."""

    def load() -> Callable[[np.ndarray], np.ndarray]:
        import keras
        import tensorflow as tf

        model = keras.saving.load_model(path, compile=False)
        spec = tf.TensorSpec((None, width), tf.float32)
        call = tf.function(lambda x: model(x, training=False), input_signature=[spec])
        return lambda features: call(tf.constant(features)).numpy()[:, 0]

    return predict_batch_udf(load, return_type=FloatType(), batch_size=1024, input_tensor_shapes=[[width]])


def alone(frame: DataFrame, path: str) -> float:
    """Rows a second of the model within a task, batches already there."""
    from sparktrain.ml.inference.feeds import ColumnTable, feeds_of
    from sparktrain.ml.inference.model_file import model_at
    from sparktrain.ml.inference.prediction_task import ModelUse
    from sparktrain.ml.inference.signature_of_file import signature_in

    file, folder = model_at(path)
    use = ModelUse(file, signature_in(file, folder), 1024, False, "df")
    folder.release()

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import time

        from sparktrain.ml.inference.feature_rows import feature_batch
        from sparktrain.ml.inference.worker import predicted

        held = list(batches)
        if not held:
            return
        feeds = feeds_of(use.signature, ColumnTable(held[0].schema, "df"), None)
        for number, batch in enumerate([held[0], *held]):
            if number == 1:  # the first call loads and traces
                started_at = time.perf_counter()
            predicted(feature_batch(batch.schema.names, batch.columns, feeds), feeds, use, "df")
        seconds = time.perf_counter() - started_at
        yield pa.RecordBatch.from_pydict({"rows": [sum(map(len, held))], "seconds": [seconds]})

    found = frame.mapInArrow(work, "rows long, seconds double").collect()
    return sum(row.rows for row in found) / sum(row.seconds for row in found)


def rate(job: Callable[[], object], rows: int, rounds: int) -> float:
    """Rows a second of a job, the median of so many after one that loads the model."""
    job()
    return rows / median(seconds_of(job) for _ in range(rounds))


def measure(spark: SparkSession, name: str, path: str, cell: str, rows: int, rounds: int) -> tuple[str, ...]:
    """One line of the table."""
    width, _, outputs = MODELS[name]
    frame = table(spark, rows, width, cell)
    scored = st.predict(frame, path, keep=False)
    value = "prediction" if outputs == 1 else "prediction[0]"
    whole = rate(lambda: scored.selectExpr(f"sum({value})").collect(), rows, rounds)
    within = alone(frame, path)
    theirs = "no rule for bytes"
    if cell != "binary":
        column = rival(path, width)(functions.col("features"))
        theirs = f"{rate(lambda: frame.select(functions.sum(column)).collect(), rows, rounds):,.0f}"
    floor = rate(lambda: frame.mapInArrow(_drop, "rows long").collect(), rows, rounds)
    frame.unpersist()
    return f"{name}, {cell}", f"{within:,.0f}", at_least(within, TARGET), f"{whole:,.0f}", theirs, f"{floor:,.0f}"


def weights(folder: Path) -> list[tuple[str, ...]]:
    """Memory of its own of a process with the large model, and how long it loads: a copy, the first map, the next."""
    lines = []
    for way, words in (("a copy", "copy"), ("mapped, first of a host", "mapped"), ("mapped, each other", "mapped")):
        command = [sys.executable, "-c", LOAD, str(folder), words]
        printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
        lines.append((way, f"{float(printed[0]):,.0f} MiB", f"{float(printed[1]):.1f} s"))
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--images", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="sparktrain-benchmark-")))
        paths = make(folder)
        memory = {"spark.log.level": "ERROR", "spark.executor.memory": "3g"}
        spark = stack.enter_context(spark_session(MASTER, folder, memory))
        lines = [
            measure(spark, name, paths[name], cell, rows, given.rounds)
            for name, cell, rows in (
                ("20-32-1", "array<float>", given.rows),
                ("784-32-10", "array<float>", given.images),
                ("784-32-10", "binary", given.images),
            )
        ]
        shared = weights(folder)
    show("Weights of 336 MiB in a worker", ("weights", "memory of its own", "to load"), shared)
    columns = ("model, column", "in a task", "target", "whole job", "batch_udf", "pipe alone")
    note = (
        "Rows a second of one core, beside predict_batch_udf of PySpark. The last column is a job that moves the rows "
        "to Python, and drops them there."
    )
    show(f"Batch inference on {MASTER}, {given.rounds} rounds", columns, lines, note)


def _drop(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield pa.RecordBatch.from_pydict({"rows": [sum(map(len, batches))]})


if __name__ == "__main__":
    main()
