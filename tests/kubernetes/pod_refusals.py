"""A Spark job with pods that are refused; it writes how its call ends, and after how many seconds."""

import json
import sys
import time
from pathlib import Path

from pyspark.sql import SparkSession

import sparktrain as st


def train():
    """Nothing: no pod runs it."""


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    spark = SparkSession.builder.getOrCreate()
    (folder / "started").touch()
    while not (folder / "changed").exists():  # by the test, in the cluster
        time.sleep(0.2)
    started_at = time.monotonic()
    try:
        st.run(train, workers=1, spark=spark, dir=folder / "runs", start_timeout=300)
    except st.SparktrainError as error:
        reported = type(error).__name__, str(error), time.monotonic() - started_at
        (folder / "reported.json").write_text(json.dumps(reported))
    spark.stop()
