"""Pods of sweeps and gangs that are killed and deleted at random, on a Kubernetes of two nodes, which this machine is.

    python -m benchmarks.kubernetes.losses [--kills 200] [--notices 50] [--minutes 60] [--seed 0]

Half of the kills (SIGKILL of all processes of a pod) are under sweeps, whatever the pod does then. The others, and all
deletions with a grace period, are under gangs, while another agent is idle. Each trial must have its one result, and
each gang must end with the bits of one that loses no member. Needs root and `make kubernetes`.
"""

import argparse
import json
import math
import os
import random
import re
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.kubernetes.struck_job import AGENTS, SIZE, STEPS
from benchmarks.machine import at_most, show
from tests.support.daemons import DaemonError
from tests.support.kubernetes import Kubernetes, NodeSpec, Submission, kubernetes, submission
from tests.support.processes import wait_until

JOB = Path(__file__).with_name("struck_job.py")
NODES = [NodeSpec(name="node-a"), NodeSpec(name="node-b")]
CONF = {
    "spark.executor.instances": str(AGENTS),
    "spark.decommission.enabled": "true",
    "spark.task.maxFailures": "100000",
    "spark.executor.maxNumFailures": "100000",
    "spark.log.level": "ERROR",
}
START_S = 300.0
HEALED_S = 120.0
PAUSE_S = 3.0
"""The longest time from one kill under a sweep to the next."""
NOTICE_S = 3.0
LAST = 0.8
"""No loss after so much of a gang's steps, so that it is over before its run."""


class Striker:
    """One application, and the losses of its pods."""

    def __init__(self, cluster: Kubernetes, job: Submission, folder: Path, until: float, seed: int) -> None:
        self.draw = random.Random(seed)
        self._cluster = cluster
        self._job = job
        self._folder = folder
        self._until = until
        """When to strike no more, by the clock of this machine."""
        self.kills_under_sweeps = 0
        self._struck: set[str] = set()
        """Pods that were killed or deleted, by their names."""

    def agents(self) -> list[dict[str, Any]]:
        """The pods that have an agent, but for those that were struck."""
        assert self._job.exit_code is None, self._job.output
        joined = set(re.findall(r" has joined from (\S+) on host ", self._job.output))
        return [
            pod
            for pod in self._job.executors
            if pod["status"].get("podIP") in joined and pod["metadata"]["name"] not in self._struck
        ]

    def kill(self, pod: dict[str, Any]) -> None:
        """End all processes of a pod."""
        self._struck.add(str(pod["metadata"]["name"]))
        [container] = pod["status"]["containerStatuses"]
        name = str(container["containerID"]).removeprefix("containerd://")
        self._cluster.node(pod["spec"]["nodeName"]).ctr("tasks", "kill", "--signal", "SIGKILL", name)

    def delete(self, pod: dict[str, Any]) -> None:
        """Delete a pod, with the grace period of its own."""
        self._struck.add(str(pod["metadata"]["name"]))
        self._cluster.delete_pod(pod["metadata"]["name"])

    def ask(self, phase: str) -> None:
        """Have the job do something else once its round is over."""
        (self._folder / "phase.new").write_text(phase)
        (self._folder / "phase.new").rename(self._folder / "phase")

    def strike(self, kills: int, notices: int) -> list[tuple[str, float]]:
        """Kill and delete so many pods; the losses of gangs. The job has been asked to end then."""
        wait_until((self._folder / "round").exists, START_S, "the first sweep")
        self.kill_under_sweeps(kills // 2)
        self.ask("gangs")
        ways = ["kill"] * (kills - kills // 2) + ["notice"] * notices
        self.draw.shuffle(ways)
        losses = []
        for way, seconds in self.strike_gangs(ways):
            losses.append((way, seconds))
            print(f"{len(losses)}: {way}, {seconds:.2f} s", flush=True)
        self.ask("end")
        return losses

    def kill_under_sweeps(self, number: int) -> None:
        """Kill pods with agents at random moments."""
        while self.kills_under_sweeps < number and time.time() < self._until:
            time.sleep(self.draw.uniform(0.0, PAUSE_S))
            wait_until(lambda: len(self.agents()) >= AGENTS - 1, START_S, "all agents but one are there")
            self.kill(self.draw.choice(self.agents()))
            self.kills_under_sweeps += 1

    def strike_gangs(self, ways: list[str]) -> Iterator[tuple[str, float]]:
        """Lose a member of a gang in each of these ways; each way, and the seconds until all members train again."""
        for way in ways:
            if time.time() >= self._until:
                return
            wait_until(self._may_strike, START_S, "a gang trains, and another agent is idle")
            time.sleep(self.draw.uniform(0.0, 0.5))
            steps = self._steps()
            rank = self.draw.randrange(SIZE)
            struck_at = time.time()
            try:
                pod = self._cluster.pod(steps[rank]["pod"])
                (self.delete if way == "notice" else self.kill)(pod)
            except DaemonError as error:
                print(f"not struck: {error}", flush=True)
                continue
            try:
                wait_until(lambda rank=rank, steps=steps: self._has_moved(steps, rank), HEALED_S, "")  # type: ignore[misc]
            except AssertionError:
                yield way, math.inf
            else:
                yield way, max(step["at"] for step in self._steps().values()) - struck_at

    def _may_strike(self) -> bool:
        steps = self._steps()
        addresses = {pod["metadata"]["name"]: pod["status"]["podIP"] for pod in self.agents()}
        idle = (self._folder / "idle").read_text().split()
        return (
            len(steps) == SIZE
            and all(step["step"] < LAST * STEPS and step["pod"] in addresses for step in steps.values())
            and all(time.time() - step["at"] < 1.0 for step in steps.values())
            and not set(addresses.values()).isdisjoint(idle)
        )

    def _has_moved(self, before: dict[int, dict[str, Any]], rank: int) -> bool:
        """The lost rank has another process, and all have made a step since that one's first."""
        steps = self._steps()
        if len(steps) < SIZE or steps[rank]["process"] == before[rank]["process"]:
            return False
        first = steps[rank]["at"]
        wait_until(
            lambda: all(step["at"] > first for other, step in self._steps().items() if other != rank),
            HEALED_S,
            "the others train",
        )
        return True

    def _steps(self) -> dict[int, dict[str, Any]]:
        """The newest step of each member of the present gang."""
        folder = self._folder / (self._folder / "round").read_text()
        paths = {rank: folder / f"step-{rank}" for rank in range(SIZE)}
        return {rank: json.loads(path.read_text()) for rank, path in paths.items() if path.exists()}


def measured(scratch: Path, given: argparse.Namespace) -> tuple[list[dict[str, Any]], int, list[tuple[str, float]]]:
    """What came out of each round, the kills under sweeps, and the losses of gangs."""
    with kubernetes(scratch / "cluster", NODES) as cluster:
        folder = cluster.shared / "struck"
        folder.mkdir()
        folder.chmod(0o777)
        (folder / "phase").write_text("sweeps")
        with submission(cluster, JOB, str(folder), conf=CONF) as job:
            striker = Striker(cluster, job, folder, time.time() + 60 * given.minutes, given.seed)
            try:
                losses = striker.strike(given.kills, given.notices)
            except Exception as error:
                error.add_note(f"the last lines of the job:\n{job.output[-8000:]}")
                raise
            assert job.wait(START_S) == 0, job.output
        rounds = [json.loads(line) for line in (folder / "rounds.jsonl").read_text().splitlines()]
        return rounds, striker.kills_under_sweeps, losses


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--notices", type=int, default=50)
    parser.add_argument("--minutes", type=float, default=60.0, help="strike no more after so long")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    with TemporaryDirectory(prefix="sparktrain-benchmark-") as scratch:
        os.chmod(scratch, 0o755)  # the users of pods are others
        rounds, under_sweeps, losses = measured(Path(scratch), given)
    of_gangs = [restart for one in rounds if one["phase"] == "gangs" for restart in one["restarts"]]
    bad = {kind: sum(one[kind] for one in rounds) for kind in ("lost", "doubled", "wrong")}
    seconds = {way: sorted(took for kind, took in losses if kind == way) for way in ("kill", "notice")}
    late = sum(took > NOTICE_S for took in seconds["notice"])
    repeated = sum(restart["steps_lost"] or 0 for restart in of_gangs)
    rows = [
        ("pods killed: under sweeps, under gangs", f"{under_sweeps}, {len(seconds['kill'])}", ""),
        ("pods deleted with notice, under gangs", f"{len(seconds['notice'])}", ""),
        ("results of trials and gangs", f"{sum(one['results'] for one in rounds)}", ""),
        *((f"results {kind}", f"{count}", at_most(count, 0)) for kind, count in bad.items()),
        ("trials that ran to their ends again", f"{sum(one.get('again', 0) for one in rounds)}", ""),
        *(
            (f"from a {way} to all members training", f"{median(took):.2f} s ({took[0]:.2f} to {took[-1]:.2f})", "")
            for way, took in seconds.items()
            if took
        ),
        (f"notices of more than {NOTICE_S:g} s", f"{late} of {len(seconds['notice'])}", at_most(late, 0)),
        ("rings healed; gangs restarted", f"{sum(map(healed, of_gangs))}; {sum(not healed(r) for r in of_gangs)}", ""),
        ("steps repeated", f"{repeated}", at_most(repeated, 0)),
    ]
    show(f"pods that are lost at random, seed {given.seed}", ("", "", "target"), rows)
    for cause, number in Counter(restart["cause"] for restart in of_gangs if not healed(restart)).most_common():
        print(f"{number} restarts of all members: {cause}")
    for one in rounds:
        if any(one[kind] for kind in bad):
            print(json.dumps(one))


def healed(restart: dict[str, Any]) -> bool:
    """The other members kept their processes."""
    return bool(restart["healed"])


if __name__ == "__main__":
    main()
