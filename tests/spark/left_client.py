"""A client that submits a sweep on a Spark Connect server, and lives until it is killed.

python -m tests.spark.left_client URL FOLDER WAY: trials last while FOLDER/hold exists. With `tunnel` as WAY, the client
takes its own address of the server for the only one. A line on its standard input stops its session.
"""

import sys
from pathlib import Path

from pyspark.sql import SparkSession

import sparktrain as st
from sparktrain.cluster import spark_facts
from tests.spark.far_client import held


def main(url: str, folder: Path, way: str) -> None:
    if way == "tunnel":
        spark_facts._PORT_KEY = "spark.connect.no.such.key"
    spark = SparkSession.builder.remote(url).getOrCreate()
    handle = st.submit(
        held, {"x": [0, 1], "folder": [str(folder)]}, metric="y", mode="max", backend="none", preload=[],
        dir=f"file://{folder}/runs", name="run", spark=spark,
    )  # fmt: skip
    print(handle.directory, flush=True)
    if sys.stdin.readline():
        spark.stop()
        print("stopped", flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3])
