"""Why an agent was lost, by what Spark reports of its task, which comes later than the end of its stream. Pure."""

import re
from collections.abc import Mapping
from typing import Any

from sparktrain.base.ids import AgentId, SparkTask
from sparktrain.state.outcome import Loss

FORGET_S = 1200.0
"""How long Spark may take to report a loss: YARN takes 10 to 13 minutes to declare a node lost."""

_OVERHEAD = "raise spark.executor.memoryOverhead, which is the memory of the processes that train, beside the JVM"
_BY_SIGNAL = (
    f"and YARN does not report by whom; if the kernel's log of the host has 'Out of memory', {_OVERHEAD}, or lower the "
    "batch size"
)
_BY_SIGNAL_IN_POD = "and Kubernetes does not report by whom: `kubectl get events` may, and so may the log of the node"
_ENDED_POD = "Kubernetes has ended the pod:"
_LOW = f"{_ENDED_POD} TerminationByKubelet:(?= The node was low)"
_EVICTED = rf"(?:reason: Evicted\s+The API gave the following message:|{_LOW})"
_SILENT_NODE = "The kubelet of its node is silent:"
_WAITS = "a gang waits for a container elsewhere, and with min_workers continues smaller"
_CAUSES = (
    (
        r"^local agent was ended by SIGKILL$",
        Loss.OTHER,
        "its process was ended by SIGKILL: most likely this machine is out of memory, which the kernel's log shows; "
        "use fewer slots, or lower the batch size",
    ),
    (r"^local agent (?P<how>.+)$", Loss.OTHER, r"its process \g<how>"),
    (
        r"was preempted",
        Loss.PREEMPTED,
        "YARN preempted its container, for a queue that was below its share; to keep containers, set spark.yarn.queue "
        "to a queue with a larger share, or to one that is not preempted",
    ),
    (
        r"exceeding (?P<kind>physical|virtual) memory limits\.\s+(?P<used>.+?) of (?P<most>.+?) (?P=kind) memory used",
        Loss.MEMORY,
        rf"YARN ended its container, which used \g<used> of the \g<most> of \g<kind> memory that it may; {_OVERHEAD}, "
        "or lower the batch size",
    ),
    (
        rf"{_ENDED_POD} PreemptionByScheduler",
        Loss.PREEMPTED,
        "a pod of higher priority preempted its pod; to keep pods, set priorityClassName in "
        f"spark.kubernetes.executor.podTemplateFile to a class with a higher value; {_WAITS}",
    ),
    (
        rf"{_ENDED_POD} EvictionByEvictionAPI",
        Loss.DECOMMISSIONED,
        f"its pod was evicted on request, as `kubectl drain` does, and what removes nodes; {_WAITS}",
    ),
    (
        rf"{_ENDED_POD} Deletion(?:ByTaintManager|ByPodGC): (?P<why>.*)",
        Loss.NODE,
        rf"the node of its pod was lost, or has a taint that the pod does not tolerate (\g<why>); {_WAITS}",
    ),
    (r"terminated in response to imminent node shutdown", Loss.DECOMMISSIONED, f"its node was shut down; {_WAITS}"),
    (
        rf"{_SILENT_NODE} (?P<node>\S+)",
        Loss.NODE,
        r"its node \g<node> does not answer Kubernetes any more, so sparktrain has deleted its pod, for Spark to start "
        f"another one; {_WAITS}",
    ),
    (
        rf"{_EVICTED} (?P<why>[^\n]*? exceed[^\n]*? limit[^\n]*?)\.? *(?:\n|$)",
        Loss.STORAGE,
        r"its pod used more local storage than it may (\g<why>); raise the limit in "
        "spark.kubernetes.executor.podTemplateFile (ephemeral-storage, or sizeLimit of a volume), or write less",
    ),
    (
        rf"{_EVICTED} (?P<why>[^\n]*?)\.? *(?:\n|$)",
        Loss.NODE,
        rf"its node had too little memory or disk, and evicted its pod (\g<why>); {_WAITS}",
    ),
    (rf"{_ENDED_POD} (?P<why>.*)", Loss.KILLED, rf"Kubernetes has ended its pod (\g<why>); {_WAITS}"),
    (
        r"was deleted by a user or the framework|was not found in the cluster at the polling time",
        Loss.KILLED,
        "its pod was deleted by a request, as `kubectl delete` makes: the audit log of the API server has its sender; "
        f"{_WAITS}",
    ),
    # With another exit code, OOMKilled means that the kernel has ended a process in the pod before, and not the pod.
    (
        r"exited with exit code 137\((?s:.*)termination reason: OOMKilled",
        Loss.MEMORY,
        f"its pod used more memory than it may (OOMKilled); {_OVERHEAD}, or lower the batch size",
    ),
    (
        r"exited with exit code 137\(",
        Loss.KILLED,
        f"the first process of its pod was ended by SIGKILL (exit code 137), {_BY_SIGNAL_IN_POD}",
    ),
    (
        r"exited with exit code 143\(",
        Loss.KILLED,
        f"the first process of its pod was ended by SIGTERM (exit code 143), {_BY_SIGNAL_IN_POD}",
    ),
    (
        r"The executor with id \d+ exited with exit code (?P<code>-?\d+)",
        Loss.OTHER,
        r"the first process of its pod ended by itself, with exit code \g<code>: the end of its log shows why "
        "(`kubectl logs`, where spark.kubernetes.executor.deleteOnTermination is false)",
    ),
    # Before the pattern of lost nodes: YARN has the same message for both, and `decommissioned` adds the word to it.
    (r"decommission", Loss.DECOMMISSIONED, f"its node was taken out of service; {_WAITS}"),
    (r"\*lost\* node", Loss.NODE, f"YARN lost the node of its container; {_WAITS}"),
    (
        r"heartbeat timed out",
        Loss.NODE,
        "Spark has received no heartbeat of its executor for too long (spark.network.timeout), so its node is most "
        f"likely down; {_WAITS}",
    ),
    (
        r"task \d+ could not be stopped within",
        Loss.OTHER,
        "Spark ended its executor, on which a task that was cancelled ended too late: set "
        "spark.task.reaper.enabled=false, or raise spark.task.reaper.killTimeout",
    ),
    (
        r"idle timeout",
        Loss.OTHER,
        "Spark ended its Python worker, which sends no rows before its end: set "
        "spark.python.worker.killOnIdleTimeout=false",
    ),
    (
        r"Exit status: 137|Exit code is 137|exited with code 137",
        Loss.KILLED,
        f"its container was ended by SIGKILL (exit status 137), {_BY_SIGNAL}",
    ),
    (
        r"Exit status: 143|Exit code is 143|exited with code 143",
        Loss.KILLED,
        f"its container was ended by SIGTERM (exit status 143), {_BY_SIGNAL}",
    ),
    (
        r"(?s)(?:Executor Process Lost|Attempted to get executor loss reason).* Kubernetes names no reason",
        Loss.OTHER,
        "Spark lost its executor, and neither Spark nor Kubernetes reports why: `kubectl describe node` may",
    ),
    (
        # The message when the application master is killed in client mode: all executors are lost at once, and each
        # loss counts as a failure of its task.
        r"Executor Process Lost|Attempted to get executor loss reason",
        Loss.MASTER,
        "Spark lost its executor, and no application master reported why: most likely the master was lost itself, "
        "and all executors with it; YARN starts another where spark.yarn.maxAppAttempts is 2 or more",
    ),
    (
        r"Python worker exited unexpectedly",
        Loss.OTHER,
        f"its Python process crashed or was killed; if it ran out of memory, {_OVERHEAD}",
    ),
)
_EXECUTOR = re.compile(r"ExecutorLostFailure \(executor (\d+) ")
_LOST_NODE = re.compile(r" on host: (\S+)\. .*\*lost\* node", re.DOTALL)
_EXECUTOR_LOST = re.compile(r"ExecutorLostFailure \(.*?\) Reason: ")


def explain_failure(message: str) -> tuple[Loss, str]:
    """The kind of loss that Spark's message of a failed task means, and its explanation in one line."""
    for pattern, loss, explanation in _CAUSES:
        if match := re.search(pattern, message):
            return loss, match.expand(explanation)
    reason = _EXECUTOR_LOST.sub("", message.strip()).strip()
    return Loss.OTHER, f"Spark reports: {reason.partition(chr(10))[0] or 'nothing'}"


def lost_host(message: str) -> str | None:
    """The host of the lost node that Spark's message of a failed task names, if any; YARN reports a decommissioned node
    in the same way."""
    match = _LOST_NODE.search(message)
    return match[1] if match is not None else None


def decommissioned(message: str) -> str:
    """The message of a failed task, with the decommission of its node added."""
    return f"{message} The node is decommissioned."


def lost_executor(message: str) -> int | None:
    """The executor that Spark's message of a failed task names as lost, if any."""
    match = _EXECUTOR.search(message)
    return int(match[1]) if match is not None else None


def with_pod(message: str, pod: Mapping[str, Any] | None) -> str:
    """The message of a failed task on Kubernetes, with the reason for which Kubernetes has ended the pod added, if its
    newest state has one."""
    for condition in (pod or {}).get("status", {}).get("conditions", ()):
        if condition["type"] == "DisruptionTarget" and condition["status"] == "True":
            return f"{message} {_ENDED_POD} {condition['reason']}: {condition.get('message', '')}"
    return f"{message} Kubernetes names no reason."


def silent_node(node: str) -> str:
    """The message for a task in a pod that was deleted, because its node does not answer Kubernetes."""
    return f"{_SILENT_NODE} {node}"


class UnexplainedLosses:
    """The Spark tasks of agents, and the lost agents that Spark has not explained yet."""

    def __init__(self) -> None:
        self._tasks: dict[AgentId, SparkTask] = {}
        self._lost: dict[AgentId, tuple[SparkTask, float]] = {}

    @property
    def tasks(self) -> dict[AgentId, SparkTask]:
        """The tasks of agents that are not lost."""
        return dict(self._tasks)

    def joined(self, agent: AgentId, task: SparkTask | None) -> None:
        """An agent has joined. One lost before in the same task had a broken stream, which Spark does not report."""
        if task is None:
            return
        self._tasks[agent] = task
        self._lost = {lost_agent: lost for lost_agent, lost in self._lost.items() if lost[0] != task}

    def departed(self, agent: AgentId) -> None:
        """An agent has left in good order."""
        self._tasks.pop(agent, None)

    def lost(self, agent: AgentId, at: float) -> None:
        """The stream of an agent has ended. Nothing follows for an agent that has left."""
        task = self._tasks.pop(agent, None)
        if task is not None:
            self._lost[agent] = task, at

    def lost_tasks(self, at: float) -> set[SparkTask]:
        """The Spark tasks of lost agents; empty when no agent is unexplained."""
        self._lost = {agent: lost for agent, lost in self._lost.items() if at < lost[1] + FORGET_S}
        return {task for task, _ in self._lost.values()}

    def settle(self, failed: Mapping[int, str]) -> list[tuple[AgentId, str]]:
        """The lost agents that `failed`, messages by task id, explains, each once and with its message."""
        explained_losses = [(agent, failed[task.id]) for agent, (task, _) in self._lost.items() if task.id in failed]
        for agent, _ in explained_losses:
            del self._lost[agent]
        return explained_losses
