"""Kills drivers at seeded points of sweeps and gangs: no result may be lost or duplicated.

    python -m benchmarks.driver_death [--kills 20] [--each 10] [--trials 50] [--seed 0]

A kill hits a driver's Python, its JVM, or both; the next driver resumes the run, and is killed too. Each sweep loses
`--each` drivers, at numbers of batches of its journal; each gang of two loses four, at training steps.
"""

import argparse
import random
import time
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.machine import at_most, show
from sparktrain.state.records import TrialConcluded
from tests.support import drill
from tests.support.local_spark import LOCAL_CLUSTER
from tests.support.mortal import Mortal, generations

ENDS = ("python", "jvm", "both")
GANG_KILLS = 4
"""Kills in one run of a gang."""
BATCHES_OF_A_TRIAL = 2
INTERVALS = 2
"""Checkpoint intervals that a kill may lose, because checkpoints are asynchronous."""


class Tally:
    """The counts of all runs."""

    def __init__(self) -> None:
        self.ends: Counter[str] = Counter()
        self.lost = self.twice = self.again = self.wrong = 0
        self.steps_lost = [0]


def kill_sweep(folder: Path, kills: int, trials: int, rng: random.Random, tally: Tally) -> None:
    """Run one sweep, and kill its driver `kills` times."""
    (folder / "trials").write_text(str(trials))
    each = max(2, trials * BATCHES_OF_A_TRIAL // (kills + 1))
    started: dict[int, list[int]] = {}
    durable: Counter[int] = Counter()
    for _ in range(kills):
        end = rng.choice(ENDS)
        driver = Mortal("sweep", folder).start()
        try:
            driver.wait_batches(rng.randint(2, each))
            driver.strike(end)
            driver.wait_end()
        finally:
            driver.close()
        before, durable = durable, results(driver)
        after = generations(folder, "start")
        tally.again += sum(after[x] != started[x] for x in before)
        tally.lost += len(before.keys() - durable.keys())
        started = after
        tally.ends[f"sweep, {end}"] += 1
    result = finish(Mortal("resume", folder))
    after = generations(folder, "start")
    tally.again += sum(after[x] != started[x] for x in durable)
    tally.wrong += [each[:3] for each in result] != [[x, "succeeded", {"y": float(x * x)}] for x in range(trials)]
    ended = results(driver)
    tally.lost += trials - len(ended)
    tally.twice += sum(number > 1 for number in ended.values())


def kill_gang(folder: Path, kills: int, rng: random.Random, tally: Tally) -> None:
    """Run one gang, and kill its driver `kills` times."""
    step = 0
    for generation in range(1, kills + 1):
        step, end = rng.randint(step + 1, step + (drill.STEPS - step) // 2), rng.choice(ENDS)
        driver = Mortal("gang", folder).start()
        try:
            driver.wait(lambda at=step, now=generation: reached(folder, now) >= at, f"step {step}")
            driver.strike(end)
            driver.wait_end()
        finally:
            driver.close()
        tally.ends[f"gang, {end}"] += 1
    result = finish(Mortal("gang", folder))
    tally.wrong += result["metrics"] != {"value": drill.expected()} or len(result["restarts"]) != kills
    resumed_steps = drill.notes(folder, "from")
    for generation in range(1, kills + 1):
        [at] = resumed_steps[generation + 1, 0]
        tally.steps_lost.append(reached(folder, generation) - at)


def reached(folder: Path, generation: int) -> int:
    """The newest step of the chief of that generation."""
    return max(drill.notes(folder, "step").get((generation, 0), [0]))


def finish(driver: Mortal) -> list[list[object]]:
    """The result of a driver that is not killed."""
    try:
        return driver.start().result()  # type: ignore[no-any-return]
    finally:
        driver.close()


def results(driver: Mortal) -> Counter[int]:
    """The number of durable results of each trial."""
    return Counter(
        each.trial for each in driver.journal().records if isinstance(each, TrialConcluded) and each.status.observed
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20, help="kills of drivers of sweeps, and as many of gangs")
    parser.add_argument("--each", type=int, default=10, help="kills in one sweep")
    parser.add_argument("--trials", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    rng, tally, started_at = random.Random(given.seed), Tally(), time.perf_counter()
    for _ in range(given.kills // given.each):
        with TemporaryDirectory(prefix="sparktrain-benchmark-") as folder:
            kill_sweep(Path(folder), given.each, given.trials, rng, tally)
    for _ in range(given.kills // GANG_KILLS):
        with TemporaryDirectory(prefix="sparktrain-benchmark-") as folder:
            kill_gang(Path(folder), GANG_KILLS, rng, tally)
    limit = INTERVALS * drill.EVERY
    rows = [
        ("drivers killed", "; ".join(f"{count} {end}" for end, count in sorted(tally.ends.items())), ""),
        ("results that were lost", str(tally.lost), at_most(tally.lost, 0)),
        ("trials with two results", str(tally.twice), at_most(tally.twice, 0)),
        ("trials that were repeated after their end", str(tally.again), at_most(tally.again, 0)),
        ("runs with a wrong result", str(tally.wrong), at_most(tally.wrong, 0)),
        ("most steps lost by one kill", str(max(tally.steps_lost)), at_most(max(tally.steps_lost), limit)),
        ("total time", f"{time.perf_counter() - started_at:.0f} s", ""),
    ]
    show(f"Drivers killed at seeded points, sweeps of {given.trials} trials, {LOCAL_CLUSTER}", ("", "", "target"), rows)


if __name__ == "__main__":
    main()
