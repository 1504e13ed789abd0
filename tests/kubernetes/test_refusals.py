"""Why the API server creates no pods for an application, in the words of the calls that wait for them."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.support.kubernetes import ACCOUNT, NAMESPACE, Kubernetes, Submission, fast_conf, submission
from tests.support.kubernetes.cluster import ROLE
from tests.support.kubernetes.webhook import NAME, webhook
from tests.support.processes import wait_until

pytestmark = [pytest.mark.kubernetes, pytest.mark.timeout(300)]

PROGRAM = Path(__file__).with_name("pod_refusals.py")
END_S = 200.0
REPORT_S = 30.0
"""In which a call reports why it gets no pod."""
ONE = {
    "spark.executor.instances": "1",
    "spark.scheduler.maxRegisteredResourcesWaitingTime": "1s",
    "spark.executor.maxNumFailures": "1000000",
}
FREE = '--patch=[{"op": "remove", "path": "/metadata/finalizers"}]'


def folder_of(kubernetes: Kubernetes, name: str) -> Path:
    folder = kubernetes.shared / name
    folder.mkdir()
    folder.chmod(0o777)
    return folder


def reported(folder: Path) -> Any:
    return json.loads((folder / "reported.json").read_text())


def in_namespace(kubernetes: Kubernetes, name: str, quota: Mapping[str, str]) -> dict[str, str]:
    """Spark's settings for a namespace of its own, with the role of conf/kubernetes/role.yaml."""
    kubernetes.add_namespace(name, quota)
    kubernetes.kubectl("apply", f"--namespace={name}", f"--filename={ROLE}")
    token = kubernetes.folder / f"token-{name}"
    token.write_text(kubernetes.token(ACCOUNT, name))
    return {
        "spark.kubernetes.namespace": name,
        "spark.kubernetes.authenticate.oauthTokenFile": str(token),
        "spark.kubernetes.executor.node.selector.accelerator": "none",
    }


def test_a_call_ends_soon_where_the_template_of_pods_is_refused(kubernetes: Kubernetes) -> None:
    folder = folder_of(kubernetes, "template")
    (folder / "changed").touch()
    key = "spark.kubernetes.executor.podTemplateFile"
    template = json.loads(Path(fast_conf(kubernetes)[key]).read_text())
    template["spec"]["tolerations"] = [{"key": "gpu", "operator": "Is"}]
    path = kubernetes.folder / "refused.json"
    path.write_text(json.dumps(template))
    with submission(kubernetes, PROGRAM, str(folder), conf={**ONE, key: str(path)}) as submitted:
        assert submitted.wait(END_S) == 0, submitted.output
        log = submitted.output
    error, message, seconds = reported(folder)
    assert error == "ResourceError"
    assert 'they are invalid (spec.tolerations[0].operator: Unsupported value: "Is"' in message
    assert seconds < REPORT_S
    assert log.count("Kubernetes refuses executor pods") < 5, "not each second"


def test_a_call_reports_what_refuses_its_pods_until_it_cannot_change(kubernetes: Kubernetes) -> None:
    """One call meets a quota, then a webhook that does not answer, and one that denies."""
    folder = folder_of(kubernetes, "refused")
    (folder / "changed").touch()
    conf = in_namespace(kubernetes, "refusing", {"pods": "0"})
    with submission(kubernetes, PROGRAM, str(folder), conf=ONE | conf) as submitted:
        wait_for(submitted, "quota quota of their namespace has no room (requested: pods=1, used: pods=0,")
        # The API server asks webhooks before it looks at the quota.
        with webhook(kubernetes, "refusing", ""):
            wait_for(submitted, f'admission webhook "{NAME}" fails (failed to call webhook: ')
        with webhook(kubernetes, "refusing", "pods need the label team"):
            assert submitted.wait(REPORT_S) == 0, submitted.output
    error, message, _ = reported(folder)
    assert error == "ResourceError"
    assert f'admission webhook "{NAME}" denies them (pods need the label team): correct' in message


def wait_for(submitted: Submission, text: str) -> None:
    wait_until(lambda: text in " ".join(submitted.output.split()), END_S, text)


def test_a_call_ends_soon_without_the_right_to_create_pods(kubernetes: Kubernetes) -> None:
    folder = folder_of(kubernetes, "rights")
    conf = in_namespace(kubernetes, "unentitled", {"pods": "0"})
    verbs = (
        '--patch=[{"op": "replace", "path": "/rules/0/verbs", "value": ["get", "list", "watch", "deletecollection"]}]'
    )
    with submission(kubernetes, PROGRAM, str(folder), conf=ONE | conf) as submitted:
        wait_until((folder / "started").exists, END_S, "the session has started")
        kubernetes.kubectl("patch", "role", ACCOUNT, "--namespace=unentitled", "--type=json", verbs)
        (folder / "changed").touch()
        assert submitted.wait(END_S) == 0, submitted.output
    error, message, seconds = reported(folder)
    assert error == "ResourceError"
    assert "system:serviceaccount:unentitled:spark may not create pods in namespace unentitled: apply" in message
    assert seconds < REPORT_S


def test_a_call_ends_soon_in_a_namespace_that_is_being_deleted(kubernetes: Kubernetes) -> None:
    folder = folder_of(kubernetes, "ending")
    conf = in_namespace(kubernetes, "ending", {"pods": "5"})
    # Of this account, not of the one that is deleted with the namespace.
    conf["spark.kubernetes.authenticate.oauthTokenFile"] = fast_conf(kubernetes)[
        "spark.kubernetes.authenticate.oauthTokenFile"
    ]
    kubernetes.kubectl(
        "create", "clusterrolebinding", "ending", "--clusterrole=admin", f"--serviceaccount={NAMESPACE}:{ACCOUNT}"
    )
    held = {"metadata": {"name": "held", "finalizers": ["example.com/held"]}}
    kubernetes.api.post("/api/v1/namespaces/ending/configmaps", held)
    try:
        with submission(kubernetes, PROGRAM, str(folder), conf=ONE | conf) as submitted:
            wait_until((folder / "started").exists, END_S, "the session has started")
            kubernetes.api.delete("/api/v1/namespaces/ending")
            (folder / "changed").touch()
            assert submitted.wait(END_S) == 0, submitted.output
    finally:
        kubernetes.kubectl("patch", "configmap", "held", "--namespace=ending", "--type=json", FREE)
        kubernetes.kubectl("delete", "clusterrolebinding", "ending")
    error, message, seconds = reported(folder)
    assert error == "ResourceError"
    assert "namespace ending is being deleted: use another one (spark.kubernetes.namespace)" in message
    assert seconds < REPORT_S
