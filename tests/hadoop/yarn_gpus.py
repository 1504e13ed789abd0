"""A Spark job of two tasks that write their containers and GPUs."""

import json
import os
import sys
from pathlib import Path

from pyspark import BarrierTaskContext
from pyspark.sql import SparkSession


def task_gpus(_):
    task = BarrierTaskContext.get()
    task.barrier()  # two tasks at a time, so on two executors
    yield os.environ["CONTAINER_ID"], task.resources()["gpu"].addresses


spark = SparkSession.builder.getOrCreate()
found = spark.sparkContext.parallelize([0, 1], 2).barrier().mapPartitions(task_gpus).collect()
Path(sys.argv[1]).write_text(json.dumps(found))
spark.stop()
