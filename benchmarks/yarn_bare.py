"""A bare Spark job of two long tasks, for `benchmarks.yarn`: each attempt records when and where it started.

spark-submit yarn_bare.py FOLDER [MODULE ...]    which ends when FOLDER/stop is there; tasks import the modules first
"""

import importlib
import os
import sys
import time
from pathlib import Path

from pyspark import TaskContext
from pyspark.sql import SparkSession

folder, modules = Path(sys.argv[1]), sys.argv[2:]


def work(batches):
    for name in modules:
        importlib.import_module(name)
    for batch in batches:
        [slot] = batch.column(0).to_pylist()
        hidden = folder / f".{slot}"
        hidden.write_text(f"{time.time()!r} {os.environ['CONTAINER_ID']}")
        hidden.rename(folder / f"started-{slot}-{TaskContext.get().attemptNumber()}")
        while not (folder / "stop").exists():
            time.sleep(0.02)
        yield batch


spark = SparkSession.builder.getOrCreate()
spark.range(0, 2, 1, 2).mapInArrow(work, "id long").collect()
spark.stop()
