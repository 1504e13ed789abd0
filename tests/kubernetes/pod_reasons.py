"""A Spark job with pods that do not start, or end; it writes what its calls report of that."""

import json
import logging
import socket
import sys
import time
from pathlib import Path

from pyspark.sql import SparkSession

import sparktrain as st


def wait_for_end(folder, ctx):
    """In the first pod, wait for its end; in the next, return once the test has seen why the first one has ended."""
    mark = Path(folder, "pod")
    if not mark.exists():
        mark.write_text(socket.gethostname())
        time.sleep(600)
    deadline = time.monotonic() + 120
    while not Path(folder, "go").exists():
        assert time.monotonic() < deadline, "the test has not let this process return"
        time.sleep(0.1)
    return {"y": 1.0}


def loses(spark, folder):
    """What the call reports of its pod, which was deleted: why, on which host, and where the next attempt was."""
    params = {"folder": str(folder)}
    result = st.run(wait_for_end, params, workers=1, agents=4, spark=spark, dir=folder / "runs", progress=False)
    return [result.restarts[0].cause, result.restarts[0].host, result.members[0].host]


def waits(spark, folder):
    """Why no agent started."""
    try:
        params = {"folder": str(folder)}
        st.run(wait_for_end, params, workers=1, spark=spark, dir=folder / "runs", progress=False, start_timeout=12)
    except st.SparktrainError as error:
        return str(error)
    return ""


if __name__ == "__main__":
    folder = Path(sys.argv[2])
    logging.basicConfig()
    logging.getLogger("sparktrain").setLevel(logging.INFO)  # the agents that join
    spark = SparkSession.builder.getOrCreate()
    reported = {"loses": loses, "waits": waits}[sys.argv[1]](spark, folder)
    (folder / "reported.json").write_text(json.dumps(reported))
    spark.stop()
