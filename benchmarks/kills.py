"""A hundred seeded kills of members, zygotes, agents and executors: each run ends with the exact result.

    python -m benchmarks.kills [--kills 100] [--each 5] [--seed 0]

Each run trains two members with an exact result, and loses a process in each of its first generations.
"""

import argparse
import time
from collections import Counter
from pathlib import Path
from statistics import median

import msgspec

import sparktrain as st
from benchmarks.machine import at_most, show
from benchmarks.session import MASTER, quiet, session
from tests.support import drill

INTERVALS = 2
"""Checkpoint intervals that a kill may lose, because checkpoints are asynchronous."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--each", type=int, default=5, help="kills in one run")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    victims: Counter[str] = Counter()
    wrong, lost, seconds = 0, [0], []
    started_at = time.perf_counter()
    with session() as (spark, runs):
        for number in range(given.kills // given.each):
            strikes = drill.plan(given.seed + number, given.each, size=2)
            folder = Path(runs, f"notes-{number}")
            folder.mkdir(parents=True)
            params = {"folder": str(folder), "strikes": [msgspec.to_builtins(each) for each in strikes]}
            result = st.run(
                drill.train, params, workers=2, backend="none", preload=["numpy"], max_retries=given.each, spark=spark,
                **quiet(runs),
            )  # fmt: skip
            wrong += result.metrics != {"value": drill.expected()} or len(result.restarts) != given.each
            lost += steps_lost(folder, given.each)
            seconds += [each.seconds for each in result.restarts]
            victims.update(each.victim for each in strikes)
    limit = INTERVALS * drill.EVERY
    rows = [
        ("kills", ", ".join(f"{count} {victim}" for victim, count in sorted(victims.items())), ""),
        ("runs with a wrong result or another number of restarts", str(wrong), at_most(wrong, 0)),
        ("most steps lost by one kill", str(max(lost)), at_most(max(lost), limit)),
        ("from a failure to training again, median", f"{median(seconds):.2f} s", ""),
        ("total time", f"{time.perf_counter() - started_at:.0f} s", ""),
    ]
    show(f"{given.kills} seeded kills, a checkpoint every {drill.EVERY} steps, {MASTER}", ("", "", "target"), rows)


def steps_lost(folder: Path, kills: int) -> list[int]:
    """Steps lost by each kill: from the chief's step to the checkpoint from which the next generation started."""
    resumed_steps, steps = drill.notes(folder, "from"), drill.notes(folder, "step")
    found = []
    for generation in range(1, kills + 1):
        [at] = resumed_steps[generation + 1, 0]
        found.append(max(steps.get((generation, 0), resumed_steps[generation, 0])) - at)
    return found


if __name__ == "__main__":
    main()
