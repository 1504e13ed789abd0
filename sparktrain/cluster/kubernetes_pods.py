"""Why executors' pods do not start on Kubernetes, and on which nodes they are, by what the API server reports. Pure."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
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
_IMAGE = ("ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName", "RegistryUnavailable")
_CONFIG = ("CreateContainerConfigError", "CreateContainerError", "RunContainerError")


def waiting(pods: Iterable[Mapping[str, Any]]) -> str:
    """What the pods that have not started wait for, with the next step; empty where no pod reports a reason."""
    reasons = Counter(reason for pod in pods if _is_pending(pod) for reason in _reasons(pod))
    return "; ".join(f"{formatting.count(number, 'executor pod')} {reason}" for reason, number in reasons.most_common())


def nodes(pods: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """The nodes of pods by the host names of their processes: these may be a part of the pod's name."""
    specs = {str(pod["metadata"]["name"]): pod["spec"] for pod in pods}
    return {spec.get("hostname") or name: str(spec["nodeName"]) for name, spec in specs.items() if "nodeName" in spec}


def _is_pending(pod: Mapping[str, Any]) -> bool:
    return pod.get("status", {}).get("phase") == "Pending" and "deletionTimestamp" not in pod["metadata"]


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
