"""The kinds of rounds of a soak: what runs, which faults it meets, and what must have come out of it."""

import random
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

import sparktrain as st
from benchmarks import healing_kills
from benchmarks.soak import training
from benchmarks.soak.drivers import Driver, jump_until
from benchmarks.soak.fleet import SLOTS, Fleet
from benchmarks.soak.tally import Tally, check
from benchmarks.soak.training import TRIALS
from sparktrain.base.clock import pause
from tests.support import drill
from tests.support.processes import wait_until
from tests.support.wall_clock import WallClock

VICTIMS = ("member", "zygote", "agent")
ENDS_S = 60.0
MOST_S = 180.0
"""How long a round may last."""
RING_STEPS = 36
"""Steps of `learn` in a gang of two."""
HEALING_STEPS = 450
"""Steps of a fit that heals."""
MOST_LOST = 3
"""Steps between the newest memory checkpoint and a kill."""
ROUNDING = 1e-6
SERVED_EPOCHS = 30


@dataclass
class Round:
    """What one round has."""

    fleet: Fleet
    folder: Path
    rng: random.Random
    tally: Tally
    runs: str = field(init=False)

    def __post_init__(self) -> None:
        self.runs = str(self.folder / "runs")

    def ended(self, x: int) -> int:
        """How many times trial `x` has run to its end."""
        path = self.folder / f"{x}-ended"
        return len(path.read_text().splitlines()) if path.exists() else 0

    def wait_trials(self, count: int, driver: Driver | None = None) -> None:
        """Wait until so many trials have run to their ends, or the driver has ended."""
        wait_until(
            lambda: sum(map(bool, map(self.ended, range(TRIALS)))) >= count or (driver and driver.over),
            ENDS_S,
            f"{count} trials have ended",
        )

    def check_trials(self, result: Any, *, may_repeat: frozenset[int] = frozenset()) -> None:
        """Each trial has its one result, and none ran to its end twice, but for those of `may_repeat`."""
        found = [(each.status, each.metrics) for each in result.trials]
        check(found == [("succeeded", {"y": float(x * x)}) for x in range(TRIALS)], f"results {found}")
        ends = {x: self.ended(x) for x in range(TRIALS)}
        wrong = {x: count for x, count in ends.items() if count < 1 or (count > 1 and x not in may_repeat)}
        check(not wrong, f"trials ran to their ends so many times: {wrong}")
        self.tally.trials += TRIALS

    def recorded(self) -> frozenset[int]:
        """The trials that have a result in the journal."""
        stored = st.load(f"{self.runs}/{training.NAME}")
        return frozenset(each.id for each in stored.trials if each.status == "succeeded")


# ---- processes


def gang(given: Round) -> None:
    """A gang of two that loses a process in each of its first generations."""
    _drilled(given, given.fleet.pool, VICTIMS)


def executors(given: Round) -> None:
    """The same on executors of Spark, which are killed too."""
    _drilled(given, given.fleet.spark_pool, drill.VICTIMS)


def _drilled(given: Round, pool: st.Pool, victims: tuple[str, ...]) -> None:
    strikes = drill.plan(given.rng.randrange(2**32), given.rng.randint(2, 6), 2, victims)
    params = {"folder": str(given.folder), "strikes": [msgspec.to_builtins(each) for each in strikes]}
    options = {"backend": "none", "max_retries": len(strikes), "dir": given.runs, "progress": False}
    result = pool.run(drill.train, params, workers=2, preload=["numpy"], **options)
    check(result.metrics == {"value": drill.expected()}, f"the gang has {result.metrics}")
    # A generation that resumes beyond the step of its kill loses nothing.
    struck = {int(path.name.split(".")[0]) for path in given.folder.glob("*.victim-*")}
    causes = [f"{each.kind}: {each.cause}" for each in result.restarts]
    check(len(causes) == len(struck), f"{len(causes)} restarts after {len(struck)} kills: {causes}")
    given.tally.kills.update(each.victim for each in strikes if each.generation in struck)
    given.tally.restarts += len(result.restarts)


def ring(given: Round) -> None:
    """A fit on TensorFlow's ring that continues from a memory checkpoint; there is none in the store."""
    kill_at, victim = given.rng.randint(4, RING_STEPS - 4), given.rng.choice(("member", "agent"))
    expected = given.fleet.undisturbed
    result, weights = training.ring(given.fleet.pool, given.folder, kill_at=kill_at, victim=victim)
    [restart] = result.restarts
    lost = restart.steps_lost
    check(lost is not None and lost <= MOST_LOST, f"{lost} steps lost by a kill of a {victim} after step {kill_at}")
    worst = max(float(np.abs(one - other).max()) for one, other in zip(expected, weights, strict=True))
    check(worst <= ROUNDING, f"weights differ by {worst} from those of a ring that loses no member")
    given.tally.kills[victim] += 1
    given.tally.restarts += 1


def healing(given: Round) -> None:
    """A fit on Horovod's ring that loses members at random moments: the others keep their processes."""
    size = given.rng.choice((2, SLOTS))
    kills = given.rng.randint(1, 3)
    folder = given.folder / "healing"
    seed = given.rng.randrange(2**32)
    result, killer = healing_kills.run(given.fleet.pool, folder, kills, size, seed, HEALING_STEPS)
    ends = healing_kills.digests(folder, size)
    check(
        ends == given.fleet.undisturbed_ends(size, HEALING_STEPS), f"members end with other bits after {killer.kills}"
    )
    lost = {restart.cause: restart.steps_lost for restart in result.restarts if restart.healed and restart.steps_lost}
    check(not lost, f"steps were repeated by rings that healed: {lost}")
    given.tally.kills["member of a ring that heals"] += killer.kills.total()
    given.tally.restarts += len(result.restarts)
    given.tally.healed += sum(restart.healed for restart in result.restarts)


def served(given: Round) -> None:
    """A gang that loses a worker or a parameter server, which restarts alone while the others train."""
    from tests.training import served_programs  # imports Keras

    whom, mode = given.rng.choice(("worker", "ps")), given.rng.choice(("async", "sync", "staleness-aware"))
    result = given.fleet.pool.run(
        served_programs.lose, {"folder": str(given.folder), "whom": whom}, workers=2, ps=1, ps_mode=mode,
        backend="parameter-server", dir=given.runs, progress=False, preload=["tensorflow", "keras"],
    )  # fmt: skip
    restarts = [(each.rank, each.alone) for each in result.restarts]
    check(restarts == [({"worker": 1, "ps": 2}[whom], True)], f"restarts {restarts} after the kill of a {whom}")
    check(result.metrics["epochs"] == SERVED_EPOCHS, f"{result.metrics['epochs']} epochs of the chief")
    losses = np.load(given.folder / "rank-0.npz")["losses"]
    check(losses[-1] < losses[0] / 2, f"losses from {losses[0]} to {losses[-1]}")
    given.tally.kills[whom] += 1
    given.tally.restarts += 1


def sweep(given: Round) -> None:
    """A sweep with trials that kill their process, zygote or agent."""
    victims = {str(x): given.rng.choice(VICTIMS) for x in given.rng.sample(range(TRIALS), given.rng.randint(1, 6))}
    result = training.sweep(given.fleet.pool, given.folder, given.runs, victims)
    crashed = {int(x) for x, victim in victims.items() if victim == "member"}
    wanted = {x: ("failed", None) if x in crashed else ("succeeded", {"y": float(x * x)}) for x in range(TRIALS)}
    found = {each.id: (each.status, each.metrics or None) for each in result.trials}
    check(found == wanted, f"results {found}; killed by themselves: {victims}")
    wrong = {x: given.ended(x) for x in range(TRIALS) if given.ended(x) != int(x not in crashed)}
    check(not wrong, f"trials ran to their ends so many times: {wrong}")
    given.tally.kills.update(victims.values())
    given.tally.trials += TRIALS
    given.tally.restarts += sum(len(each.restarts) for each in result.trials)


# ---- stores


def full_disk(given: Round) -> None:
    """A sweep with a store that is full for some seconds."""
    runs = Path(given.runs)
    runs.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "soak", str(runs)], check=True, timeout=30)

    def fill() -> None:
        filling = runs / "filling"
        with filling.open("wb", buffering=0) as file, suppress(OSError):
            while True:
                file.write(bytes(2**16))
        pause(given.rng.uniform(0.5, 3.0))
        filling.unlink()

    try:
        given.check_trials(_beside(given, given.runs, fill))
    finally:
        subprocess.run(["umount", "--lazy", str(runs)], check=True, timeout=30)
    given.tally.faults["full disk"] += 1


def store_outage(given: Round) -> None:
    """A sweep in HDFS: the NameNode does not answer for some seconds, or is killed and restarts."""
    hdfs, dies = given.fleet.hdfs, given.rng.random() < 0.5

    def fail() -> None:
        if dies:
            hdfs.namenode.kill9()
            hdfs.namenode.start()
            return
        hdfs.namenode.pause()
        pause(given.rng.uniform(1.0, 8.0))
        hdfs.namenode.wake()

    given.check_trials(_beside(given, f"{hdfs.url}/soak/{given.folder.name}", fail))
    given.tally.kills["NameNode"] += dies
    given.tally.faults["NameNode paused"] += not dies


def _beside(given: Round, runs: str, fault: Callable[[], None]) -> Any:
    """The result of a sweep, with `fault` once some trials have ended."""
    with ThreadPoolExecutor(1) as threads:
        running = threads.submit(training.sweep, given.fleet.pool, given.folder, runs, {})
        given.wait_trials(given.rng.randint(1, TRIALS // 2))
        fault()
        return running.result(MOST_S)


# ---- drivers


def lost_driver(given: Round) -> None:
    """A sweep that loses its driver with SIGKILL; the same call resumes it."""
    with Driver(given.folder, given.runs) as driver:
        given.wait_trials(given.rng.randint(1, TRIALS - 1), driver)
        driver.process.kill()
    recorded = given.recorded()
    result = training.sweep(given.fleet.pool, given.folder, given.runs, {})
    given.check_trials(result, may_repeat=frozenset(range(TRIALS)) - recorded)
    given.tally.kills["driver"] += 1


def two_drivers(given: Round) -> None:
    """A second driver is refused while the first works."""
    with Driver(given.folder, given.runs) as driver:
        given.wait_trials(1, driver)
        (given.folder / "hold").touch()
        with pytest.raises(st.SparktrainError, match="is in use") as refused:
            training.sweep(given.fleet.pool, given.folder, given.runs, {})
        (given.folder / "hold").unlink()
        check(driver.process.wait(ENDS_S) == 0, f"the first driver failed: {driver.printed()}")
    given.check_trials(st.load(f"{given.runs}/{training.NAME}"))
    given.tally.faults[f"second driver ({type(refused.value).__name__})"] += 1


def deposed_driver(given: Round) -> None:
    """A second driver takes over while the first is stopped; the first one ends when it wakes up."""
    with Driver(given.folder, given.runs) as driver:
        given.wait_trials(given.rng.randint(1, TRIALS // 2), driver)
        (given.folder / "hold").touch()
        driver.stop()
        recorded = given.recorded()
        with ThreadPoolExecutor(1) as threads:
            running = threads.submit(training.sweep, given.fleet.pool, given.folder, given.runs, {})
            (given.folder / "hold").unlink()
            result = running.result(MOST_S)
        driver.wake()
        check(driver.process.wait(ENDS_S) != 0, "the first driver did not notice that it was deposed")
        check("DeposedError" in driver.printed(), f"the first driver ended otherwise: {driver.printed()}")
    given.check_trials(result, may_repeat=frozenset(range(TRIALS)) - recorded)
    stored = st.load(f"{given.runs}/{training.NAME}")
    check([each.metrics for each in stored.trials] == [each.metrics for each in result.trials], "results have changed")
    given.tally.faults["deposed driver"] += 1


def jumping_clocks(given: Round) -> None:
    """A sweep with a wall clock that jumps, for the driver, its agents and its members, by up to an hour."""
    clock = WallClock(given.folder)
    with Driver(given.folder, given.runs, clock.environment) as driver:
        jumps = jump_until(clock, given.rng, lambda: driver.over, MOST_S)
        check(driver.process.poll() == 0, f"the driver ended with {driver.process.poll()}: {driver.printed()}")
    given.check_trials(st.load(f"{given.runs}/{training.NAME}"))
    given.tally.faults["jump of the clock"] += jumps


KINDS: dict[str, tuple[Callable[[Round], None], int]] = {
    "gang": (gang, 8),
    "executors": (executors, 3),
    "ring": (ring, 4),
    "healing": (healing, 4),
    "served": (served, 2),
    "sweep": (sweep, 6),
    "full-disk": (full_disk, 2),
    "store-outage": (store_outage, 1),
    "lost-driver": (lost_driver, 3),
    "two-drivers": (two_drivers, 1),
    "deposed-driver": (deposed_driver, 1),
    "clock": (jumping_clocks, 1),
}
"""The kinds with their weights."""
