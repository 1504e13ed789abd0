"""What an API server answers the doctor, replayed.

`python -m tests.support.kubernetes.doctor_answers` records it again, from a cluster of this machine, in 20 s.
"""

import json
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sparktrain.cluster.kubernetes_api import Api as SparkApi
from sparktrain.cluster.kubernetes_api import ApiError
from sparktrain.ops.doctor.kubernetes import Pods, pods_findings, server_findings
from tests.support.kubernetes import pod_image
from tests.support.kubernetes.api import Api
from tests.support.kubernetes.api import ApiError as Refused
from tests.support.kubernetes.cluster import ACCOUNT, NAMESPACE, ROLE, Kubernetes, kubernetes

FILE = Path(__file__).parents[2] / "unit" / "cluster" / "kubernetes_answers" / "doctor.json"
PODS = Pods(application="spark-1", executors=2, answered=True)
_EXECUTORS = {"spark-role": "executor", "spark-app-selector": PODS.application}
_POLICY = "admissionregistration.k8s.io/v1"


class RecordedApi(SparkApi):
    """Answers as a server has answered before; an error for any other question."""

    def __init__(self, case: str) -> None:
        self.url = "https://kubernetes.example.com:6443"
        self.driver = "10.0.0.5"
        recorded = json.loads(FILE.read_text())[case]
        self.namespace = recorded["namespace"]
        self._answers: dict[str, dict[str, Any]] = recorded["answers"]

    def ask(self, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """See base class."""
        answer = self._answers[_key(path, body)]
        if "error" in answer:
            raise ApiError(answer["error"], answer["status"])
        return answer

    def executor_pod(self) -> dict[str, Any]:
        """See base class."""
        return {}


class _Recorder(SparkApi):
    """Asks a server, and keeps what it answers."""

    def __init__(self, cluster: Kubernetes, namespace: str, token: str) -> None:
        self.url = cluster.plane.url
        self.namespace = namespace
        self.answers: dict[str, Any] = {}
        self._server = Api(self.url, token, cluster.plane.certificate)
        self._shared = cluster.shared

    def ask(self, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """See base class."""
        try:
            answer = self._server.get(path) if body is None else self._server.post(path, dict(body))
        except Refused as refused:
            written = str(refused)
            message = json.loads(written[written.index("{") :])["message"]
            self.answers[_key(path, body)] = {"error": message, "status": refused.status}
            raise ApiError(message, refused.status) from None
        self.answers[_key(path, body)] = _bare(answer)
        return answer

    def executor_pod(self) -> dict[str, Any]:
        """See base class."""
        pod = pod_image.pod(self._shared, "sparktrain-doctor-1", ["true"], {})
        if self.namespace == "invalid":
            del pod["spec"]["containers"][0]["image"]
        return pod


def _key(path: str, body: Mapping[str, Any] | None) -> str:
    attributes = (body or {}).get("spec", {}).get("resourceAttributes", {})
    return " ".join([path, *(attributes[name] for name in ("verb", "resource") if name in attributes)])


def _bare(answer: Mapping[str, Any]) -> dict[str, Any]:
    """What the doctor reads of an answer."""
    if "items" in answer:
        return {"items": [_bare_pod(pod) for pod in answer["items"]]}
    status = answer.get("status", {})
    named = {"userInfo": {"username": status["userInfo"]["username"]}} if "userInfo" in status else {}
    allowed = {"allowed": status["allowed"]} if "allowed" in status else {}
    return {"gitVersion": answer["gitVersion"]} if "gitVersion" in answer else {"status": {**named, **allowed}}


def _bare_pod(pod: Mapping[str, Any]) -> dict[str, Any]:
    images = [{"image": container["image"]} for container in pod["spec"]["containers"]]
    return {
        "metadata": {"name": pod["metadata"]["name"]},
        "spec": {"nodeName": pod["spec"].get("nodeName"), "containers": images},
        "status": {"phase": pod["status"]["phase"]},
    }


def _run(cluster: Kubernetes, namespace: str, *names: str) -> None:
    """Start pods as an application's executors, and wait until they run."""
    for number, name in enumerate(names):
        pod = pod_image.pod(cluster.shared, name, ["sleep", "600"], {}, nodeName=f"node-{'ab'[number]}")
        pod["metadata"]["labels"] = _EXECUTORS
        cluster.api.post(f"/api/v1/namespaces/{namespace}/pods", pod)
        cluster.wait_pod(name, "Running", namespace=namespace)


def _deny(cluster: Kubernetes) -> None:
    """Have a policy of the cluster deny pods of one namespace."""
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
    spec = {
        "matchConstraints": {"resourceRules": [rule]},
        "validations": [{"expression": "object.metadata.namespace != 'denied'", "message": "pods need a cost centre"}],
    }
    names = {"policyName": "cost-centre", "validationActions": ["Deny"]}
    for kind, body in {"ValidatingAdmissionPolicy": spec, "ValidatingAdmissionPolicyBinding": names}.items():
        plural = "ies".join(kind.rsplit("y", 1)) if kind.endswith("y") else f"{kind}s"
        document = {"apiVersion": _POLICY, "kind": kind, "metadata": {"name": "cost-centre"}, "spec": body}
        cluster.api.post(f"/apis/{_POLICY}/{plural.lower()}", document)


def _prepare(cluster: Kubernetes) -> dict[str, str]:
    """Make a namespace for each case; the token of the account that asks there."""
    for name in ("bare", "full", "secure", "denied", "invalid"):
        cluster.add_namespace(name, {"pods": "1" if name == "full" else "9"})
        if name != "bare":
            cluster.kubectl("apply", f"--namespace={name}", f"--filename={ROLE}")
    cluster.kubectl("create", "serviceaccount", ACCOUNT, "--namespace=bare")
    cluster.kubectl("label", "namespace", "secure", "pod-security.kubernetes.io/enforce=restricted")
    _deny(cluster)
    _run(cluster, NAMESPACE, "executor-1", "executor-2")
    _run(cluster, "full", "executor-1")
    names = (NAMESPACE, "bare", "full", "secure", "denied", "invalid")
    return {name: cluster.token(ACCOUNT, name) for name in names} | {"stranger": "none"}


@contextmanager
def _started() -> Iterator[Kubernetes]:
    with tempfile.TemporaryDirectory() as folder, kubernetes(Path(folder) / "cluster") as cluster:
        yield cluster


def main() -> None:
    """Record all cases, each under the name of its namespace."""
    cases = {}
    with _started() as cluster:
        for namespace, token in _prepare(cluster).items():
            recorder = _Recorder(cluster, namespace, token)
            server_findings(recorder)
            pods_findings(recorder, PODS)
            pods_findings(recorder)
            cases[namespace] = {"namespace": namespace, "answers": recorder.answers}
    FILE.write_text(json.dumps(cases, indent=1) + "\n")


if __name__ == "__main__":
    main()
