"""From the call of `run()` on a running session, and on a warm pool, to the end of the first allreduce of two members.

    python -m benchmarks.first_allreduce [--calls 3]

Beside Horovod's own launcher on Spark, `horovod.spark.run`, with the same wheel, on a running session of its own.
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import sparktrain as st
from benchmarks.machine import at_most, show
from benchmarks.session import MASTER, quiet, session

RUN_TARGET_S = 5.0
POOL_TARGETS_S = {"horovod": 1.5, "tensorflow": 1.5, "jax": 1.0}
RIVAL_TIMEOUT_S = 300.0
RINGS = ("horovod", "tensorflow", "jax")


def train(ctx: Any) -> dict[str, float]:
    total = ctx.allreduce(float(ctx.rank), average=False)
    return {"at": time.time(), "total": total}


def delays(calls: int, first: Callable[[], float]) -> list[float]:
    """Seconds from each call of `first` to the time of day that it returns."""
    found = []
    for _ in range(calls):
        started_at = time.time()
        found.append(first() - started_at)
    return found


def on_sparktrain(run: Callable[..., st.RunResult], backend: str, runs: str, calls: int) -> list[float]:
    def first() -> float:
        result = run(train, workers=2, backend=backend, **quiet(runs))
        assert result.metrics["total"] == 1.0
        return result.metrics["at"]

    return delays(calls, first)


def on_horovod(calls: int) -> list[float]:
    command = [sys.executable, "-m", "benchmarks.horovod_spark", str(calls)]
    output = subprocess.run(command, capture_output=True, text=True, timeout=RIVAL_TIMEOUT_S, check=True).stdout
    return [float(each) for each in json.loads(output.splitlines()[-1])]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=3)
    calls = parser.parse_args().calls
    rows = []
    with session() as (spark, runs):
        for backend in RINGS:
            found = on_sparktrain(st.run, backend, runs, calls)
            rows.append((f"run(), {backend}", *_cells(found), at_most(median(found), RUN_TARGET_S, " s")))
            with st.pool(spark, agents=2, preload=_preload(backend)) as pool:
                found = on_sparktrain(pool.run, backend, runs, calls + 1)[1:]
            rows.append(
                (f"pool.run(), {backend}", *_cells(found), at_most(median(found), POOL_TARGETS_S[backend], " s"))
            )
    rows.append(("horovod.spark.run, local[2]", *_cells(on_horovod(calls)), ""))
    show(
        f"From the call to the first allreduce of two members, {calls} calls, {MASTER}",
        ("", "median", "all", "target"),
        rows,
    )


def _preload(backend: str) -> list[str]:
    if backend == "jax":
        return ["jax"]
    return ["tensorflow", "keras", *(["horovod.tensorflow"] if backend == "horovod" else [])]


def _cells(found: list[float]) -> tuple[str, str]:
    return f"{median(found):.2f} s", ", ".join(f"{each:.2f}" for each in found)


if __name__ == "__main__":
    main()
