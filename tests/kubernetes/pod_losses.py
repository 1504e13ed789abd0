"""A Spark job that loses its pods one after the other; it writes what its call reports of that."""

import json
import socket
import sys
import time
from pathlib import Path

from pyspark.sql import SparkSession

import sparktrain as st


def wait_for_end(folder, ctx):
    """Name the pod, and wait for its end, or for the test's."""
    mark = Path(folder, "pod.new")
    mark.write_text(socket.gethostname())
    mark.rename(Path(folder, "pod"))
    while not Path(folder, "done").exists():
        time.sleep(0.2)
    return {"y": 1.0}


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    spark = SparkSession.builder.getOrCreate()
    params = {"folder": str(folder)}
    result = st.run(wait_for_end, params, workers=1, spark=spark, dir=folder / "runs", max_retries=5, progress=False)
    (folder / "reported.json").write_text(json.dumps([(restart.loss, restart.cause) for restart in result.restarts]))
    spark.stop()
