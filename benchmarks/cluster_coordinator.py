"""A coordinator in the cluster: what it costs short trials, and what its loss costs.

    python -m benchmarks.cluster_coordinator [--trials 200] [--kills 20] [--seed 0]
    python -m benchmarks.cluster_coordinator --clients N --on yarn|connect [--at-once 1]

Agents are processes of this machine. The overhead is the duration of a sweep of trials of 50 ms with the coordinator
beside an agent, divided by that with the coordinator in the driver; the start of agents is no part of the first. A kill
ends the agent that has the coordinator, as the loss of its executor does, at a seeded time; each sweep of 12 trials
loses it twice. The trials note their steps: those of the other agent's trial, which trains on meanwhile, must not be
repeated.

With `--clients N` it measures something else: N clients, `--at-once` at a time, submit a sweep from a session on a real
YARN, or from a Spark Connect server on hosts in network namespaces (which needs root), and each is killed 2 s after
`submit` has returned. It counts the runs that end with their result.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import sparktrain as st
from benchmarks.leaving_client import CALLS
from benchmarks.machine import at_least, at_most, show
from sparktrain.base.clock import SystemClock, pause
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
from tests.support.far_cluster import far_cluster
from tests.support.hadoop import Yarn, fast_conf, hdfs, yarn
from tests.support.process_cluster import ProcessCluster, coordinators

OVERHEAD_TARGET = 1.1
TAKEOVER_TARGET_S = 10.0
TRIALS_OF_A_KILLED_SWEEP = 12
KILLS_OF_A_SWEEP = 2
STEPS = 20
"""Steps of a trial of such a sweep."""
LIMIT_S = 120.0
LEAVES_S = 2.0
"""From the return of `submit` to the kill of its client."""
CLIENT_LIMIT_S = 600.0
"""For the session of a client, and for the end of its run."""


def sleeps(x: int) -> dict[str, float]:
    """A trial of 50 ms."""
    import time

    time.sleep(0.05)
    return {"y": float(x)}


def steps(x: int, notes: str) -> dict[str, float]:
    """A trial of a second that a kill may hit: it notes each of its steps, with its process."""
    import os
    import time

    for step in range(STEPS):
        time.sleep(1.0 / STEPS)
        with open(f"{notes}/steps-{x}", "a") as file:
            file.write(f"{os.getpid()} {step}\n")
    return {"y": float(x)}


def swept(function: Any, trials: int, folder: str, place: str, **more: list[Any]) -> SweepResult:
    """One sweep, with its coordinator in the driver or in the cluster."""
    options = SweepOptions(
        metric="y", mode="max", backend="none", name="run", progress=False, preload=[], dir=folder, seed=0,
        coordinator="cluster" if place == "cluster" else None,
    )  # fmt: skip
    machine = st.local(slots=2)
    engine = ProcessCluster(machine) if place == "cluster" else LocalEngine(machine)
    return launch(compose(function, {"x": list(range(trials)), **more}, options), OwnAgents(engine))


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
        self.killed: set[int] = set()
        """The processes that have ended with the agents."""

    def run(self) -> None:
        """Kill as often as the sweep lasts."""
        clock = SystemClock()
        for term in range(1, KILLS_OF_A_SWEEP + 1):
            if not self._wait(f"batch-{term:04d}-", 3):
                return
            pause(self._rng.uniform(0.0, 1.5))
            if not (running := coordinators()) or (agent := running[0].parent()) is None:
                return
            self.killed |= {process.pid for process in agent.children(recursive=True)}
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


def lost_steps(folder: str, killed: set[int]) -> int:
    """How many steps of processes that no kill has hit were repeated by another one."""
    lost = 0
    for path in Path(folder).glob("steps-*"):
        done = [tuple(map(int, line.split())) for line in path.read_text().splitlines()]
        lost += sum(
            pid not in killed and any(other != pid and again == step for other, again in done[index + 1 :])
            for index, (pid, step) in enumerate(done)
        )
    return lost


def kill_all(kills: int, seed: int) -> tuple[list[float], int, int]:
    """How long takeovers take, how many trials have no result, or a wrong one, and how many steps members elsewhere
    have lost."""
    rng = random.Random(seed)
    takeovers: list[float] = []
    wrong = 0
    lost = 0
    while len(takeovers) < kills:
        with TemporaryDirectory() as folder, TemporaryDirectory() as notes:
            killer = Killer(folder, rng)
            killer.start()
            result = swept(steps, TRIALS_OF_A_KILLED_SWEEP, folder, "cluster", notes=[notes])
            killer.join(LIMIT_S)
            takeovers += killer.takeovers
            lost += lost_steps(notes, killer.killed)
            values = [trial.metrics.get("y") for trial in result.trials]
            wrong += sum(value != float(x) for x, value in enumerate(values))
            wrong += TRIALS_OF_A_KILLED_SWEEP - len(values)
            records = read(LocalStore(folder), RunLayout("run").journal).records
            ends = Counter(
                record.trial for record in records if isinstance(record, TrialConcluded) and record.status.observed
            )
            wrong += sum(count > 1 for count in ends.values())
    return takeovers, wrong, lost


class LeavingClient:
    """One client: what it prints, and its end."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self._process = process

    def left(self) -> tuple[str, float]:
        """Kill it some time after `submit` has returned: the run directory, and the seconds that `submit` took."""
        clock = SystemClock()
        try:
            assert self._line() == CALLS
            called_at = clock.now()
            directory = self._line()
            seconds = clock.now() - called_at
            pause(LEAVES_S)
        finally:
            self._process.kill()
            self._process.communicate()
        return directory, seconds

    def _line(self) -> str:
        """Its next line, without those of Spark's programs."""
        assert self._process.stdout is not None
        timer = threading.Timer(CLIENT_LIMIT_S, self._process.kill)
        timer.start()
        try:
            for line in self._process.stdout:
                text = line.decode().strip()
                if text == CALLS or text.startswith(("hdfs:", "file:", "/")):
                    return text
        finally:
            timer.cancel()
        raise RuntimeError(f"the client has ended with {self._process.wait()} before it had submitted its run")


@contextmanager
def clients_on(kind: str) -> Iterator[Any]:
    """Starts the client with a name, on a cluster that lives as long as the context."""
    with TemporaryDirectory() as folder, ExitStack() as stack:
        root = Path(folder)
        if kind == "yarn":
            cluster: Yarn = stack.enter_context(
                yarn(root / "yarn" / "cluster", stack.enter_context(hdfs(root / "hdfs")))
            )
            (root / "conf.json").write_text(json.dumps(fast_conf(cluster)))
            target = [str(root / "conf.json"), f"{cluster.hdfs.url}/runs"]
            enter: list[str] = []
            environment = {**os.environ, **cluster.env}
        else:
            far = stack.enter_context(far_cluster(root))
            target = [far.url, far.runs]
            enter = list(far.client.enter)
            environment = far.env

        def start(name: str) -> LeavingClient:
            line = [*enter, sys.executable, "-m", "benchmarks.leaving_client", kind, *target, name]
            log = stack.enter_context((root / f"{name}.log").open("wb"))
            pipe = subprocess.PIPE
            return LeavingClient(subprocess.Popen(line, stdin=pipe, stdout=pipe, stderr=log, env=environment))

        yield start


def leave_all(clients: int, kind: str, at_once: int) -> tuple[int, list[float]]:
    """How many runs end with their result after their client was killed, and how long `submit` took in each."""
    with clients_on(kind) as start, ThreadPoolExecutor(at_once) as threads:
        outcomes = list(threads.map(lambda number: _leave(start(f"run-{number}")), range(clients)))
    return sum(ended for ended, _ in outcomes), [seconds for _, seconds in outcomes]


def _leave(client: LeavingClient) -> tuple[bool, float]:
    """Whether the run of a client that is killed ends with its result, and how long `submit` took."""
    directory, submit_s = client.left()
    try:
        result = st.attach(directory).result(CLIENT_LIMIT_S, progress=False)
    except (st.SparktrainError, TimeoutError) as error:
        print(f"{directory}: {error}", file=sys.stderr, flush=True)
        return False, submit_s
    return [trial.metrics for trial in result.trials] == [{"y": 2.0}], submit_s


def show_clients(clients: int, kind: str, at_once: int) -> None:
    """Measure `leave_all`, and print it."""
    ended, seconds = leave_all(clients, kind, at_once)
    rows = [
        ("runs with their result", f"{ended} of {clients}", at_least(ended, clients)),
        ("submit, median", f"{median(seconds):.1f} s", ""),
    ]
    show(f"Clients that are killed {LEAVES_S:g} s after submit, {kind}", ("", "", "target"), rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--clients", type=int, default=0)
    parser.add_argument("--on", choices=("yarn", "connect"), default="yarn")
    parser.add_argument("--at-once", type=int, default=1)
    given = parser.parse_args()
    if given.clients:
        show_clients(given.clients, given.on, given.at_once)
        return
    ratio = overhead(given.trials)
    takeovers, wrong, lost = kill_all(given.kills, given.seed)
    slowest = max(takeovers)
    takeover = f"{len(takeovers)} coordinators lost with their agents: to the next message handled, at most"
    rows = [
        ("duration of a sweep of 50 ms trials, of the driver's", f"{ratio:.2f}", at_most(ratio, OVERHEAD_TARGET)),
        (takeover, f"{slowest:.1f} s", at_most(slowest, TAKEOVER_TARGET_S, " s")),
        ("the same, median", f"{median(takeovers):.1f} s", ""),
        ("steps lost by members of other agents", str(lost), at_most(lost, 0)),
        ("results lost, doubled or wrong", str(wrong), at_most(wrong, 0)),
    ]
    show("A coordinator beside an agent, two agents of this machine", ("", "", "target"), rows)


if __name__ == "__main__":
    main()
