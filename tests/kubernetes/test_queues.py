"""Applications in a queue of Kueue: all executors of one start, or none."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.kubernetes import NAMESPACE, Knobs, Kubernetes, Submission, missing, submission
from tests.support.kubernetes import kubernetes as started
from tests.support.processes import wait_until

pytestmark = [pytest.mark.kubernetes, pytest.mark.kueue, pytest.mark.timeout(400)]

PROGRAM = Path(__file__).with_name("pod_queued.py")
QUEUE = Path(__file__).parents[2] / "conf" / "kubernetes" / "kueue.yaml"
END_S = 200.0
REPORT_S = 30.0
"""From the first pod of an application until it reports who holds it."""
CONF = {
    "spark.kubernetes.executor.label.kueue.x-k8s.io/queue-name": "training",
    "spark.kubernetes.executor.label.kueue.x-k8s.io/managed": "true",
    "spark.kubernetes.executor.annotation.kueue.x-k8s.io/pod-group-total-count": "2",
    "spark.kubernetes.executor.annotation.kueue.x-k8s.io/pod-suspending-parent": "spark",
    "spark.kubernetes.executor.annotation.kueue.x-k8s.io/pod-group-serving": "true",
    "spark.decommission.enabled": "true",
    "spark.scheduler.maxRegisteredResourcesWaitingTime": "1s",
    "spark.task.maxFailures": "1000",
    "spark.executor.maxNumFailures": "1000",
}


@pytest.fixture(scope="module")
def queue(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kubernetes]:
    """A cluster with a queue that has the memory of three executors."""
    if reason := missing():
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("queue")
    with started(folder / "cluster", knobs=Knobs(kueue=True)) as cluster:
        path = folder / "kueue.yaml"
        path.write_text(QUEUE.read_text().replace("512Gi", "6Gi"))
        cluster.kubectl("apply", f"--namespace={NAMESPACE}", f"--filename={path}")
        yield cluster


def folder_of(cluster: Kubernetes, name: str) -> Path:
    folder = cluster.shared / name
    folder.mkdir()
    folder.chmod(0o777)
    (folder / "hold-0").touch()
    return folder


def of_group(name: str) -> dict[str, str]:
    """Settings of an application with two executors, which are a group of pods."""
    return CONF | {"spark.kubernetes.executor.label.kueue.x-k8s.io/pod-group-name": name}


def pods_on_nodes(submitted: Submission) -> list[str]:
    """The pods of an application that have been admitted, and are not deleted."""
    pods = [pod for pod in submitted.executors if "deletionTimestamp" not in pod["metadata"]]
    return [pod["metadata"]["name"] for pod in pods if "nodeName" in pod["spec"]]


def successor(submitted: Submission, *others: str) -> list[str]:
    """The pods of an application that run, beside the others."""
    pods = [pod["metadata"]["name"] for pod in submitted.executors if pod["status"]["phase"] == "Running"]
    return [pod for pod in pods if pod not in others]


def await_members(folder: Path, number: int) -> list[str]:
    """Wait until so many members train; returns their pods."""
    wait_until(lambda: len(list(folder.glob("start-*"))) == number, END_S, f"{number} members have started")
    return [path.name.removeprefix("start-0-") for path in folder.glob("start-*")]


def test_all_executors_of_an_application_start_or_none(queue: Kubernetes) -> None:
    first, second = folder_of(queue, "first"), folder_of(queue, "second")
    with submission(queue, PROGRAM, str(first), "1", conf=of_group("first")) as admitted:
        [member] = await_members(first, 1)
        with submission(queue, PROGRAM, str(second), "2", conf=of_group("second")) as waiting:
            wait_until(lambda: len(waiting.executors) == 2, END_S, "all pods of the second application are there")
            wait_until(lambda: "has room for their whole group" in waiting.output, REPORT_S, "it reports who holds it")
            assert "2 executor pods cannot start before queue training of Kueue has room" in waiting.output
            assert "insufficient unused quota for memory in flavor any-node" in " ".join(waiting.output.split())

            wait_until(lambda: len(pods_on_nodes(admitted)) == 2, END_S, "the first application has both pods")
            [idle] = [pod for pod in pods_on_nodes(admitted) if pod != member]
            queue.delete_pod(idle)
            wait_until(lambda: successor(admitted, member, idle), END_S, "another pod runs in its room")
            assert pods_on_nodes(waiting) == []

            (first / "hold-0").unlink()
            assert admitted.wait(END_S) == 0, admitted.output
            await_members(second, 2)
            (second / "hold-0").unlink()
            assert waiting.wait(END_S) == 0, waiting.output
