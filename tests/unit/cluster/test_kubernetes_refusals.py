"""Why Kubernetes creates no pods, by recorded answers of a real API server, in the words of Spark's client."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest

from sparktrain.cluster import kubernetes_client
from sparktrain.cluster.kubernetes_client import LASTING_S, PodOutlook
from sparktrain.cluster.kubernetes_refusals import refusal
from sparktrain.cluster.spark_session import _problem
from sparktrain.errors import ResourceError
from tests.unit.clocks import InstantClock

FOLDER = Path(__file__).parent / "kubernetes_answers"
ANSWERS = json.loads((FOLDER / "refusals.json").read_text())
WAITING = json.loads((FOLDER / "waiting.json").read_text())


def logged(status: dict[str, Any], what: str = "pods") -> str:
    """The message of the error that Spark logs, as fabric8's client words an answer."""
    return (
        f"Failure executing: POST at: https://198.18.8.1:443/api/v1/namespaces/training/{what}. Message: "
        f"{status['message']}. Received status: Status(apiVersion=v1, code={status['code']}, "
        f"details=StatusDetails(causes=[], group=null, kind=pods, name=null), kind=Status, "
        f"message={status['message']}, metadata=ListMeta(_continue=null), status=Failure, additionalProperties={{}}).\n"
    )


@pytest.mark.parametrize(
    ("name", "expected", "final"),
    [
        (
            "quota",
            "quota quota of their namespace has no room (requested: pods=1,requests.memory=2Gi, used: "
            "pods=0,requests.memory=0, limited: pods=0,requests.memory=1Gi): lower spark.executor.instances or ",
            False,
        ),
        (
            "rights",
            "system:serviceaccount:training:spark may not create pods in namespace other: apply "
            "conf/kubernetes/role.yaml there, or use an account that may (spark.kubernetes.authenticate.*)",
            True,
        ),
        ("token", "the driver's token is not valid, or no longer: renew it (spark.kubernetes.authenticate.*)", True),
        ("security", "the Pod Security of their namespace forbids them (", True),
        ("security", "name a template like conf/kubernetes/executor.yaml in spark.kubernetes.executor.podTempl", True),
        ("limits", "they are forbidden (maximum memory usage per Container is 1Gi, but limit is 2Gi): correct", True),
        ("account", '(error looking up service account training/absent: serviceaccount "absent" not found): ', True),
        ("invalid", 'they are invalid (spec.tolerations[0].operator: Unsupported value: "Is": supported', True),
        ("invalid", "or the template in spark.kubernetes.executor.podTemplateFile", True),
        (
            "webhook",
            'admission webhook "pods.policies.example.com" denies them (pods need the label team): correct',
            True,
        ),
        ("silent webhook", 'admission webhook "pods.policies.example.com" fails (failed to call webhook: Post ', False),
        ("ending", "namespace ending is being deleted: use another one (spark.kubernetes.namespace)", True),
    ],
)
def test_a_refusal_has_its_reason_and_the_next_step(name: str, expected: str, final: bool) -> None:
    found = refusal(logged(ANSWERS[name]))
    assert found is not None
    assert expected in found.text
    assert found.final is final
    assert "\n" not in found.text


def test_each_recorded_answer_is_tested() -> None:
    [mark] = test_a_refusal_has_its_reason_and_the_next_step.pytestmark
    assert {row[0] for row in mark.args[1]} == set(ANSWERS)


def test_a_refusal_is_the_same_for_all_pods_and_the_newest_one_counts() -> None:
    limits = ANSWERS["limits"]
    first, second = ({**limits, "message": limits["message"].replace('"pod"', f'"exec-{n}"')} for n in (1, 2))
    assert first != second
    assert refusal(logged(first)) == refusal(logged(second))
    assert refusal(logged(ANSWERS["quota"]) + logged(first)) == refusal(logged(first))
    assert refusal("Operation: [create] for kind: [Pod] failed: connection refused") is None


def test_a_session_that_may_not_start_has_the_refusal() -> None:
    message = f"An error occurred while calling None.JavaSparkContext.\n: {logged(ANSWERS['rights'], 'configmaps')}"
    problem = _problem("k8s://https://example.com", RuntimeError(message))
    assert "Kubernetes refuses what it needs: system:serviceaccount:training:spark may not create" in problem
    assert "Java" not in problem


class Cluster:
    """What Spark logs and lists, until a test changes it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.answer: str | None = None
        self.pods: list[dict[str, Any]] = []
        monkeypatch.setattr(kubernetes_client, "logged", self._logged_text)
        monkeypatch.setattr(kubernetes_client, "log_rarely", lambda context: None)
        monkeypatch.setattr(kubernetes_client, "executor_pods", lambda context: self.pods)

    @contextmanager
    def _logged_text(self, context: Any) -> Iterator[Callable[[], str]]:
        yield lambda: logged(ANSWERS[self.answer]) if self.answer is not None else ""


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    return Cluster(monkeypatch)


def test_a_refusal_that_no_attempt_changes_ends_the_call_once_it_lasts(cluster: Cluster) -> None:
    clock = InstantClock()
    outlook = PodOutlook(MagicMock(), clock)
    assert outlook() == ""
    cluster.answer = "rights"
    assert outlook().startswith("Kubernetes refuses executor pods: system:serviceaccount:training:spark may not")
    clock.pause(LASTING_S - 1)
    assert "may not create pods" in outlook()
    cluster.answer = "limits"
    clock.pause(2)
    assert "maximum memory usage" in outlook(), "another refusal, which has just come"
    clock.pause(LASTING_S)
    with pytest.raises(ResourceError, match=r"^Kubernetes refuses executor pods: .*maximum memory usage"):
        outlook()
    cluster.answer = None
    assert outlook() == ""


@pytest.mark.parametrize("answer", ["quota", "silent webhook"])
def test_a_refusal_that_may_pass_is_waited_for(answer: str, cluster: Cluster) -> None:
    clock = InstantClock()
    outlook = PodOutlook(MagicMock(), clock)
    cluster.answer = answer
    cluster.pods = [WAITING["gpus"]]
    for _ in range(3):
        refused, _, waits = outlook().rpartition("; ")
        assert refused.startswith("Kubernetes refuses executor pods: ")
        assert waits.startswith("1 executor pod cannot be on any of 2 nodes")
        clock.pause(LASTING_S)
