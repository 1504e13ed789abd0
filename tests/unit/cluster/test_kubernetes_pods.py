"""What executors' pods wait for, their nodes, and why they end, by recorded answers of a real API server."""

import json
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest

from sparktrain.base.ids import SparkTask
from sparktrain.cluster import kubernetes_client
from sparktrain.cluster.executor_loss import explain_failure
from sparktrain.cluster.kubernetes_client import (
    RETRY_S,
    SILENT_S,
    LostPods,
    PodNodes,
    PodOutlook,
    SilentNodes,
    admissions,
)
from sparktrain.cluster.kubernetes_pods import admission, held_groups, on_silent_nodes, waiting
from sparktrain.cluster.task_failures import running_places
from sparktrain.state.outcome import Loss
from tests.unit.clocks import InstantClock

ANSWERS = Path(__file__).parent / "kubernetes_answers"
PODS = json.loads((ANSWERS / "waiting.json").read_text())
QUEUED = json.loads((ANSWERS / "queued.json").read_text())
LOSSES = json.loads((ANSWERS / "losses.json").read_text())
RUNNING = json.loads((ANSWERS / "running.json").read_text())


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


def test_a_group_that_kueue_holds_names_its_queue_and_what_that_has_no_room_for() -> None:
    assert held_groups([*QUEUED["first"], *QUEUED["second"]]) == {"second"}
    line = waiting(QUEUED["second"], {"second": admission(QUEUED["workload"])})
    assert line.startswith(
        "2 executor pods cannot start before queue training of Kueue has room for their whole group ("
    )
    assert "insufficient unused quota for memory in flavor any-node, " in line
    assert "lower spark.executor.instances" in line


def test_without_the_right_to_read_a_workload_a_call_names_the_command_that_shows_it() -> None:
    assert "(`kubectl describe workload second` prints why): wait" in waiting(QUEUED["second"])


def test_a_group_with_another_total_than_pods_names_both() -> None:
    line = waiting(QUEUED["part"])
    assert line.startswith(
        "1 executor pod cannot start before Kueue sees all of their group, and 1 of 2 are there: set"
    )


def test_a_pod_without_a_group_and_a_gate_of_another_have_lines_of_their_own() -> None:
    [pod] = QUEUED["part"]
    labels = {"kueue.x-k8s.io/queue-name": "training"}
    single = {**pod, "metadata": {"name": "single", "labels": labels}}
    other = {**pod, "metadata": {"name": "other"}, "spec": {"schedulingGates": [{"name": "example.com/checked"}]}}
    assert "cannot start before queue training of Kueue has room for one: " in waiting([single])
    assert "cannot start before scheduling gate example.com/checked is removed: " in waiting([other])
    assert held_groups([single, other]) == set()


def test_kueue_is_asked_in_the_version_of_its_api_that_the_cluster_serves() -> None:
    context = MagicMock()
    context.getConf().get.return_value = "training"
    backend = context._jsc.sc().schedulerBackend()
    client = backend.getClass().getDeclaredField("kubernetesClient").get(backend)
    client.raw.side_effect = lambda path: json.dumps(QUEUED["workload"]) if "/v1beta1/" in path else None
    assert "insufficient unused quota" in admissions(context, ["second"])["second"]
    client.raw.assert_called_with("/apis/kueue.x-k8s.io/v1beta1/namespaces/training/workloads/second")
    client.raw.side_effect = RuntimeError("forbidden")
    assert admissions(context, ["second"]) == {}


def test_what_the_client_raises_ends_no_run() -> None:
    context = MagicMock()
    context._jsc.sc.side_effect = RuntimeError("the session is stopped")
    assert PodOutlook(context)() == ""


def test_the_node_of_a_pod_is_asked_for_once_by_its_host_name(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = [RUNNING[:1], RUNNING]
    monkeypatch.setattr(kubernetes_client, "executor_pods", lambda context: answers.pop(0))
    node_of = PodNodes(None)
    [first, second] = [pod["spec"]["hostname"] for pod in RUNNING]
    assert [node_of(first), node_of(first)] == ["node-a", "node-a"]
    assert len(answers) == 1
    assert [node_of(second), node_of(first)] == ["node-b", "node-a"]
    assert not answers


def test_a_pod_is_its_own_host_while_its_node_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    requests: list[object] = []

    def fail(context: object) -> list[dict[str, object]]:
        requests.append(context)
        raise RuntimeError("the API server does not answer")

    clock = InstantClock()
    monkeypatch.setattr(kubernetes_client, "executor_pods", fail)
    node_of = PodNodes("context", clock)
    assert [node_of("pod-1"), node_of("pod-2")] == ["pod-1", "pod-2"]
    assert len(requests) == 1, "agents do not wait for it again and again"
    clock.pause(RETRY_S)
    assert node_of("pod-1") == "pod-1"
    assert len(requests) == 2


LOST = "ExecutorLostFailure (executor 7 exited caused by one of the running tasks) Reason: Executor Process Lost"


def test_spark_is_asked_once_for_the_pod_of_a_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def last_state(context: Any, executor: int) -> Any:
        asked.append(executor)
        return LOSSES["preempted"]

    monkeypatch.setattr(kubernetes_client, "last_state", last_state)
    lost = LostPods(MagicMock())
    for _ in range(2):
        assert explain_failure(lost(LOST))[0] is Loss.PREEMPTED
        assert lost("Python worker exited unexpectedly (crashed)") == "Python worker exited unexpectedly (crashed)"
    assert asked == [7]


def test_a_pod_that_spark_cannot_name_has_no_reason_of_yarn() -> None:
    context = MagicMock()
    context._jsc.sc.side_effect = RuntimeError("the session is stopped")
    loss, line = explain_failure(LostPods(context)(LOST))
    assert (loss, "neither Spark nor Kubernetes reports why" in line) == (Loss.OTHER, True)


def placed(name: str, executor: str, node: str) -> dict[str, Any]:
    """A recorded pod as that of an executor on a node."""
    return {
        "metadata": {"name": f"pod-{executor}", "labels": {"spark-exec-id": executor}},
        "spec": {"nodeName": node},
        "status": LOSSES[name]["status"],
    }


def test_a_pod_on_a_silent_node_differs_from_all_that_end_or_wait() -> None:
    pods = [placed(name, name, "node-a") for name in LOSSES]
    assert set(on_silent_nodes(pods)) == {"node"}
    waits = [{**placed("node", name, "node-a"), "status": pod["status"]} for name, pod in PODS.items()]
    assert on_silent_nodes(waits) == {}


class Silence:
    """A context with the pods of executors 7 and 8 on a silent node, and that of executor 9 on another one."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.clock = InstantClock()
        self.deleted: list[str] = []
        self.requests = 0
        self.looks = 0
        """How often Spark was asked for the executors of tasks."""
        ready = [{"type": kind, "status": "True"} for kind in ("Ready", "ContainersReady")]
        running = {**placed("node", "9", "node-b"), "status": {"phase": "Running", "conditions": ready}}
        self.pods = [placed("node", "7", "node-a"), placed("node", "8", "node-a"), running]
        monkeypatch.setattr(kubernetes_client, "executor_pods", lambda context: self.list())
        monkeypatch.setattr(kubernetes_client, "_pods", lambda context: self)
        self.silent_nodes = SilentNodes(None, self.places, self.clock)

    def places(self, stages: Iterable[int]) -> dict[int, tuple[str, str]]:
        """Task 70 runs in executor 7, and so on; stage 1 has all of them."""
        self.looks += 1
        assert set(stages) == {1}
        return {10 * number: (str(number), "198.18.0.9") for number in (7, 8, 9)}

    def list(self) -> list[dict[str, Any]]:
        self.requests += 1
        return self.pods

    def withName(self, name: str) -> Any:  # noqa: N802 (Java's)
        def grace(seconds: int) -> Any:
            assert seconds == 0
            return MagicMock(delete=lambda: self.deleted.append(name))

        return MagicMock(withGracePeriod=grace)


def test_pods_of_lost_agents_on_a_silent_node_are_deleted_and_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    silence = Silence(monkeypatch)
    messages = silence.silent_nodes([SparkTask(1, 70), SparkTask(1, 90), SparkTask(1, 100)])
    assert silence.deleted == ["pod-7"], "executor 8 has no lost agent, and the node of executor 9 answers"
    [(task, message)] = messages.items()
    assert (task, explain_failure(message)[0]) == (70, Loss.NODE)


def test_spark_and_the_api_server_are_asked_for_silent_nodes_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    silence = Silence(monkeypatch)
    for _ in range(3):
        silence.silent_nodes([SparkTask(1, 90)])
    assert (silence.looks, silence.requests) == (1, 1)
    silence.clock.pause(SILENT_S)
    silence.silent_nodes([])
    assert (silence.looks, silence.requests) == (1, 1), "no agent is lost"
    silence.silent_nodes([SparkTask(1, 90)])
    assert (silence.looks, silence.requests) == (2, 2)


def test_an_error_of_the_client_ends_no_search_for_reasons() -> None:
    context = MagicMock()
    context._jsc.sc.side_effect = RuntimeError("the session is stopped")
    assert SilentNodes(context, partial(running_places, context))([SparkTask(1, 70)]) == {}
