"""A Spark job of two tasks, each of which tells its container and its GPUs."""

import json
import os
import sys
from pathlib import Path

from pyspark import BarrierTaskContext
from pyspark.sql import SparkSession


def tell(_):
    task = BarrierTaskContext.get()
    task.barrier()  # two tasks at a time, so on two executors
    yield os.environ["CONTAINER_ID"], task.resources()["gpu"].addresses


spark = SparkSession.builder.getOrCreate()
told = spark.sparkContext.parallelize([0, 1], 2).barrier().mapPartitions(tell).collect()
Path(sys.argv[1]).write_text(json.dumps(told))
spark.stop()
