"""The client of `make demo-connect`: sweeps, submits a gang, and waits until it is killed.

python -m scripts.demo_client URL RUNS
"""

import sys
from typing import Any

from pyspark.sql import SparkSession

import sparktrain as st


def train(lr: float, steps: int, ctx: Any) -> dict[str, float]:
    """Steps of a fifth of a second."""
    import time

    for step in range(steps):
        time.sleep(0.2)
        ctx.report(step, loss=1.0 / (1 + step * lr))
    return {"loss": 1.0 / (1 + steps * lr)}


def main(url: str, runs: str) -> None:
    """Wait for the sweep, and then for the gang."""
    spark = SparkSession.builder.remote(url).getOrCreate()
    common = {"spark": spark, "dir": runs, "backend": "none", "preload": []}
    print(st.sweep(train, {"lr": [0.1, 0.2], "steps": [10]}, metric="loss", name="sweep", **common), flush=True)
    gang = st.submit(train, {"lr": 0.3, "steps": 100}, kind="run", workers=2, name="gang", **common)
    print(gang, flush=True)
    print(gang.result(), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
