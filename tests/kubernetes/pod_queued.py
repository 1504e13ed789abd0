"""A Spark job with two agents, in a queue. Its arguments: a folder, and the number of members that train."""

import sys

from held_trial import held
from pyspark.sql import SparkSession

import sparktrain as st

if __name__ == "__main__":
    folder, workers = sys.argv[1:]
    spark = SparkSession.builder.getOrCreate()
    options = {"workers": int(workers), "agents": 2, "backend": "none", "preload": [], "dir": f"{folder}/runs"}
    print(st.run(held, {"x": 0, "folder": folder}, spark=spark, **options))
    spark.stop()
