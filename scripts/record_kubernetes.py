"""Records what Kubernetes' real API server answers of pods that do not start, are held or refused, and are lost.

    make record-kubernetes

Tests in tests/unit/cluster read the answers. Another version of Kubernetes may word them otherwise: after a change of
scripts/kubernetes/go.mod, record them, and look at what git shows. Takes three minutes, as root.
"""

import json
import os
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.daemons import DaemonError, wait_until
from tests.support.kubernetes import (
    ACCOUNT,
    GPU,
    NAMESPACE,
    Api,
    ApiError,
    Knobs,
    Kubernetes,
    NodeSpec,
    kubernetes,
    pod_image,
)
from tests.support.kubernetes.cluster import NODES
from tests.support.kubernetes.webhook import webhook

ANSWERS = Path(__file__).parents[1] / "tests" / "unit" / "cluster" / "kubernetes_answers"
QUEUE = Path(__file__).parents[1] / "conf" / "kubernetes" / "kueue.yaml"
WAIT_S = 120.0
QUOTA = {"pods": "1"}
STORAGE = "ephemeral-storage"
_ADDRESS = re.compile(r"\d+\.\d+\.\d+\.\d+:\d+")
"""Another one with each cluster."""
_READY = ("Ready", "ContainersReady")
"""Conditions by which a pod on a node that is silent differs from others."""
_OF_CONDITION = ("type", "status", "reason", "message")
_OF_STATE = ("reason", "message", "exitCode")


def trimmed(pod: Mapping[str, Any]) -> dict[str, Any]:
    """What tests read of a pod, so that a diff shows what Kubernetes has changed."""
    status = pod["status"]
    kept = {key: status[key] for key in ("phase", "reason", "message") if key in status}
    kept["conditions"] = [
        {key: condition[key] for key in _OF_CONDITION if key in condition}
        for condition in status.get("conditions", ())
        if "reason" in condition or condition["type"] in _READY
    ]
    if containers := status.get("containerStatuses"):
        kept["containerStatuses"] = [
            {"name": container["name"], "image": container["image"], "state": _state(container["state"])}
            for container in containers
        ]
    return {"metadata": {"name": pod["metadata"]["name"]}, "status": kept}


def _state(state: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    return {name: {key: of[key] for key in _OF_STATE if key in of} for name, of in state.items()}


# ---- pods that do not start


def waiting(cluster: Kubernetes) -> dict[str, Any]:
    """Pods that no node takes, with an image that does not exist, and with a container that cannot be made."""
    secret = [{"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "absent", "key": "key"}}}]
    cluster.run_pod("gpus", "true", container={"resources": {"limits": {GPU: "3"}}})
    cluster.run_pod("memory", "true", container={"resources": {"requests": {"memory": "900Gi"}}})
    cluster.run_pod("label", "true", nodeSelector={"accelerator": "none"})
    cluster.run_pod("image", "true", container={"image": "registry.invalid/none:1"})
    cluster.run_pod("config", "true", container={"env": secret})
    reasons = dict.fromkeys(("gpus", "memory", "label"), "Unschedulable")
    reasons |= {"image": "ImagePullBackOff", "config": "CreateContainerConfigError"}
    pods = {}
    for name, reason in reasons.items():
        wait_until([], lambda name=name, reason=reason: reason in json.dumps(cluster.pod(name)), WAIT_S, reason)
        pods[name] = trimmed(cluster.pod(name))
        cluster.delete_pod(name, grace_s=0)
    return pods


# ---- pods that are held


def queued(cluster: Kubernetes) -> dict[str, Any]:
    """Pods with gates: a group that Kueue has no room for, with its workload, and one that is not complete."""
    cluster.kubectl("apply", f"--namespace={NAMESPACE}", f"--filename={QUEUE}")
    groups = {"first": ("a", "b"), "second": ("c", "d"), "part": ("e",)}
    for group, names in groups.items():
        for name in names:
            body = pod_image.pod(cluster.shared, name, ("true",), {"resources": {"requests": {"memory": "200Gi"}}})
            body["metadata"] |= {
                "labels": {"kueue.x-k8s.io/queue-name": "training", "kueue.x-k8s.io/pod-group-name": group},
                "annotations": {"kueue.x-k8s.io/pod-group-total-count": "2"},
            }
            cluster.api.post(f"/api/v1/namespaces/{NAMESPACE}/pods", body)
        if group == "first":
            wait_until([], lambda: not held(cluster.pod("a"))["spec"], WAIT_S, "the first group is admitted")
    path = f"/apis/kueue.x-k8s.io/v1beta1/namespaces/{NAMESPACE}/workloads"
    wait_until([], lambda: "insufficient" in cluster.api.request("GET", path), WAIT_S, "the second group waits")
    workload = cluster.api.get(f"{path}/second")
    pods = {group: [held(cluster.pod(name)) for name in names] for group, names in groups.items()}
    return {**pods, "workload": trimmed(workload)}


def held(pod: Mapping[str, Any]) -> dict[str, Any]:
    """What tests read of a pod with gates."""
    answer = trimmed(pod)
    answer["metadata"] |= {key: pod["metadata"][key] for key in ("labels", "annotations")}
    return answer | {"spec": {key: value for key, value in pod["spec"].items() if key == "schedulingGates"}}


# ---- pods that are refused


def refusals(cluster: Kubernetes) -> dict[str, Any]:
    """Why the API server creates no pod: a quota, rights, rules of a namespace, webhooks, and what is no valid pod."""
    answers = {}
    cluster.add_namespace("used-up", {"pods": "0", "requests.memory": "1Gi"})
    answers["quota"] = refused(cluster, "used-up", container={"resources": {"requests": {"memory": "2Gi"}}})
    account = Api(cluster.plane.url, cluster.token(ACCOUNT), cluster.plane.certificate)
    cluster.add_namespace("other", QUOTA)
    answers["rights"] = refused(cluster, "other", account)
    answers["token"] = refused(cluster, "other", Api(cluster.plane.url, "expired", cluster.plane.certificate))
    cluster.add_namespace("restricted", QUOTA)
    cluster.kubectl("label", "namespace", "restricted", "pod-security.kubernetes.io/enforce=restricted")
    answers["security"] = refused(cluster, "restricted")
    most = {"limits": [{"type": "Container", "max": {"memory": "1Gi"}}]}
    cluster.add_namespace("limited", QUOTA)
    cluster.api.post("/api/v1/namespaces/limited/limitranges", {"metadata": {"name": "most"}, "spec": most})
    answers["limits"] = refused(cluster, "limited", container={"resources": {"limits": {"memory": "2Gi"}}})
    answers["account"] = refused(cluster, NAMESPACE, serviceAccountName="absent")
    answers["invalid"] = refused(cluster, NAMESPACE, tolerations=[{"key": "gpu", "operator": "Is"}])
    for name, message in {"webhook": "pods need the label team", "silent webhook": ""}.items():
        with webhook(cluster, "other", message):
            wait_until([], lambda: is_refused(cluster, "other"), WAIT_S, "the API server asks the webhook")
            answers[name] = refused(cluster, "other")
    with ending(cluster, "ending"):
        answers["ending"] = refused(cluster, "ending")
    return answers


def refused(cluster: Kubernetes, namespace: str, api: Api | None = None, **pod: Any) -> dict[str, Any]:
    """The status by which the API server refuses a pod."""
    body = pod_image.pod(cluster.shared, "pod", ("true",), pod.pop("container", {}), **pod)
    try:
        (api or cluster.api).post(f"/api/v1/namespaces/{namespace}/pods", body)
    except ApiError as error:
        status = json.loads(str(error)[str(error).index("{") :])
        return {key: status[key] for key in ("message", "code")}
    raise DaemonError(f"a pod in {namespace} was not refused")


def is_refused(cluster: Kubernetes, namespace: str) -> bool:
    """Whether the API server refuses a pod; one that it creates is deleted."""
    try:
        refused(cluster, namespace)
    except DaemonError:
        cluster.delete_pod("pod", grace_s=0, namespace=namespace)
        return False
    return True


@contextmanager
def ending(cluster: Kubernetes, namespace: str) -> Iterator[None]:
    """A namespace that is being deleted until the block ends."""
    cluster.add_namespace(namespace, QUOTA)
    held = {"metadata": {"name": "held", "finalizers": ["example.com/held"]}}
    cluster.api.post(f"/api/v1/namespaces/{namespace}/configmaps", held)
    cluster.api.delete(f"/api/v1/namespaces/{namespace}")
    try:
        yield
    finally:
        free = '[{"op": "remove", "path": "/metadata/finalizers"}]'
        cluster.kubectl("patch", "configmap", "held", f"--namespace={namespace}", "--type=json", f"--patch={free}")


# ---- pods that are lost


def losses(cluster: Kubernetes) -> dict[str, Any]:
    """The last states of pods that were deleted, evicted, preempted, and on a node that was lost."""
    pods = {}
    write(cluster, "memory", 800, {"medium": "Memory"}, nodeName="short")
    pods["memory"] = last_state(cluster, "memory")
    # A node that has measured that it lacks memory rejects pods with the reason of those that it evicts.
    wait_until([], lambda: has_pressure(cluster, "short"), WAIT_S, "the node has too little memory")
    cluster.run_pod("pressure", "true", nodeName="short")
    pods["pressure"] = last_state(cluster, "pressure")
    started(cluster, "deleted")
    cluster.delete_pod("deleted")
    pods["deleted"] = last_state(cluster, "deleted")
    started(cluster, "drained")
    # As `kubectl drain` does, which waits until the pod is gone.
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "drained"}}
    cluster.api.post(f"/api/v1/namespaces/{NAMESPACE}/pods/drained/eviction", eviction)
    pods["drained"] = last_state(cluster, "drained")
    gpus = {"resources": {"limits": {GPU: "2"}}}
    cluster.api.post("/apis/scheduling.k8s.io/v1/priorityclasses", {"metadata": {"name": "urgent"}, "value": 1000})
    started(cluster, "preempted", container=gpus)
    node = {"kubernetes.io/hostname": "node-a"}
    cluster.run_pod("urgent", "sleep", "30", container=gpus, priorityClassName="urgent", nodeSelector=node)
    pods["preempted"] = last_state(cluster, "preempted")
    cluster.delete_pod("urgent", grace_s=0)
    words = ("sh", "-c", "dd if=/dev/zero of=/tmp/file bs=1M count=50; sleep 600")
    started(cluster, "storage", *words, container={"resources": {"limits": {STORAGE: "10Mi"}}})
    pods["storage"] = last_state(cluster, "storage")
    write(cluster, "volume", 50, {"sizeLimit": "10Mi"}, nodeName="node-a")
    pods["volume"] = last_state(cluster, "volume")
    started(cluster, "node")
    cluster.node("node-a").kubelet.kill9()
    cluster.wait_condition("node", "DisruptionTarget", "True", timeout_s=WAIT_S)
    pods["node"] = trimmed(cluster.pod("node"))
    return pods


def write(cluster: Kubernetes, name: str, mib: int, volume: Mapping[str, str], **spec: Any) -> None:
    """Start a pod that writes as much into a volume, and waits for its end."""
    words = ("sh", "-c", f"dd if=/dev/zero of=/scratch/file bs=1M count={mib}; sleep 600")
    body = pod_image.pod(cluster.shared, name, words, {}, **spec)
    body["spec"]["volumes"].append({"name": "scratch", "emptyDir": volume})
    body["spec"]["containers"][0]["volumeMounts"].append({"name": "scratch", "mountPath": "/scratch"})
    cluster.api.post(f"/api/v1/namespaces/{NAMESPACE}/pods", body)


def has_pressure(cluster: Kubernetes, node: str) -> bool:
    """Whether a node reports that it has too little memory."""
    conditions = cluster.api.get(f"/api/v1/nodes/{node}")["status"]["conditions"]
    return any(condition["type"] == "MemoryPressure" and condition["status"] == "True" for condition in conditions)


def started(cluster: Kubernetes, name: str, *words: str, **pod: Any) -> None:
    """Start a pod, by default on the first node."""
    cluster.run_pod(name, *(words or ("sleep", "600")), **{"nodeName": "node-a", **pod})
    cluster.wait_pod(name, "Running")


def short_node() -> NodeSpec:
    """A node with 1 GiB of memory for pods, which evicts them once they leave less than 400 MiB of it."""
    reserved = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") - 2**30
    settings = {"systemReserved": {"memory": str(reserved)}, "evictionHard": {"memory.available": "400Mi"}}
    return NodeSpec(name="short", kubelet=settings)


def last_state(cluster: Kubernetes, name: str) -> dict[str, Any]:
    """The last state of a pod that is about to end."""
    states = []

    def is_over() -> bool:
        try:
            states.append(cluster.pod(name))
        except ApiError:
            return True
        return states[-1]["status"]["phase"] == "Failed"

    wait_until([], is_over, WAIT_S, f"pod {name} ends")
    return trimmed(states[-1])


def record(
    answers: Callable[[Kubernetes], dict[str, Any]], nodes: Sequence[NodeSpec] = NODES, kueue: bool = False
) -> None:
    """Write what a function returns of a new cluster into the file with its name."""
    knobs = Knobs(node_grace_s=10.0, eviction_s=2, kueue=kueue)
    with tempfile.TemporaryDirectory(prefix="k8s-") as folder, kubernetes(Path(folder, "k"), nodes, knobs) as cluster:
        text = json.dumps(answers(cluster), indent=1, ensure_ascii=False)
    path = ANSWERS / f"{answers.__name__}.json"
    path.write_text(f"{_ADDRESS.sub('192.0.2.1:1', text)}\n")
    print(f"recorded {path}")


if __name__ == "__main__":
    record(waiting)
    record(queued, kueue=True)
    record(refusals)
    record(losses, (*NODES, short_node()))
