"""A client that no host can connect to, with a Spark Connect session.

python -m tests.spark.far_client URL RUNS FOLDER ADDRESS COORDINATOR: sweeps, and prints the results as one JSON object.
Trials last while FOLDER/hold exists.
"""

import json
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

import sparktrain as st
from sparktrain.cluster.driver_address import HOST_KEY


def held(x: int, folder: str, ctx: Any) -> dict[str, float]:
    """Note the start, and train as long as FOLDER/hold exists."""
    import os
    import time
    from pathlib import Path

    Path(folder, f"start-{x}-{ctx.generation}-{os.getpid()}").touch()
    step = 0
    while Path(folder, "hold").exists():
        step += 1
        ctx.report(step, y=float(step))
        time.sleep(0.05)
    return {"y": float(x)}


def main(url: str, runs: str, folder: Path, address: str, coordinator: str) -> None:
    spark = SparkSession.builder.remote(url).getOrCreate()
    spark.conf.set(HOST_KEY, address)  # as a laptop with a name that resolves, and no way to it
    result = st.sweep(
        held,
        {"x": [0, 1], "folder": [str(folder)]},
        metric="y", mode="max", backend="none", preload=[], dir=runs, name=folder.name, spark=spark,
        coordinator=None if coordinator == "auto" else coordinator,
    )  # fmt: skip
    print(json.dumps({"status": result.status, "metrics": [trial.metrics for trial in result.trials]}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), *sys.argv[4:])
