"""What the doctor reports of Kubernetes, by recorded answers of a real API server of two nodes."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from msgspec.structs import replace
from pyspark import SparkContext

from sparktrain.cluster.check_finding import Level
from sparktrain.cluster.kubernetes_api import ApiError, spark_api
from sparktrain.ops.doctor.kubernetes import NEEDED, ROLE_FILE, pods_findings, server_findings
from tests.support.kubernetes.doctor_answers import PODS, RecordedApi
from tests.unit.ops.doctor.seen import only, reads


def test_the_server_its_version_and_a_sufficient_role() -> None:
    kubernetes, role = server_findings(RecordedApi("training"))
    where = "Kubernetes v1.36.3 at https://kubernetes.example.com:6443, namespace training"
    assert (kubernetes.level, kubernetes.message) == (Level.PASS, where)
    assert reads(role, Level.PASS, "system:serviceaccount:training:spark has the rights that Spark and sparktrain need")


def test_an_account_without_a_role_is_reported_with_what_it_may_not_do() -> None:
    role = only(server_findings(RecordedApi("bare")), "role")
    denied = "may not create/get/list/watch/delete/deletecollection pods, create/deletecollection configmaps, "
    step = "kubectl apply --namespace bare --filename conf/kubernetes/role.yaml, and use its account `spark`"
    assert reads(role, Level.FAIL, f"system:serviceaccount:bare:spark {denied}", "can start no executors", step)
    assert reads(only(pods_findings(RecordedApi("bare"), PODS), "pods"), Level.WARN, "may not list pods", ROLE_FILE)


def test_a_role_that_may_not_tidy_up_costs_something_and_no_more() -> None:
    class Untidy(RecordedApi):
        def ask(self, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
            resource = (body or {}).get("spec", {}).get("resourceAttributes", {}).get("resource")
            return {"status": {"allowed": False}} if resource == "services" else super().ask(path, body)

    role = only(server_findings(Untidy("training")), "role")
    assert reads(role, Level.WARN, "may not deletecollection services in namespace training: Spark logs errors")


def test_the_rights_that_it_looks_for_are_those_of_the_file() -> None:
    documents = yaml.safe_load_all((Path(__file__).parents[4] / ROLE_FILE).read_text())
    roles = {document["metadata"]["name"]: document["rules"] for document in documents if document["kind"] == "Role"}
    assert {rule["resources"][0]: tuple(rule["verbs"]) for rule in roles["spark"]} == NEEDED


def test_a_token_that_the_server_does_not_know() -> None:
    [finding] = server_findings(RecordedApi("stranger"))
    assert reads(finding, Level.FAIL, "does not know the token or certificate of this driver", "kubectl create token")


def test_a_server_that_does_not_answer() -> None:
    class Away(RecordedApi):
        def ask(self, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
            raise ApiError("Connection refused", 0)

    [finding] = server_findings(Away("training"))
    assert reads(
        finding, Level.FAIL, "no API server answers at https://kubernetes.example.com:6443: Connection refused"
    )


def test_the_pods_that_run() -> None:
    [finding] = pods_findings(RecordedApi("training"), PODS)
    assert reads(finding, Level.PASS, "2 executor pods of image localhost/sparktrain:1 on node-a, node-b")
    [finding] = pods_findings(RecordedApi("training"))
    assert reads(finding, Level.PASS, "the API server accepts a pod of an executor in namespace training")


def test_pods_that_run_and_do_not_register() -> None:
    [finding] = pods_findings(RecordedApi("training"), replace(PODS, answered=False))
    assert reads(finding, Level.FAIL, "no executor has registered", "let pods connect to the driver at 10.0.0.5")


def test_pods_that_are_missing_though_the_server_accepts_them() -> None:
    [finding] = pods_findings(RecordedApi("training"), replace(PODS, executors=3))
    words = ("2 of 3 executor pods run", "have ended soon after their start", "10.0.0.5", "`kubectl logs`")
    assert reads(finding, Level.WARN, *words)


@pytest.mark.parametrize(
    ("namespace", "reason", "step"),
    [
        (
            "full",
            "quota quota of their namespace has no room (requested: pods=1, used: pods=1, ",
            "lower spark.executor",
        ),
        ("secure", 'forbids them ("restricted:latest": allowPrivilegeEscalation', "a template like conf/kubernetes/"),
        ("denied", "'cost-centre' denies them (pods need a cost centre", "correct the settings spark.kubernetes"),
        (
            "invalid",
            "they are invalid (spec.containers[0].image: Required value",
            "correct the settings spark.kubernet",
        ),
    ],
)
def test_a_pod_that_the_server_refuses(namespace: str, reason: str, step: str) -> None:
    [finding] = pods_findings(RecordedApi(namespace), PODS)
    assert reads(finding, Level.FAIL, "the API server refuses pods of executors: ", reason, step)
    assert "sparktrain-doctor" not in finding.message
    assert len(finding.message) < 400


def test_a_process_without_a_driver_of_spark_has_no_api() -> None:
    with spark_api(None) as api:
        assert api is None


def test_a_jvm_that_has_ended_has_no_api(monkeypatch: pytest.MonkeyPatch) -> None:
    class Ended:
        def __getattr__(self, name: str) -> Any:
            raise ConnectionRefusedError(name)

    monkeypatch.setattr(SparkContext, "_jvm", Ended())
    with spark_api(None) as api:
        assert api is None
