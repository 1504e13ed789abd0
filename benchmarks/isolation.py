"""What a fresh process per trial costs: 64 trials of 50 ms on two warm agents that have TensorFlow and Keras loaded.

    python -m benchmarks.isolation [--trials 64] [--calls 3]

The overhead is what a call takes longer than the trials' own time on two slots, over the number of trials. One call
before those that count warms up. The rivals run the same function as tasks of a plain Spark stage, without TensorFlow:
in a new Python process for each task, and in the same two processes for all tasks, which is no isolation at all.
"""

import argparse
import os
import time
from collections.abc import Callable
from statistics import median

import sparktrain as st
from benchmarks.machine import at_most, show
from benchmarks.session import FRESH_WORKERS, MASTER, SLOTS, seconds_of, session, stage

TRIAL_S = 0.05
TARGET_MS = 15.0


def nap(trial: int) -> dict[str, float]:
    """A trial that leaves both cores to what surrounds it."""
    time.sleep(TRIAL_S)
    return {"pid": os.getpid()}


def overheads_ms(call: Callable[[int], set[float]], trials: int, calls: int) -> list[float]:
    """Of each call but the first; `call` gets its number, and returns the processes that it had."""
    found = []
    for number in range(calls + 1):
        seconds = seconds_of(lambda number=number: call(number))  # type: ignore[misc]
        found.append(1000 * (seconds - trials * TRIAL_S / SLOTS) / trials)
    return found[1:]


def of_pool(trials: int, calls: int) -> list[float]:
    """sparktrain, on a pool."""

    def call(number: int) -> set[float]:
        space = {"trial": list(range(trials))}
        result = pool.sweep(nap, space, metric="pid", dir=runs, name=f"nap-{number}", progress=False)
        pids = {trial.metrics["pid"] for trial in result.trials}
        assert len(pids) == trials
        return pids

    with session() as (spark, runs), st.pool(spark, agents=SLOTS) as pool:
        return overheads_ms(call, trials, calls)


def of_stage(trials: int, calls: int, fresh: bool) -> list[float]:
    """A plain Spark stage, with `fresh` or with shared Python processes."""

    def call(number: int) -> set[float]:
        pids = {result["pid"] for result in stage(spark, trials, nap)}
        assert len(pids) == (trials if fresh else SLOTS)
        return pids

    with session(FRESH_WORKERS if fresh else None) as (spark, _):
        return overheads_ms(call, trials, calls)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=64)
    parser.add_argument("--calls", type=int, default=3)
    given = parser.parse_args()
    ours = of_pool(given.trials, given.calls)
    fresh = of_stage(given.trials, given.calls, fresh=True)
    shared = of_stage(given.trials, given.calls, fresh=False)
    rows = [
        row("pool, a process per trial, TensorFlow loaded", ours, at_most(median(ours), TARGET_MS, " ms")),
        row("rival: Spark stage, a Python worker per task", fresh),
        row("floor: Spark stage, shared Python workers", shared),
    ]
    title = f"{given.trials} trials of {TRIAL_S * 1000:g} ms on {MASTER}: overhead per trial"
    show(title, ("", "median ms", "all calls", "target"), rows, "no TensorFlow in the two Spark stages")


def row(name: str, values: list[float], target: str = "") -> tuple[str, ...]:
    return name, f"{median(values):.1f}", "  ".join(f"{value:.1f}" for value in values), target


if __name__ == "__main__":
    main()
