"""What a fresh process per trial costs: 64 trials of 50 ms on two warm agents that have TensorFlow and Keras loaded.

    python -m benchmarks.isolation [--trials 64] [--calls 3]

The overhead is what a call takes longer than the trials' own time on two slots, over the number of trials. One call
before those that count warms up. The rival runs the same function as tasks of a plain Spark stage, with a new Python
process for each task; the floor does so with two processes for all tasks, which is no isolation at all. Neither of them
loads TensorFlow.
"""

import argparse
import os
import time
from collections.abc import Callable
from statistics import median

import sparktrain as st
from benchmarks.machine import at_most, show
from benchmarks.session import FRESH_WORKERS, MASTER, SLOTS, quiet, seconds_of, session, stage

TRIAL_S = 0.05
TARGET_MS = 15.0


def nap(trial: int) -> dict[str, float]:
    """A trial that leaves the processor to what surrounds it."""
    time.sleep(TRIAL_S)
    return {"pid": os.getpid()}


def overheads_ms(call: Callable[[], object], trials: int, calls: int) -> list[float]:
    """Of each call but the first."""
    seconds = [seconds_of(call) for _ in range(calls + 1)]
    return [1000 * (each - trials * TRIAL_S / SLOTS) / trials for each in seconds[1:]]


def on_pool(trials: int, calls: int) -> list[float]:
    """With sparktrain, on a pool."""

    def call() -> None:
        result = pool.sweep(nap, {"trial": list(range(trials))}, metric="pid", mode="max", **quiet(runs))
        assert len({trial.metrics["pid"] for trial in result.trials}) == trials

    with session() as (spark, runs), st.pool(spark, agents=SLOTS) as pool:
        return overheads_ms(call, trials, calls)


def on_stage(trials: int, calls: int, fresh: bool) -> list[float]:
    """With plain Spark, in `fresh` or in shared Python processes."""

    def call() -> None:
        assert len({result["pid"] for result in stage(spark, trials, nap)}) == (trials if fresh else SLOTS)

    with session(FRESH_WORKERS if fresh else None) as (spark, _):
        return overheads_ms(call, trials, calls)


def row(name: str, values: list[float], target: str = "") -> tuple[str, ...]:
    return name, f"{median(values):.1f}", "  ".join(f"{value:.1f}" for value in values), target


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=64)
    parser.add_argument("--calls", type=int, default=3)
    given = parser.parse_args()
    ours = on_pool(given.trials, given.calls)
    fresh = on_stage(given.trials, given.calls, fresh=True)
    shared = on_stage(given.trials, given.calls, fresh=False)
    rows = [
        row("pool: a process per trial, TensorFlow loaded", ours, at_most(median(ours), TARGET_MS, " ms")),
        row("rival: plain Spark, a process per task", fresh),
        row("floor: plain Spark, two processes in all", shared),
    ]
    title = f"Overhead of each of {given.trials} trials of {TRIAL_S * 1000:g} ms on {MASTER}"
    show(title, ("ms", "median", "each call", "target"), rows, "No TensorFlow in the two stages of plain Spark.")


if __name__ == "__main__":
    main()
