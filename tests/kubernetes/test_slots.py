"""Gangs of applications that do not have room beside each other, with executors that start on demand."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.kubernetes import GPU, Kubernetes, Submission, fast_conf, submission
from tests.support.processes import wait_until

pytestmark = [pytest.mark.kubernetes, pytest.mark.timeout(300)]

PROGRAM = Path(__file__).with_name("pod_slots.py")
END_S = 200.0
IDLE_S = 60.0
"""In which Spark releases an executor that has been idle for a second."""
WAITS_S = 12
DYNAMIC = {
    "spark.dynamicAllocation.enabled": "true",
    "spark.dynamicAllocation.shuffleTracking.enabled": "true",
    "spark.dynamicAllocation.minExecutors": "1",
    "spark.dynamicAllocation.maxExecutors": "2",
    "spark.dynamicAllocation.executorIdleTimeout": "1s",
    "spark.executor.instances": "1",
    "spark.scheduler.maxRegisteredResourcesWaitingTime": "1s",
}


def folder_of(kubernetes: Kubernetes, name: str) -> Path:
    folder = kubernetes.shared / name
    folder.mkdir()
    folder.chmod(0o777)
    return folder


def whole_nodes(kubernetes: Kubernetes) -> dict[str, str]:
    """Settings of executors with all GPUs of a node: the two nodes have room for two of them."""
    key = "spark.kubernetes.executor.podTemplateFile"
    template = json.loads(Path(fast_conf(kubernetes)[key]).read_text())
    template["spec"]["containers"][0]["resources"] = {"limits": {GPU: "2"}}
    path = kubernetes.folder / "whole.json"
    path.write_text(json.dumps(template))
    return DYNAMIC | {key: str(path)}


def reported(folder: Path) -> Any:
    return json.loads((folder / "reported.json").read_text())


def running(submitted: Submission) -> list[str]:
    """The executors' pods of an application that run."""
    return [pod["metadata"]["name"] for pod in submitted.executors if pod["status"]["phase"] == "Running"]


def await_half(submitted: Submission) -> None:
    """Wait until an application has one agent, and no node for the pod of the other one."""
    wait_until(lambda: " has joined from " in submitted.output, END_S, "an agent has joined")
    wait_until(lambda: len(submitted.executors) == 2, END_S, "Spark has created the second pod")


def test_of_two_gangs_that_each_hold_half_of_what_they_need_one_ends_and_the_other_trains(
    kubernetes: Kubernetes,
) -> None:
    first, second = folder_of(kubernetes, "slots-first"), folder_of(kubernetes, "slots-second")
    conf = whole_nodes(kubernetes)
    with (
        submission(kubernetes, PROGRAM, str(first), str(WAITS_S), conf=conf) as impatient,
        submission(kubernetes, PROGRAM, str(second), str(END_S), conf=conf) as patient,
    ):
        wait_until(lambda: "Registered executor" in impatient.output, END_S, "it has an executor")
        wait_until(lambda: "Registered executor" in patient.output, END_S, "it has an executor too")
        (first / "open").touch()
        (second / "open").touch()
        await_half(impatient)
        await_half(patient)
        (first / "train").touch()
        (second / "train").touch()
        assert impatient.wait(END_S) == 0, impatient.output
        wait_until((second / "reported.json").exists, END_S, "the other one has trained")
        wait_until(lambda: len(running(patient)) == 1, IDLE_S, "the executor that is idle is released")
        (second / "end").touch()
        assert patient.wait(END_S) == 0, patient.output
    error, message = reported(first)
    assert error == "JoinTimeoutError", message
    assert message.startswith(f"1 of 2 agents that a trial needs within {WAITS_S} s, on k8s://")
    assert f"1 executor pod cannot be on any of 2 nodes (2 Insufficient {GPU}): lower" in message
    gang, sweep = reported(second)[:2], reported(second)[2:]
    assert len(set(gang)) == 2
    assert set(sweep) == set(gang), "executors that train or wait for a trial are not idle"
