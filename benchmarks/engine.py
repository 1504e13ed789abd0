"""The cost of the engine itself, in one run: a fresh process for each trial, its order, its journal and its progress.

    python -m benchmarks.engine [--calls 3] [--trials 100000]

It puts together what `isolation`, `heavy_tail` and `short_trials` measure, each with its rival.
"""

import argparse

from benchmarks import heavy_tail, isolation, short_trials
from benchmarks.machine import show

ISOLATION_TRIALS = 64
TAIL_TRIALS, TAIL_S = 40, 40.0
AGENTS = 8
"""Simulated agents of the short trials."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=3)
    parser.add_argument("--trials", type=int, default=short_trials.TRIALS)
    given = parser.parse_args()
    rows: list[tuple[str, ...]] = []
    for name, median, each, target in isolation.rows(ISOLATION_TRIALS, given.calls):
        rows.append((f"overhead of a trial, {name}", f"{median} ms ({each})", target))
    for name, _, ratio, target in heavy_tail.rows(TAIL_TRIALS, TAIL_S):
        rows.append((f"heavy tail, {name}", f"{ratio} of the ideal", target))
    rows += short_trials.rows(given.trials, AGENTS)
    show(f"The engine: {ISOLATION_TRIALS}, {TAIL_TRIALS} and {given.trials:,} trials", ("", "measured", "target"), rows)


if __name__ == "__main__":
    main()
