"""What Kubernetes' API server answers about a session's server, role and pods, and what that means for a run."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct

from sparktrain.base import formatting
from sparktrain.cluster.check_finding import Finding, Level, failed, of_message, passed, warned
from sparktrain.cluster.kubernetes_api import Api, ApiError
from sparktrain.cluster.kubernetes_pods import waiting
from sparktrain.cluster.kubernetes_refusals import explained

ROLE_FILE = "conf/kubernetes/role.yaml"
NEEDED = {
    "pods": ("create", "get", "list", "watch", "delete", "deletecollection"),
    "configmaps": ("create", "deletecollection"),
    "persistentvolumeclaims": ("list", "deletecollection"),
    "services": ("deletecollection",),
}
"""The rights of a driver, by resource: those of `ROLE_FILE`."""
_TIDY_VERBS = frozenset({"deletecollection"})
_TIDY_RESOURCES = frozenset({"persistentvolumeclaims", "services"})
"""Without rights to these, Spark logs errors and works."""
_AUTHORIZATION = "authorization.k8s.io/v1"
_AUTHENTICATION = "authentication.k8s.io/v1"
_LABELS = "spark-role%3Dexecutor%2Cspark-app-selector%3D"
_NO_DRY_RUN = "does not support dry run"
_SEE_LOGS = (
    "set spark.kubernetes.executor.deleteOnTermination=false, and see `kubectl logs` of one; docs/kubernetes.md has "
    "what its image needs"
)


class Pods(Struct, frozen=True, kw_only=True):
    """The executors of a session."""

    application: str
    executors: int
    """How many pods the run needs."""
    answered: bool
    """Whether a slot has answered."""


def server_findings(api: Api) -> list[Finding]:
    """Whether the API server answers this driver, and what its account lacks. Blocks."""
    try:
        version = api.ask("/version")["gitVersion"]
        account = str(_review(api, _AUTHENTICATION, "SelfSubjectReview")["status"]["userInfo"]["username"])
        denied = {resource: verbs for resource in NEEDED if (verbs := list(_denied(api, resource)))}
    except ApiError as error:
        return [_unanswered(api, error)]
    where = f"Kubernetes {version} at {api.url}, namespace {api.namespace}"
    return [passed("kubernetes", where), role_finding(account, api.namespace, denied)]


def role_finding(account: str, namespace: str, denied: Mapping[str, Sequence[str]]) -> Finding:
    """The finding from what the account may not do. Pure."""
    if not denied:
        return passed("role", f"{account} has the rights that Spark and sparktrain need")
    lacking = ", ".join(f"{'/'.join(verbs)} {resource}" for resource, verbs in denied.items())
    message = f"{account} may not {lacking} in namespace {namespace}"
    step = f"kubectl apply --namespace {namespace} --filename {ROLE_FILE}, and use its account `spark`"
    if all(resource in _TIDY_RESOURCES or _TIDY_VERBS.issuperset(verbs) for resource, verbs in denied.items()):
        return warned("role", f"{message}: Spark logs errors at its end, and leaves what it has created", step)
    return failed("role", f"{message}: Spark can start no executors, or cannot follow them", step)


def pods_findings(api: Api, pods: Pods | None = None) -> list[Finding]:
    """The pods of a session's executors, and why some are missing; without one, whether a pod is allowed. Blocks."""
    allowed = f"the API server accepts a pod of an executor in namespace {api.namespace}"
    if pods is None:
        return [_refused(api) or passed("pods", allowed)]
    try:
        listed = _listed(api, pods.application)
    except ApiError as error:
        reason, step = explained(str(error))
        return [warned("pods", f"not known: {reason}", step)]
    if reasons := waiting(listed):
        return [of_message("pods", Level.FAIL, reasons)]
    running = [pod for pod in listed if pod["status"].get("phase") == "Running"]
    if len(running) < pods.executors:
        number = f"{len(running)} of {formatting.count(pods.executors, 'executor pod')}"
        ended = f"{number} run, and {allowed}: others start slowly, or have ended soon after their start"
        return [_refused(api) or warned("pods", f"{ended}, as without a way to {api.driver}", _SEE_LOGS)]
    nodes = ", ".join(sorted({str(pod["spec"].get("nodeName")) for pod in running}))
    images = ", ".join(sorted({str(pod["spec"]["containers"][-1]["image"]) for pod in running}))
    running_pods = f"{formatting.count(len(running), 'executor pod')} of image {images} on {nodes}"
    if not pods.answered:
        step = f"let pods connect to the driver at {api.driver}; else {_SEE_LOGS}"
        return [failed("pods", f"{running_pods} run, and no executor has registered with the driver", step)]
    return [passed("pods", running_pods)]


def _review(api: Api, group: str, kind: str, spec: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The API server's answer to a question about the account that asks, which any account may put."""
    body = {"apiVersion": group, "kind": kind, **({} if spec is None else {"spec": spec})}
    return api.ask(f"/apis/{group}/{kind.lower()}s", body)


def _denied(api: Api, resource: str) -> Iterator[str]:
    for verb in NEEDED[resource]:
        attributes = {"namespace": api.namespace, "verb": verb, "resource": resource}
        review = _review(api, _AUTHORIZATION, "SelfSubjectAccessReview", {"resourceAttributes": attributes})
        if not review["status"].get("allowed"):
            yield verb


def _unanswered(api: Api, error: ApiError) -> Finding:
    if error.status == 401:
        return failed(
            "kubernetes",
            f"the API server at {api.url} does not know the token or certificate of this driver",
            "set spark.kubernetes.authenticate.oauthTokenFile to a new token: kubectl create token spark",
        )
    if error.status:
        return warned(
            "role",
            f"the rights of this driver's account are not known: {error}",
            "kubectl auth can-i --list shows your rights",
        )
    step = "correct the master k8s://https://HOST:PORT, and let this machine connect to it"
    return failed("kubernetes", f"no API server answers at {api.url}: {error}", step)


def _listed(api: Api, application: str) -> list[dict[str, Any]]:
    return list(api.ask(f"/api/v1/namespaces/{api.namespace}/pods?labelSelector={_LABELS}{application}")["items"])


def _refused(api: Api) -> Finding | None:
    """Whether the API server refuses another executor's pod, by a request that creates none."""
    try:
        pod = api.executor_pod()
    except ApiError as error:
        step = "correct spark.kubernetes.executor.podTemplateFile, or the other settings that the message names"
        return failed("pods", f"Spark cannot make a pod of an executor: {error}", step)
    try:
        api.ask(f"/api/v1/namespaces/{api.namespace}/pods?dryRun=All", pod)
    except ApiError as error:
        if _NO_DRY_RUN in str(error):
            return warned("pods", f"not known whether a pod is allowed: {error}", "see the log of Spark's driver")
        reason, step = explained(str(error))
        return failed("pods", f"the API server refuses pods of executors: {reason}", step)
    return None
