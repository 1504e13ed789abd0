"""Why pods of an application do not start, and why they were lost, in the words of the calls that wait for them."""

import json
from pathlib import Path
from typing import Any

import pytest

from sparktrain.base.clock import SystemClock
from sparktrain.runs.locate import run_in
from sparktrain.runs.watcher import Observer
from tests.support.kubernetes import Kubernetes, pod_image, submission
from tests.support.processes import wait_until

pytestmark = [pytest.mark.kubernetes, pytest.mark.timeout(300)]

PROGRAM = Path(__file__).with_name("pod_reasons.py")
END_S = 200.0
ONE = {"spark.executor.instances": "1", "spark.scheduler.maxRegisteredResourcesWaitingTime": "1s"}


def reported(folder: Path) -> Any:
    return json.loads((folder / "reported.json").read_text())


@pytest.mark.parametrize(
    ("name", "conf", "expected"),
    [
        (
            "label",
            {"spark.kubernetes.executor.node.selector.accelerator": "none"},
            "1 executor pod cannot be on any of 2 nodes (2 node(s) didn't match Pod's node affinity/selector): correct",
        ),
        (
            "image",
            {"spark.kubernetes.executor.container.image": "registry.invalid/none:1"},
            "1 executor pod cannot get image registry.invalid/none:1 (",
        ),
    ],
)
def test_a_call_reports_why_no_pod_starts(
    name: str, conf: dict[str, str], expected: str, kubernetes: Kubernetes
) -> None:
    folder = kubernetes.shared / name
    folder.mkdir()
    with submission(kubernetes, PROGRAM, "waits", str(folder), conf=ONE | conf) as submitted:
        assert submitted.wait(END_S) == 0, submitted.output
    assert expected in reported(folder)


def test_a_call_reports_that_its_pod_was_deleted_and_avoids_the_node(kubernetes: Kubernetes) -> None:
    folder = kubernetes.shared / "deleted"
    folder.mkdir()
    folder.chmod(0o777)
    with submission(kubernetes, PROGRAM, "loses", str(folder), conf=two_on_each(kubernetes)) as submitted:
        wait_until((folder / "pod").exists, END_S, "the function runs")
        wait_until(lambda: submitted.output.count(" has joined from ") == 4, END_S, "four agents have joined")
        pod = (folder / "pod").read_text()
        node = kubernetes.pod(pod)["spec"]["nodeName"]
        kubernetes.delete_pod(pod)
        observer = Observer(run_in(str(next((folder / "runs").iterdir()))), SystemClock())
        wait_until(lambda: "its pod was deleted" in cause_of(observer), END_S, "a reader of the run sees the cause")
        (folder / "go").touch()
        assert submitted.wait(END_S) == 0, submitted.output
    cause, lost_on, next_host = reported(folder)
    assert "its pod was deleted" in cause
    assert "YARN" not in cause
    assert (lost_on, {lost_on, next_host}) == (node, {"node-a", "node-b"})


def cause_of(observer: Observer) -> str:
    """Why the first attempt ended, as far as that is known."""
    [trial] = observer.look().results
    return trial.restarts[0].cause if trial.restarts else ""


def two_on_each(kubernetes: Kubernetes) -> dict[str, str]:
    """Settings of four executors, with a template that leaves their node to the driver."""
    template = pod_image.template(kubernetes.shared, "executor")
    del template["spec"]["containers"][0]["env"]
    path = kubernetes.folder / "nameless.json"
    path.write_text(json.dumps(template))
    return ONE | {"spark.executor.instances": "4", "spark.kubernetes.executor.podTemplateFile": str(path)}
