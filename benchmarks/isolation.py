"""The cost of a fresh process per trial: 64 trials, of 50 ms and empty, on two warm agents with TensorFlow and Keras.

And of 50 ms with scikit-learn, with JAX, and with torch where it is installed.

    python -m benchmarks.isolation [--trials 64] [--calls 3] [--libraries]

The overhead is what a call takes longer than the trials' own time on two slots, over the number of trials. One call
before those that count warms up. The row without TensorFlow shows what its memory costs: a fork copies an entry for
each page or huge page of a process, and an exit drops them. The rival runs the same function as tasks of a plain Spark
stage, with a new Python process for each task; the floor does so with two processes for all tasks, which is no
isolation at all. Neither of them loads TensorFlow.
"""

import argparse
from collections.abc import Callable
from importlib.util import find_spec
from statistics import median

import sparktrain as st
from benchmarks.machine import at_most, show
from benchmarks.session import FRESH_WORKERS, MASTER, SLOTS, quiet, seconds_of, session, stage
from benchmarks.short_functions import NAP_S, empty, nap

TARGET_MS = 10.0
EMPTY_TARGET_MS = 8.0
LIBRARIES = {
    "scikit-learn": (("sklearn.ensemble", "sklearn.linear_model"), 12.0),
    "JAX": (("jax",), 15.0),
    "torch": (("torch", "torch._dynamo"), 25.0),
}
"""For each library, what a zygote has for a function that uses it, and the target of a trial, in ms."""


def overheads_ms(call: Callable[[], object], trials: int, calls: int, trial_s: float = NAP_S) -> list[float]:
    """Measurements of each call except the first."""
    seconds = [seconds_of(call) for _ in range(calls + 1)]
    return [1000 * (each - trials * trial_s / SLOTS) / trials for each in seconds[1:]]


def swept(pool: st.Pool, function: Callable[[int], dict[str, float]], trials: int, runs: str) -> None:
    """One sweep of the function: each trial has a process of its own."""
    result = pool.sweep(function, {"trial": list(range(trials))}, metric="pid", mode="max", **quiet(runs))
    assert len({trial.metrics["pid"] for trial in result.trials}) == trials


def with_libraries(trials: int, calls: int) -> dict[str, list[float]]:
    """With sparktrain, on a pool for each library that is installed: of trials that sleep."""
    with session() as (spark, runs):
        overheads = {}
        for name, (modules, _) in LIBRARIES.items():
            if find_spec(modules[0].partition(".")[0]):
                with st.pool(spark, agents=SLOTS, preload=list(modules)) as pool:
                    overheads[name] = overheads_ms(lambda pool=pool: swept(pool, nap, trials, runs), trials, calls)
        return overheads


def on_pool(trials: int, calls: int) -> tuple[list[float], list[float], list[float]]:
    """With sparktrain, on a pool: of trials that sleep, of empty ones, and of empty ones without TensorFlow."""

    def call(pool: st.Pool, function: Callable[[int], dict[str, float]]) -> None:
        swept(pool, function, trials, runs)

    with session() as (spark, runs):
        with st.pool(spark, agents=SLOTS) as pool:
            asleep = overheads_ms(lambda: call(pool, nap), trials, calls)
            idle = overheads_ms(lambda: call(pool, empty), trials, calls, 0.0)
        with st.pool(spark, agents=SLOTS, preload=[]) as bare:
            return asleep, idle, overheads_ms(lambda: call(bare, empty), trials, calls, 0.0)


def on_stage(trials: int, calls: int, fresh: bool) -> list[float]:
    """With plain Spark, in `fresh` or in shared Python processes."""

    def call() -> None:
        assert len({result["pid"] for result in stage(spark, trials, nap)}) == (trials if fresh else SLOTS)

    with session(FRESH_WORKERS if fresh else None) as (spark, _):
        return overheads_ms(call, trials, calls)


def row(name: str, values: list[float], target: str = "") -> tuple[str, ...]:
    return name, f"{median(values):.1f}", "  ".join(f"{value:.1f}" for value in values), target


def rows(trials: int, calls: int) -> list[tuple[str, ...]]:
    """The rows of this benchmark's table: name, median in ms, each call, target."""
    asleep, idle, bare = on_pool(trials, calls)
    return [
        row("pool: a process per trial, TensorFlow loaded", asleep, at_most(median(asleep), TARGET_MS, " ms")),
        row("pool: the same, empty trials", idle, at_most(median(idle), EMPTY_TARGET_MS, " ms")),
        row("pool: empty trials, without TensorFlow", bare),
        *library_rows(trials, calls),
        row("rival: plain Spark, a process per task", on_stage(trials, calls, fresh=True)),
        row("floor: plain Spark, two processes in all", on_stage(trials, calls, fresh=False)),
    ]


def library_rows(trials: int, calls: int) -> list[tuple[str, ...]]:
    """The rows of scikit-learn, JAX and torch."""
    return [
        row(f"pool: a process per trial, {name} loaded", values, at_most(median(values), LIBRARIES[name][1], " ms"))
        for name, values in with_libraries(trials, calls).items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=64)
    parser.add_argument("--calls", type=int, default=3)
    parser.add_argument("--libraries", action="store_true", help="only the rows of scikit-learn, JAX and torch")
    given = parser.parse_args()
    title = f"Overhead of each of {given.trials} trials of {NAP_S * 1000:g} ms on {MASTER}"
    note = "No TensorFlow in the two stages of plain Spark."
    make_rows = library_rows if given.libraries else rows
    show(title, ("ms", "median", "each call", "target"), make_rows(given.trials, given.calls), note)


if __name__ == "__main__":
    main()
