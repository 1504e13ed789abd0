"""The doctor on a cluster of pods: with the rights of conf/kubernetes/role.yaml, and with too few."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.kubernetes import GPU, Kubernetes, submission
from tests.support.kubernetes.cluster import ROLE

pytestmark = [pytest.mark.kubernetes, pytest.mark.timeout(300)]

PROGRAM = Path(__file__).with_name("pod_doctor.py")
END_S = 200.0
GPUS = {
    "spark.executor.resource.gpu.amount": "1",
    "spark.executor.resource.gpu.vendor": GPU.partition("/")[0],
    "spark.executor.resource.gpu.discoveryScript": str(Path(__file__).parents[2] / "conf" / "gpu-discovery.sh"),
    "spark.executorEnv.SPARKTRAIN_GPU_ADDRESSES": "0",
    "spark.task.resource.gpu.amount": "1",
}
"""A GPU of Kubernetes for each executor; the first one of its pod has the address 0."""


def examined(cluster: Kubernetes, name: str, conf: dict[str, str]) -> tuple[int, dict[str, Any]]:
    """The exit code of the doctor, and its report."""
    folder = cluster.shared / name
    folder.mkdir()
    folder.chmod(0o777)
    report = folder / "report.json"
    with submission(cluster, PROGRAM, str(report), f"--dir={folder}/runs", conf=conf) as submitted:
        status = submitted.wait(END_S)
        assert report.exists(), submitted.output
    return status, json.loads(report.read_text())


def test_all_that_a_run_needs_is_there(kubernetes: Kubernetes) -> None:
    status, report = examined(kubernetes, "doctor", GPUS)
    findings = {finding["check"]: finding for finding in report["findings"]}
    assert status == 0, report
    assert findings["kubernetes"]["message"] == (f"Kubernetes v1.36.3 at {kubernetes.plane.url}, namespace training")
    assert findings["role"]["message"].startswith("system:serviceaccount:training:spark has the rights")
    assert findings["pods"]["message"] == "2 executor pods of image localhost/sparktrain:1 on node-a, node-b"
    assert findings["gpus"]["message"] in ("2 GPUs on node-a, node-b", "2 GPUs on node-b, node-a")
    assert findings["shared memory"]["message"].startswith("at least 2.0 GiB on ")
    passed = {check for check, finding in findings.items() if finding["level"] == "pass"}
    assert passed >= {"executors", "driver reachable", "versions", "ports", "store on executors"}
    assert findings["dns"]["level"] == "warn", "no DNS runs in this cluster"
    assert report["unseen"] == []


def test_a_driver_without_rights_is_told_which(kubernetes: Kubernetes) -> None:
    kubernetes.kubectl("create", "serviceaccount", "powerless", "--namespace=training")
    token = kubernetes.folder / "token-powerless"
    token.write_text(kubernetes.token("powerless"))
    conf = {"spark.kubernetes.authenticate.oauthTokenFile": str(token)}
    status, report = examined(kubernetes, "doctor-powerless", conf)
    findings = {finding["check"]: finding for finding in report["findings"]}
    assert status == 1
    assert findings["session"]["level"] == "fail"
    assert "powerless may not create/get/list/watch/delete/deletecollection pods" in findings["role"]["message"]
    assert report["unseen"] == [
        "the executors: there is no session",
        "what Kubernetes allows its pods: see the failure above",
    ]


def test_a_quota_that_leaves_no_room_for_an_executor_is_named(kubernetes: Kubernetes) -> None:
    kubernetes.add_namespace("narrow", {"pods": "1"})
    kubernetes.kubectl("apply", "--namespace=narrow", f"--filename={ROLE}")
    token = kubernetes.folder / "token-narrow"
    token.write_text(kubernetes.token(namespace="narrow"))
    conf = {"spark.kubernetes.namespace": "narrow", "spark.kubernetes.authenticate.oauthTokenFile": str(token)}
    waits = {"spark.scheduler.maxRegisteredResourcesWaitingTime": "1s"}
    status, report = examined(kubernetes, "doctor-narrow", conf | waits)
    findings = {finding["check"]: finding for finding in report["findings"]}
    assert status == 1
    assert findings["role"]["level"] == "pass"
    quota = "quota quota of their namespace has no room (requested: pods=1, used: pods=1, limited: pods=1)"
    assert findings["pods"]["message"] == f"the API server refuses pods of executors: {quota}"
