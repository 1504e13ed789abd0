"""Why pods of an application do not start, and why they were lost, in the words of the calls that wait for them."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.kubernetes import Kubernetes, submission
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


def test_a_call_reports_that_its_pod_was_deleted(kubernetes: Kubernetes) -> None:
    folder = kubernetes.shared / "deleted"
    folder.mkdir()
    folder.chmod(0o777)
    with submission(kubernetes, PROGRAM, "loses", str(folder), conf=ONE) as submitted:
        wait_until((folder / "pod").exists, END_S, "the function runs")
        kubernetes.delete_pod((folder / "pod").read_text())
        assert submitted.wait(END_S) == 0, submitted.output
    assert "its pod was deleted" in reported(folder)
    assert "YARN" not in reported(folder)
