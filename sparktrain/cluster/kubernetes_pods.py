"""Why executors' pods do not start on Kubernetes, and on which nodes they are, by what the API server reports. Pure."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from sparktrain.base import formatting

KUBERNETES = "k8s://"  # the start of Spark's masters there
MOST_CHARACTERS = 300
"""Of a text of the cluster's own."""

_NODES = re.compile(r"0/(?P<nodes>\d+) nodes are available: (?P<reasons>.+?)\.(?:\s|$)", re.DOTALL)
_KEYS_OF = {
    "cpu": "spark.executor.cores or spark.kubernetes.executor.request.cores",
    "memory": "spark.executor.memory or spark.executor.memoryOverhead",
}
_LACKS = re.compile(r"Insufficient (\S+)")
_NEXT_STEPS = (
    ("node affinity/selector", "correct spark.kubernetes.executor.node.selector.*, or label nodes"),
    ("taint", "add tolerations to spark.kubernetes.executor.podTemplateFile, or remove the taint"),
)
KUEUE = "kueue.x-k8s.io"
"""The API of Kueue, and the start of its gates, labels and annotations."""
_QUEUE = f"{KUEUE}/queue-name"
_GROUP = f"{KUEUE}/pod-group-name"
_TOTAL = f"{KUEUE}/pod-group-total-count"
_IMAGE = ("ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName", "RegistryUnavailable")
_CONFIG = ("CreateContainerConfigError", "CreateContainerError", "RunContainerError")


def waiting(pods: Sequence[Mapping[str, Any]], admissions: Mapping[str, str] | None = None) -> str:
    """What the pods that have not started wait for, with the next step; empty where no pod reports a reason.

    `admissions` has what Kueue reports of groups of pods, as far as that is known: `admission` of each, by its name.
    """
    reasons = Counter(reason for pod in pods if _is_pending(pod) for reason in _reasons(pod))
    sizes = Counter(_labels(pod).get(_GROUP) for pod in pods if _is_pending(pod, "Running"))
    held = [pod for pod in pods if _is_pending(pod) and _gate(pod)]
    reasons += Counter(_held(pod, sizes, admissions or {}) for pod in held)
    return "; ".join(f"{formatting.count(number, 'executor pod')} {reason}" for reason, number in reasons.most_common())


def held_groups(pods: Iterable[Mapping[str, Any]]) -> set[str]:
    """The groups of the pods that Kueue has not admitted."""
    held = (_labels(pod).get(_GROUP) for pod in pods if _is_pending(pod) and _gate(pod).startswith(KUEUE))
    return {group for group in held if group is not None}


def admission(workload: Mapping[str, Any]) -> str:
    """Why a queue of Kueue has no room for a workload, such as a group of pods; empty where it reports no reason."""
    for condition in workload.get("status", {}).get("conditions") or ():
        if condition.get("type") == "QuotaReserved" and condition.get("status") == "False":
            return short(str(condition.get("message") or ""))
    return ""


def nodes(pods: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """The nodes of pods by the host names of their processes: these may be a part of the pod's name."""
    specs = {str(pod["metadata"]["name"]): pod["spec"] for pod in pods}
    return {spec.get("hostname") or name: str(spec["nodeName"]) for name, spec in specs.items() if "nodeName" in spec}


def on_silent_nodes(pods: Iterable[Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """The pods on nodes that do not answer Kubernetes, by the numbers of their executors.

    What a kubelet has reported last stays: the pod runs, and its containers are ready. Kubernetes itself then marks the
    pod as not ready. Nothing else does, but for gates of readiness, which pods of executors do not have.
    """
    return {
        str(pod["metadata"]["labels"]["spark-exec-id"]): pod
        for pod in pods
        if _is_silent(pod["status"]) and "readinessGates" not in pod["spec"]
    }


def _is_silent(status: Mapping[str, Any]) -> bool:
    conditions = {condition["type"]: condition["status"] for condition in status.get("conditions") or ()}
    return (status.get("phase"), conditions.get("ContainersReady"), conditions.get("Ready")) == (
        "Running",
        "True",
        "False",
    )


def _is_pending(pod: Mapping[str, Any], *phases: str) -> bool:
    """Whether a pod, which is not deleted, has not started, or is in one of `phases`."""
    return pod.get("status", {}).get("phase") in ("Pending", *phases) and "deletionTimestamp" not in pod["metadata"]


def _labels(pod: Mapping[str, Any]) -> Mapping[str, str]:
    return pod["metadata"].get("labels") or {}


def _gate(pod: Mapping[str, Any]) -> str:
    """What keeps the scheduler from looking at a pod; empty where nothing does."""
    gates = pod.get("spec", {}).get("schedulingGates") or ()
    return next((str(gate["name"]) for gate in gates), "")


def _held(pod: Mapping[str, Any], sizes: Mapping[str | None, int], admissions: Mapping[str, str]) -> str:
    """Who holds a pod with a gate; `sizes` are the numbers of pods in groups."""
    gate = _gate(pod)
    if not gate.startswith(KUEUE):
        return f"cannot start before scheduling gate {gate} is removed: ask who operates what has set it"
    queue, group = _labels(pod).get(_QUEUE, ""), _labels(pod).get(_GROUP)
    if group is None:
        return f"cannot start before queue {queue} of Kueue has room for one: wait, or lower what an executor requests"
    total = str((pod["metadata"].get("annotations") or {}).get(_TOTAL))
    if total.isdigit() and int(total) > sizes[group]:
        return (
            f"cannot start before Kueue sees all of their group, and {sizes[group]} of {total} are there: set "
            f"spark.kubernetes.executor.annotation.{_TOTAL} to spark.executor.instances"
        )
    why = admissions.get(group) or f"`kubectl describe workload {group}` prints why"
    return (
        f"cannot start before queue {queue} of Kueue has room for their whole group ({why}): wait until others have "
        "ended, with a longer start_timeout, or lower spark.executor.instances or what an executor requests"
    )


def _reasons(pod: Mapping[str, Any]) -> Iterator[str]:
    """At most one reason for a pod."""
    status = pod["status"]
    for condition in status.get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("reason") == "Unschedulable":
            yield _unschedulable(str(condition.get("message") or ""))
            return
    for container in (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())):
        state = (container.get("state") or {}).get("waiting") or {}
        reason, message = str(state.get("reason") or ""), short(str(state.get("message") or ""))
        if reason in _IMAGE:
            yield (
                f"cannot get image {container['image']} ({reason}: {message}): correct "
                "spark.kubernetes.container.image, or give its registry's secret in "
                "spark.kubernetes.container.image.pullSecrets"
            )
            return
        if reason in _CONFIG:
            yield (
                f"cannot start its container ({reason}: {message}): correct the secrets, config maps and volumes that "
                "Spark's configuration and spark.kubernetes.executor.podTemplateFile name"
            )
            return


def _unschedulable(message: str) -> str:
    """From the scheduler's message about all nodes."""
    match = _NODES.search(message)
    if match is None:
        return f"cannot be scheduled: {short(message)}"
    reasons = match["reasons"]
    steps = [f"lower {_KEYS_OF.get(name) or _key_of(name)}, or add nodes" for name in _LACKS.findall(reasons)]
    steps += [step for part, step in _NEXT_STEPS if part in reasons]
    nodes = formatting.count(int(match["nodes"]), "node")
    return f"cannot be on any of {nodes} ({short(reasons)}){': ' if steps else ''}{', or '.join(dict.fromkeys(steps))}"


def _key_of(resource: str) -> str:
    if resource.endswith("/gpu"):
        return "spark.executor.resource.gpu.amount"
    return f"the request for {resource} in spark.kubernetes.executor.podTemplateFile"


def short(text: str) -> str:
    """A text of the cluster's own, on one line, and its end left out where it is long."""
    line = " ".join(text.split())
    return line if len(line) <= MOST_CHARACTERS else f"{line[:MOST_CHARACTERS]}…"
