"""Members leave pods and nodes that end with notice, without a repeated step; their hosts are nodes."""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from sparktrain.base.clock import SystemClock
from sparktrain.runs.additions.drain_requests import drain
from sparktrain.runs.locate import run_in
from sparktrain.runs.watcher import Observer
from tests.support.kubernetes import NAMESPACE, Kubernetes, Submission, submission
from tests.support.processes import wait_until

pytestmark = [pytest.mark.kubernetes, pytest.mark.timeout(400)]

PROGRAM = Path(__file__).with_name("pod_moves.py")
START_S = 200.0
MOVE_S = 60.0
DRAIN_S = 120.0
NODES = ("node-a", "node-b")
CONF = {
    "spark.executor.instances": "4",
    "spark.decommission.enabled": "true",
    "spark.task.maxFailures": "1000",
    "spark.kubernetes.executor.apiPollingInterval": "5s",  # at which Spark replaces some of the lost pods
}


def steps(folder: Path, rank: int) -> list[dict[str, Any]]:
    """The steps of a member so far, in all of its processes."""
    path = folder / f"steps-{rank}.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")]


def last(folder: Path, key: str) -> list[Any]:
    """What the newest step of each member has at `key`, such as its pod."""
    return [steps(folder, rank)[-1][key] for rank in (0, 1)]


def check_steps(folder: Path, rank: int) -> None:
    """The member has repeated and omitted no step."""
    numbers = [step["step"] for step in steps(folder, rank)]
    assert numbers == list(range(1, len(numbers) + 1))


class Moving:
    """A ring of two members on four executors, two on each of two nodes."""

    def __init__(self, kubernetes: Kubernetes, submitted: Submission, folder: Path) -> None:
        self.kubernetes = kubernetes
        self.submitted = submitted
        self.folder = folder
        self.run = run_in(str(folder / "runs" / "moves"))

    def last(self, key: str) -> list[Any]:
        """What the newest step of each member has at `key`, such as its pod."""
        return last(self.folder, key)

    def await_last(self, key: str, *values: str) -> None:
        """Wait until the newest steps of the members have these values, in any order."""
        wait_until(lambda: sorted(self.last(key)) == sorted(values), MOVE_S, f"the members have {key}: {values}")

    def check_steps(self) -> None:
        """No member has repeated or omitted a step."""
        for rank in (0, 1):
            check_steps(self.folder, rank)

    def leave_pod(self, rank: int) -> None:
        """Delete the pod of a member, and wait until the member has moved."""
        pod = self.last("pod")[rank]
        self.kubernetes.delete_pod(pod)
        wait_until(lambda: self.last("pod")[rank] != pod, MOVE_S, "the member has moved")
        self.check_steps()

    @property
    def joined(self) -> list[str]:
        """The addresses of all agents that have joined so far."""
        return re.findall(r" has joined from (\S+) on host node-", self.submitted.output)

    def await_spares(self) -> None:
        """Wait until each of the four executors has an agent: those that were lost have successors."""
        wait_until(self._has_spares, MOVE_S, "four agents are there")

    def _has_spares(self) -> bool:
        addresses = {pod["status"].get("podIP") for pod in self.submitted.executors if not is_leaving(pod)}
        return len(addresses.intersection(self.joined)) == 4


def is_leaving(pod: Mapping[str, Any]) -> bool:
    return "deletionTimestamp" in pod["metadata"]


@pytest.fixture(scope="module")
def moving(kubernetes: Kubernetes) -> Iterator[Moving]:
    """The ring, while it trains. In the end it has succeeded."""
    folder = kubernetes.shared / "moves"
    folder.mkdir()
    folder.chmod(0o777)
    with submission(kubernetes, PROGRAM, str(folder), "0", conf=CONF) as submitted:
        notes = [folder / f"steps-{rank}.jsonl" for rank in (0, 1)]
        wait_until(lambda: submitted.exit_code or all(path.exists() for path in notes), START_S, "both members train")
        assert submitted.exit_code is None, submitted.output
        yield Moving(kubernetes, submitted, folder)
        (folder / "go").touch()
        assert submitted.wait(START_S) == 0, submitted.output
    for restart in json.loads((folder / "results.json").read_text()):
        assert restart["cause"].startswith(("drained", "spread")), restart


def test_the_host_of_a_member_is_its_node_and_a_pod_is_a_machine_of_its_own(moving: Moving) -> None:
    moving.await_last("node", *NODES)  # members that have started on one node spread as soon as another one has agents
    [trial] = Observer(moving.run, SystemClock()).look().results
    assert {member.host for member in trial.members} <= set(NODES)
    assert moving.last("local_size") == [1, 1]


def test_members_leave_a_node_that_is_drained_and_return_when_it_is_not(moving: Moving) -> None:
    drain(moving.run, "node-a", None)
    moving.await_last("node", "node-b", "node-b")
    assert moving.last("local_size") == [1, 1]
    drain(moving.run, "node-a", None, cancels=True)
    moving.await_last("node", *NODES)
    moving.check_steps()


def test_members_leave_pods_that_are_deleted_for_agents_that_are_idle_and_then_for_one_that_starts(
    moving: Moving,
) -> None:
    moving.await_spares()
    joined = len(moving.joined)
    for rank in (1, 0):
        moving.leave_pod(rank)
    entered = moving.last("entered")[0]
    wait_until(lambda: len(moving.joined) > joined, START_S, "an agent has joined, and imports TensorFlow")
    moving.leave_pod(1)
    assert moving.last("entered")[0] == entered, "the other one has kept its process"


def test_members_leave_a_node_that_kubectl_drains_within_a_disruption_budget(moving: Moving) -> None:
    moving.await_spares()
    labels = {"spark-role": "executor"}
    budget = {"metadata": {"name": "executors"}, "spec": {"minAvailable": 3, "selector": {"matchLabels": labels}}}
    path = f"/apis/policy/v1/namespaces/{NAMESPACE}/poddisruptionbudgets"
    moving.kubernetes.api.post(path, budget)
    try:
        moving.kubernetes.kubectl(
            "drain", "node-b", "--force", "--ignore-daemonsets", "--delete-emptydir-data", f"--timeout={DRAIN_S:g}s",
            "--pod-selector=spark-role=executor", timeout_s=DRAIN_S + 10,
        )  # fmt: skip
        moving.await_last("node", "node-a", "node-a")
        moving.check_steps()
    finally:
        moving.kubernetes.api.delete(f"{path}/executors", None)
        moving.kubernetes.kubectl("uncordon", "node-b")
