"""A client of a Spark Connect server that submits a sweep, and waits for its own end. Its arguments: URL, a folder."""

import sys

from held_trial import held
from pyspark.sql import SparkSession

import sparktrain as st

if __name__ == "__main__":
    url, folder = sys.argv[1:]
    spark = SparkSession.builder.remote(url).getOrCreate()
    space = {"x": [0, 1], "folder": [folder]}
    options = {"backend": "none", "preload": [], "dir": f"file://{folder}/runs", "name": "held"}
    st.submit(held, space, metric="y", mode="max", spark=spark, **options)
    print("submitted", flush=True)
    sys.stdin.read()
