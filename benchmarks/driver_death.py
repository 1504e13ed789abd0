"""Drivers that are killed again and again, of a sweep of 50 trials and of gangs, and how soon training goes on.

    python -m benchmarks.driver_death [--kills 20] [--seed 1]

Killed by SIGKILL at seeded points: Python alone, its JVM alone, or both. The next driver starts at once, with the same
call. In the end each trial must have exactly one result, no trial may have run again after its result was written down,
and a gang must have the result that it has when nothing disturbs it. About eight minutes for twice 20 kills.
"""

import argparse
import random
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from benchmarks.machine import at_most, show
from sparktrain.clock import SystemClock
from sparktrain.state.records import TrialConcluded
from sparktrain.testing import drill
from sparktrain.testing.mortal import Mortal, generations

TARGET_S = 20.0
TRIALS = 50
ENDS = ("python", "jvm", "both")
MOST_LOST = 2 * drill.EVERY
"""Steps that an asynchronous checkpoint may lose."""


@dataclass
class Told:
    """What became of the kills."""

    ends: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    delays: list[float] = field(default_factory=list)
    """Seconds from each kill until the next driver's trials train."""
    lost: list[int] = field(default_factory=list)
    """Steps of a gang that were done again, for each kill."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    rng, sweep, gangs = random.Random(given.seed), Told(), Told()
    with TemporaryDirectory(prefix="sparktrain-benchmark-") as name:
        kill_sweep(Path(name), given.kills, rng, sweep)
    while sum(gangs.ends.values()) < given.kills:
        with TemporaryDirectory(prefix="sparktrain-benchmark-") as name:
            kill_gang(Path(name), given.kills - sum(gangs.ends.values()), rng, gangs)
    rows = [*_rows("sweep", sweep), *_rows("gangs", gangs)]
    most = max(gangs.lost, default=0)
    rows.append(("gangs: most steps lost by one kill", str(most), at_most(most, MOST_LOST)))
    for each in (*sweep.wrong, *gangs.wrong):
        print(each)
    show(f"Drivers that are killed, {TRIALS} trials, seed {given.seed}", ("", "", "target"), rows)


def kill_sweep(folder: Path, kills: int, rng: random.Random, told: Told) -> None:
    """Run the sweep under one driver after the other, until it has ended well under one that nobody kills."""
    (folder / "trials").write_text(str(TRIALS))
    finished: Counter[int] = Counter()
    runs: dict[int, list[int]] = {}
    struck: list[float] = []
    for number in range(kills):
        driver = Mortal("sweep", folder).start()
        try:
            driver.wait_batches(rng.randint(2, 4))
            struck.append(_strike(driver, ENDS[number % len(ENDS)], told))
        finally:
            driver.close()
        _check_again(finished, runs, generations(folder, "begin"), told)
        finished, runs = _results(driver), generations(folder, "begin")
    last = Mortal("sweep", folder).start()
    try:
        results = last.result()
    finally:
        last.close()
    _check_again(finished, runs, generations(folder, "begin"), told)
    if _results(last) != Counter(range(TRIALS)) or len(results) != TRIALS:
        told.wrong.append(f"results of trials: {sorted(_results(last).items())}")
    told.delays += _delays(folder, "begin-*", struck)


def _results(driver: Mortal) -> Counter[int]:
    """How many durable results each trial has."""
    records = driver.journal().records
    return Counter(each.trial for each in records if isinstance(each, TrialConcluded) and each.status.observed)


def _check_again(finished: Counter[int], before: dict[int, list[int]], after: dict[int, list[int]], told: Told) -> None:
    again = [x for x in finished if after.get(x) != before.get(x)]
    if again:
        told.wrong.append(f"trials {again} ran again after their end")


def kill_gang(folder: Path, kills: int, rng: random.Random, told: Told) -> None:
    """Run a gang under one driver after the other; at most so many are killed, fewer when it ends before."""
    struck: list[float] = []
    step = 0
    for generation in range(1, kills + 1):
        step = rng.randint(step + 2, step + 2 * drill.EVERY)
        if step >= drill.STEPS:
            break
        driver = Mortal("gang", folder).start()
        try:
            driver.wait(lambda at=step, now=generation: at in _steps(folder, now), f"step {step}")
            struck.append(_strike(driver, ENDS[generation % len(ENDS)], told))
        finally:
            driver.close()
    last = Mortal("gang", folder).start()
    try:
        value = last.result()["metrics"]["value"]
    finally:
        last.close()
    if value != drill.expected():
        told.wrong.append(f"a gang has {value}, and {drill.expected()} when nothing disturbs it")
    began = drill.notes(folder, "from")
    for generation in range(1, len(struck) + 1):
        told.lost.append(max(_steps(folder, generation)) - began[generation + 1, 0][0])
    told.delays += _delays(folder, "*.0.step-*", struck)


def _steps(folder: Path, generation: int) -> list[int]:
    return drill.notes(folder, "step").get((generation, 0), [])


def _strike(driver: Mortal, end: str, told: Told) -> float:
    """Kill the driver; when that was."""
    everything = driver.strike(end)
    at = SystemClock().wall()
    driver.wait_end()
    everything.wait_gone(30.0)
    told.ends[end] += 1
    return at


def _delays(folder: Path, marks: str, struck: list[float]) -> list[float]:
    """Seconds from each kill to the first mark that a process of the next driver has left."""
    times = sorted(float(path.read_text()) for path in folder.glob(marks))
    return [next(time for time in times if time > at + 1.0) - at for at in struck]


def _rows(what: str, told: Told) -> list[tuple[str, str, str]]:
    kills = ", ".join(f"{count} {end}" for end, count in sorted(told.ends.items()))
    middle = median(told.delays)
    return [
        (f"{what}: kills", kills, ""),
        (f"{what}: anything wrong", str(len(told.wrong)), at_most(len(told.wrong), 0)),
        (
            f"{what}: from a kill to training again, median and most",
            f"{middle:.1f} s, {max(told.delays):.1f} s",
            at_most(max(told.delays), TARGET_S, " s"),
        ),
    ]


if __name__ == "__main__":
    main()
