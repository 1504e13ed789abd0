"""Eight isolated trials that each build a small Keras model and fit one step, from call to result.

    python -m benchmarks.keras_trials [--trials 8] [--calls 3]

The rival is a plain Spark stage with a new Python process for each task, in which the same function imports TensorFlow.
All of them run on warm sessions, and after one call that does not count.
"""

import argparse
import os
from collections.abc import Callable
from statistics import median

import sparktrain as st
from benchmarks.machine import at_most, show
from benchmarks.session import FRESH_WORKERS, MASTER, SLOTS, quiet, seconds_of, session, stage

POOL_TARGET = 0.3
SWEEP_TARGET = 0.6
"""Limit, as a share of the rival's time."""


def fit_once(trial: int) -> dict[str, float]:
    """One step of a small network."""
    import keras
    import numpy as np

    inputs = np.random.default_rng(trial).normal(size=(32, 16))
    model = keras.Sequential([keras.Input((16,)), keras.layers.Dense(32, "relu"), keras.layers.Dense(1)])
    model.compile(optimizer="sgd", loss="mse")
    history = model.fit(inputs, inputs.sum(axis=1), batch_size=32, epochs=1, verbose=0)
    return {"loss": float(history.history["loss"][0]), "pid": os.getpid()}


def on_sparktrain(sweep: Callable[..., st.SweepResult], runs: str, trials: int, calls: int) -> list[float]:
    """Seconds of each call of `sweep`."""

    def call() -> None:
        result = sweep(fit_once, {"trial": list(range(trials))}, metric="loss", mode="min", **quiet(runs))
        assert len({trial.metrics["pid"] for trial in result.trials}) == trials

    return [seconds_of(call) for _ in range(calls + 1)][1:]


def on_stage(trials: int, calls: int) -> list[float]:
    """Seconds of each stage of plain Spark."""

    def call() -> None:
        assert len({result["pid"] for result in stage(spark, trials, fit_once)}) == trials

    with session(FRESH_WORKERS) as (spark, _):
        return [seconds_of(call) for _ in range(calls + 1)][1:]


def row(name: str, values: list[float], rival: float, target: float | None = None) -> tuple[str, ...]:
    share = median(values) / rival
    seconds = "  ".join(f"{value:.2f}" for value in values)
    return name, f"{median(values):.2f}", seconds, f"{share:.2f}", at_most(share, target) if target else ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=8)
    parser.add_argument("--calls", type=int, default=3)
    given = parser.parse_args()
    with session() as (spark, runs):
        alone = on_sparktrain(st.sweep, runs, given.trials, given.calls)
        with st.pool(spark, agents=SLOTS) as pool:
            warm = on_sparktrain(pool.sweep, runs, given.trials, given.calls)
    stages = on_stage(given.trials, given.calls)
    rival = median(stages)
    rows = [
        row("pool.sweep(), warm", warm, rival, POOL_TARGET),
        row("sweep(), agents of its own", alone, rival, SWEEP_TARGET),
        row("rival: plain Spark, a process per task", stages, rival),
    ]
    title = f"{given.trials} trials of one step of Keras on {MASTER}, from call to result"
    show(title, ("seconds", "median", "each call", "of the rival", "target"), rows)


if __name__ == "__main__":
    main()
