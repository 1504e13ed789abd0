"""What executors' pods wait for, by recorded answers of a real API server of two nodes."""

import json
from pathlib import Path
from unittest.mock import MagicMock

import pytest

from sparktrain.cluster.kubernetes_client import PodOutlook
from sparktrain.cluster.kubernetes_pods import waiting

PODS = json.loads((Path(__file__).parent / "kubernetes_answers" / "waiting.json").read_text())


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (
            "gpus",
            "1 executor pod cannot be on any of 2 nodes (2 Insufficient nvidia.com/gpu): lower "
            "spark.executor.resource.gpu.amount, or add nodes",
        ),
        (
            "memory",
            "1 executor pod cannot be on any of 2 nodes (2 Insufficient memory): lower spark.executor.memory or "
            "spark.executor.memoryOverhead, or add nodes",
        ),
        (
            "label",
            "1 executor pod cannot be on any of 2 nodes (2 node(s) didn't match Pod's node affinity/selector): correct "
            "spark.kubernetes.executor.node.selector.*, or label nodes",
        ),
        ("config", '(CreateContainerConfigError: secret "absent" not found): correct the secrets, config maps'),
        ("image", "1 executor pod cannot get image registry.invalid/none:1 (ImagePullBackOff: Back-off pulling image"),
        ("image", "correct spark.kubernetes.container.image, or give its registry's secret"),
    ],
)
def test_a_pod_reports_what_it_waits_for(name: str, expected: str) -> None:
    line = waiting([PODS[name]])
    assert expected in line
    assert "\n" not in line


def test_pods_with_the_same_reason_are_one_line() -> None:
    line = waiting([PODS["gpus"], PODS["label"], PODS["gpus"]])
    assert line.startswith("2 executor pods cannot be on any of 2 nodes (2 Insufficient nvidia.com/gpu)")
    assert line.count("executor pod") == 2


def test_a_pod_that_runs_or_is_deleted_waits_for_nothing() -> None:
    pod = PODS["gpus"]
    runs = {**pod, "status": {**pod["status"], "phase": "Running"}}
    deleted = {**pod, "metadata": {**pod["metadata"], "deletionTimestamp": "2026-11-30T05:48:40Z"}}
    assert waiting([runs, deleted]) == ""


def test_what_the_client_raises_ends_no_run() -> None:
    context = MagicMock()
    context._jsc.sc.side_effect = RuntimeError("the session is stopped")
    assert PodOutlook(context)() == ""
