"""From the call of `sweep()` on a running session to the first line of the user's code in its first trial.

    python -m benchmarks.first_line [--calls 3]

With TensorFlow it is the first line after the function's own import of it. The rival is a task of plain Spark, in a new
Python process, that imports it too. Trial and driver read the clock of the same machine.
"""

import argparse
import time
from collections.abc import Callable
from statistics import median

import sparktrain as st
from benchmarks.machine import at_most, show
from benchmarks.session import FRESH_WORKERS, MASTER, SLOTS, quiet, session, stage

PLAIN_TARGET_S = 2.0
TENSORFLOW_TARGET_S = 5.0


def plain(trial: int) -> dict[str, float]:
    return {"at": time.time()}


def with_tensorflow(trial: int) -> dict[str, float]:
    import tensorflow as tf

    return {"at": time.time(), "major": int(tf.__version__.split(".")[0])}


Trial = Callable[[int], dict[str, float]]


def delays(calls: int, first: Callable[[], float]) -> list[float]:
    """Seconds from each call of `first` except the first, to the time of day that it returns."""
    found = []
    for _ in range(calls + 1):
        started_at = time.time()
        found.append(first() - started_at)
    return found[1:]


def on_sparktrain(sweep: Callable[..., st.SweepResult], train: Trial, runs: str, calls: int) -> list[float]:
    """With a trial for each slot."""

    def first() -> float:
        result = sweep(train, {"trial": list(range(SLOTS))}, metric="at", mode="min", **quiet(runs))
        return result.best.metrics["at"]

    return delays(calls, first)


def on_stage(train: Trial, calls: int) -> list[float]:
    """With a task for each slot."""
    with session(FRESH_WORKERS) as (spark, _):
        return delays(calls, lambda: min(result["at"] for result in stage(spark, SLOTS, train)))


def row(name: str, values: list[float], target_s: float | None = None) -> tuple[str, ...]:
    seconds = "  ".join(f"{value:.2f}" for value in values)
    return name, f"{median(values):.2f}", seconds, at_most(median(values), target_s, " s") if target_s else ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=3)
    calls = parser.parse_args().calls
    with session() as (spark, runs):
        rows = [
            row("sweep()", on_sparktrain(st.sweep, plain, runs, calls), PLAIN_TARGET_S),
            row("sweep(), TensorFlow", on_sparktrain(st.sweep, with_tensorflow, runs, calls), TENSORFLOW_TARGET_S),
        ]
        with st.pool(spark, agents=SLOTS) as pool:
            rows.append(row("pool.sweep(), warm, TensorFlow", on_sparktrain(pool.sweep, with_tensorflow, runs, calls)))
    rows.append(row("rival: plain Spark, a new process, TensorFlow", on_stage(with_tensorflow, calls)))
    show(
        f"From the call to the first line of user code on {MASTER}", ("seconds", "median", "each call", "target"), rows
    )


if __name__ == "__main__":
    main()
