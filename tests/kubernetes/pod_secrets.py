"""A Spark job that runs a sweep of two trials in S3, with credentials that are in the environment alone."""

import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession

import sparktrain as st


def look(x):
    """How many processes of the pod have the secret among their arguments."""
    secret = os.environ["AWS_SECRET_ACCESS_KEY"].encode()
    arguments = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline")]
    print(f"{len(arguments)} processes")
    return {"leaks": float(sum(secret in words for words in arguments)), "x": float(x)}


if __name__ == "__main__":
    spark = SparkSession.builder.getOrCreate()
    st.sweep(look, {"x": [1, 2]}, metric="leaks", mode="min", spark=spark, dir=sys.argv[1], name="run", progress=False)
    spark.stop()
