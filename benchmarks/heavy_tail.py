"""Trials of very different lengths: how far from the best that their order allows?

    python -m benchmarks.heavy_tail [--trials 40] [--seconds 40]

The trials sleep for Pareto-distributed times, which take `--seconds` on two slots; none is longer than a third of that.
Ideal: a free slot gets the next trial at once. The rival is a plain Spark stage of two
tasks, each with one half of the trials.
"""

import argparse
import heapq
import random
import time
from collections.abc import Iterable

from pyspark.sql import SparkSession

import sparktrain as st
from benchmarks.machine import at_most, show
from benchmarks.session import MASTER, SLOTS, quiet, seconds_of, session, stage
from benchmarks.short_functions import sleep

TARGET = 1.02
"""Limit, as a multiple of the ideal."""
SEED = 7
SHAPE = 1.5
LONGEST = 1 / 3
"""The longest trial, as a share of the whole."""


def durations(trials: int, whole_s: float) -> list[float]:
    """Seconds of each trial."""
    draw = random.Random(SEED)
    drawn = [draw.paretovariate(SHAPE) for _ in range(trials)]
    scale = 0.0
    for _ in range(100):  # what the cap takes from the longest goes to all others
        capped = [min(scale * each, LONGEST * whole_s) for each in drawn]
        scale += (SLOTS * whole_s - sum(capped)) / sum(drawn)
    return capped


def ideal(lengths: Iterable[float]) -> float:
    """When the last trial ends, if each starts in order on the first free slot."""
    free_at = [0.0] * SLOTS
    for length in lengths:
        heapq.heapreplace(free_at, free_at[0] + length)
    return max(free_at)


def on_pool(spark: SparkSession, runs: str, lengths: list[float]) -> float:
    """Seconds with sparktrain, on a warm pool."""
    with st.pool(spark, agents=SLOTS) as pool:
        pool.sweep(sleep, {"seconds": [0.0] * SLOTS}, metric="slept", mode="max", **quiet(runs))
        return seconds_of(lambda: pool.sweep(sleep, {"seconds": lengths}, metric="slept", mode="max", **quiet(runs)))


def on_halves(spark: SparkSession, lengths: list[float]) -> float:
    """Seconds with plain Spark, one half of the trials in each of two tasks."""
    middle = len(lengths) // SLOTS

    def work(half: int) -> dict[str, float]:
        for length in lengths[middle:] if half else lengths[:middle]:
            time.sleep(length)
        return {}

    return seconds_of(lambda: stage(spark, SLOTS, work))


def rows(trials: int, seconds: float) -> list[tuple[str, str, str, str]]:
    """The rows of this benchmark's table: name, seconds, their ratio to the ideal, target."""
    lengths = durations(trials, seconds)
    best = ideal(lengths)
    with session() as (spark, runs):
        ours = on_pool(spark, runs, lengths)
        rival = on_halves(spark, lengths)
    return [
        ("pool.sweep(), warm", f"{ours:.2f}", f"{ours / best:.3f}", at_most(ours / best, TARGET)),
        ("rival: plain Spark, two static halves", f"{rival:.2f}", f"{rival / best:.3f}", ""),
        ("ideal", f"{best:.2f}", "1", ""),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=40)
    parser.add_argument("--seconds", type=float, default=40.0)
    given = parser.parse_args()
    lengths = durations(given.trials, given.seconds)
    title = (
        f"{given.trials} trials of {min(lengths):.2f} to {max(lengths):.2f} s, {sum(lengths):.1f} s in all, on {MASTER}"
    )
    show(title, ("", "seconds", "of the ideal", "target"), rows(given.trials, given.seconds))


if __name__ == "__main__":
    main()
