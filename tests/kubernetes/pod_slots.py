"""A Spark job that runs a gang of two and then a sweep, on executors that start on demand.

Its arguments: a folder, and for how long the gang waits. It writes the pods of members and trials, or its error.
"""

import json
import logging
import socket
import sys
import time
from pathlib import Path

from pyspark.sql import SparkSession

import sparktrain as st

TRAINS_S = 4.0
"""Longer than an executor of the test may be idle."""


def train(x, folder, ctx):
    """Train for a while, and name the pod."""
    pod = socket.gethostname()
    time.sleep(TRAINS_S)
    Path(folder, f"pod-{x}-{ctx.rank}").write_text(pod)
    return {"y": float(x)}


def wait_for(path):
    """Wait for the test."""
    while not path.exists():
        time.sleep(0.1)


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    logging.basicConfig()
    logging.getLogger("sparktrain").setLevel(logging.INFO)  # the agents that join
    spark = SparkSession.builder.getOrCreate()
    wait_for(folder / "open")
    call = {"dir": folder / "runs", "start_timeout": float(sys.argv[2])}
    try:
        with st.pool(spark, agents=2, preload=[]) as pool:
            wait_for(folder / "train")
            pool.run(train, {"x": 0, "folder": str(folder)}, workers=2, backend="none", **call)
            space = {"x": [1, 2], "folder": [str(folder)]}
            pool.sweep(train, space, metric="y", mode="max", progress=False, **call)
        report = [(folder / name).read_text() for name in ("pod-0-0", "pod-0-1", "pod-1-0", "pod-2-0")]
    except st.SparktrainError as error:
        report = [type(error).__name__, str(error)]
    (folder / "reported.new").write_text(json.dumps(report))
    (folder / "reported.new").rename(folder / "reported.json")
    if "JoinTimeoutError" not in report:
        wait_for(folder / "end")
    spark.stop()
