"""The Spark that benchmarks run on: two executor processes with one slot each, on this machine, and quiet."""

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from sparktrain.testing.spark import spark_session

MASTER = "local-cluster[2,1,2048]"
SLOTS = 2
FRESH_WORKERS = {"spark.python.worker.reuse": "false"}
"""Configuration of a rival: plain Spark with a new Python process for each task."""


@contextmanager
def session(conf: Mapping[str, str] | None = None) -> Iterator[tuple[SparkSession, str]]:
    """A session that is warm, and a folder for run directories. Both executors are there, and have run Python."""
    with TemporaryDirectory(prefix="sparktrain-benchmark-") as folder:
        quiet = {"spark.log.level": "ERROR", **(conf or {})}
        with spark_session(MASTER, Path(folder), quiet) as spark:
            stage(spark, 4 * SLOTS, lambda _: {})
            yield spark, str(Path(folder, "runs"))


def stage(spark: SparkSession, tasks: int, function: Callable[[int], Mapping[str, float]]) -> list[dict[str, Any]]:
    """What `function` returns for 0, 1, ... in the tasks of a plain Spark stage."""

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield pa.RecordBatch.from_pydict({"result": [json.dumps(function(number))]})

    rows = spark.range(0, tasks, 1, tasks).mapInArrow(work, "result string").collect()
    return [json.loads(row.result) for row in rows]


def seconds_of(call: Callable[[], object]) -> float:
    """How long `call` takes."""
    begun = time.perf_counter()
    call()
    return time.perf_counter() - begun
