"""A coordinator in the cluster: what it costs short trials, and what its loss costs.

    python -m benchmarks.cluster_coordinator [--trials 200] [--kills 20] [--seed 0]

Agents are processes of this machine. The overhead is the duration of a sweep of trials of 50 ms with the coordinator
beside an agent, divided by that with the coordinator in the driver; the start of agents is no part of the first. A kill
ends the agent that has the coordinator, as the loss of its executor does, at a seeded time; each sweep of 12 trials
loses it twice.
"""

import argparse
import random
import threading
from collections import Counter
from tempfile import TemporaryDirectory
from typing import Any

import sparktrain as st
from benchmarks.machine import at_most, show
from sparktrain.clock import SystemClock, pause
from sparktrain.driver.agent_sources import OwnAgents
from sparktrain.driver.engines.local_engine import LocalEngine
from sparktrain.driver.launch import launch
from sparktrain.driver.options import SweepOptions
from sparktrain.driver.prepare.checked_call import compose
from sparktrain.results.sweep_result import SweepResult
from sparktrain.rundir.journal.reader import read
from sparktrain.rundir.layout import RunLayout
from sparktrain.state.records import TrialConcluded
from sparktrain.store.localfs import LocalStore
from tests.support.process_cluster import ProcessCluster, coordinators

OVERHEAD_TARGET = 1.1
TAKEOVER_TARGET_S = 10.0
TRIALS_OF_A_KILLED_SWEEP = 12
KILLS_OF_A_SWEEP = 2
LIMIT_S = 120.0


def sleeps(x: int) -> dict[str, float]:
    """A trial of 50 ms."""
    import time

    time.sleep(0.05)
    return {"y": float(x)}


def sleeps_longer(x: int) -> dict[str, float]:
    """A trial that a kill may hit."""
    import time

    time.sleep(1.0)
    return {"y": float(x)}


def swept(function: Any, trials: int, folder: str, place: str) -> SweepResult:
    """One sweep, with its coordinator in the driver or in the cluster."""
    options = SweepOptions(
        metric="y", mode="max", backend="none", name="run", progress=False, preload=[], dir=folder, seed=0,
        coordinator="cluster" if place == "cluster" else None,
    )  # fmt: skip
    machine = st.local(slots=2)
    engine = ProcessCluster(machine) if place == "cluster" else LocalEngine(machine)
    return launch(compose(function, {"x": list(range(trials))}, options), OwnAgents(engine))


def overhead(trials: int, rounds: int = 3) -> float:
    """The least ratio of the durations of several pairs: other processes only add to both."""
    ratios = []
    for _ in range(rounds):
        seconds = {}
        for place in ("driver", "cluster"):
            with TemporaryDirectory() as folder:
                result = swept(sleeps, trials, folder, place)
                starts = [trial.seconds for trial in result.trials]
                assert len(starts) == trials
                seconds[place] = result.seconds
        ratios.append(seconds["cluster"] / seconds["driver"])
    return min(ratios)


class Killer(threading.Thread):
    """Kills the agents that have the coordinator, one after the other, and notes how long each takeover takes."""

    def __init__(self, folder: str, rng: random.Random) -> None:
        super().__init__(daemon=True)
        self._store = LocalStore(folder)
        self._rng = rng
        self.takeovers: list[float] = []

    def run(self) -> None:
        """Kill as often as the sweep lasts."""
        clock = SystemClock()
        for term in range(1, KILLS_OF_A_SWEEP + 1):
            if not self._wait(f"batch-{term:04d}-", 3):
                return
            pause(self._rng.uniform(0.0, 1.5))
            if not (running := coordinators()) or (agent := running[0].parent()) is None:
                return
            killed_at = clock.now()
            agent.kill()
            # The first batch of the successor beyond its own start holds a message that it has handled.
            if not self._wait(f"batch-{term + 1:04d}-", 2):
                return
            self.takeovers.append(clock.now() - killed_at)

    def _wait(self, prefix: str, count: int) -> bool:
        until = SystemClock().now() + LIMIT_S
        while SystemClock().now() < until:
            names = [path.rpartition("/")[2] for path in self._store.list(RunLayout("run").path + "/journal")]
            if sum(name.startswith(prefix) for name in names) >= count:
                return True
            pause(0.02)
        return False


def kill_all(kills: int, seed: int) -> tuple[list[float], int]:
    """How long takeovers take, and how many trials have no result, or a wrong one."""
    rng = random.Random(seed)
    takeovers: list[float] = []
    wrong = 0
    while len(takeovers) < kills:
        with TemporaryDirectory() as folder:
            killer = Killer(folder, rng)
            killer.start()
            result = swept(sleeps_longer, TRIALS_OF_A_KILLED_SWEEP, folder, "cluster")
            killer.join(LIMIT_S)
            takeovers += killer.takeovers
            values = [trial.metrics.get("y") for trial in result.trials]
            wrong += sum(value != float(x) for x, value in enumerate(values))
            wrong += TRIALS_OF_A_KILLED_SWEEP - len(values)
            records = read(LocalStore(folder), RunLayout("run").journal).records
            ends = Counter(
                record.trial for record in records if isinstance(record, TrialConcluded) and record.status.observed
            )
            wrong += sum(count > 1 for count in ends.values())
    return takeovers, wrong


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    ratio = overhead(given.trials)
    takeovers, wrong = kill_all(given.kills, given.seed)
    slowest = max(takeovers)
    takeover = f"{len(takeovers)} coordinators lost with their agents: to the next message handled, at most"
    rows = [
        ("duration of a sweep of 50 ms trials, of the driver's", f"{ratio:.2f}", at_most(ratio, OVERHEAD_TARGET)),
        (takeover, f"{slowest:.1f} s", at_most(slowest, TAKEOVER_TARGET_S, " s")),
        ("results lost, doubled or wrong", str(wrong), at_most(wrong, 0)),
    ]
    show("A coordinator beside an agent, two agents of this machine", ("", "", "target"), rows)


if __name__ == "__main__":
    main()
