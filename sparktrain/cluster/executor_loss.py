"""Why an agent was lost, from what Spark says about its task, which comes later than the end of its stream. Pure."""

import re
from collections.abc import Mapping

from sparktrain.ids import AgentId, SparkTask
from sparktrain.state.outcome import Loss

FORGET_S = 1200.0
"""Spark says nothing any more of an agent that was lost so long ago: YARN takes 10 to 13 minutes to give up a node."""

_OVERHEAD = "raise spark.executor.memoryOverhead, which is the memory that Python and TensorFlow have"
_WHOSE = (
    f"and YARN does not say by whom; where the kernel's log of the host tells of 'Out of memory', {_OVERHEAD}, or "
    "lower the batch size"
)
_WAITS = "a gang waits for a container elsewhere, and with min_workers goes on smaller"
_WORDS = (
    (
        r"^local agent was ended by SIGKILL$",
        Loss.OTHER,
        "its process was ended by SIGKILL: most likely this machine is out of memory, as the kernel's log says then; "
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
    (r"decommission", Loss.DECOMMISSIONED, f"its node was taken out of service; {_WAITS}"),
    (r"\*lost\* node", Loss.NODE, f"YARN lost the node of its container; {_WAITS}"),
    (
        r"heartbeat timed out",
        Loss.NODE,
        f"Spark has heard nothing of its executor for too long, so its node is most likely down; {_WAITS}",
    ),
    (
        r"Exit status: 137|Exit code is 137|exited with code 137",
        Loss.KILLED,
        f"its container was ended by SIGKILL (exit status 137), {_WHOSE}",
    ),
    (
        r"Exit status: 143|Exit code is 143|exited with code 143",
        Loss.KILLED,
        f"its container was ended by SIGTERM (exit status 143), {_WHOSE}",
    ),
    (
        r"Executor Process Lost|Attempted to get executor loss reason",
        Loss.MASTER,
        "Spark lost its executor, and no application master told why: most likely it was lost itself, and all "
        "executors with it; YARN starts another where spark.yarn.maxAppAttempts is 2 or more",
    ),
    (
        r"Python worker exited unexpectedly",
        Loss.OTHER,
        f"its Python process crashed or was killed; if that was for want of memory, {_OVERHEAD}",
    ),
)
_LOST_NODE = re.compile(r" on host: (\S+)\. .*\*lost\* node", re.DOTALL)
_EXECUTOR_LOST = re.compile(r"ExecutorLostFailure \(.*?\) Reason: ")


def reading(said: str) -> tuple[Loss, str]:
    """What Spark's message of a failed task means, and that for the user in one line."""
    for pattern, loss, told in _WORDS:
        if found := re.search(pattern, said):
            return loss, found.expand(told)
    reason = _EXECUTOR_LOST.sub("", said.strip())
    return Loss.OTHER, f"Spark says: {reason.partition(chr(10))[0] or 'nothing'}"


def lost_host(said: str) -> str | None:
    """The host of the node that Spark's message of a failed task says was lost, if any: YARN says the same of one that
    was taken out of service."""
    found = _LOST_NODE.search(said)
    return found[1] if found is not None else None


def decommissioned(said: str) -> str:
    """The same message of a task whose node was taken out of service."""
    return f"{said} The node is decommissioned."


class Unexplained:
    """The Spark tasks of agents, and the agents that were lost and of which Spark has not said why."""

    def __init__(self) -> None:
        self._tasks: dict[AgentId, SparkTask] = {}
        self._lost: dict[AgentId, tuple[SparkTask, float]] = {}

    def joined(self, agent: AgentId, task: SparkTask | None) -> None:
        """An agent is there. One that was lost in the same task had a broken stream, of which Spark knows nothing."""
        if task is None:
            return
        self._tasks[agent] = task
        self._lost = {each: lost for each, lost in self._lost.items() if lost[0] != task}

    def left(self, agent: AgentId) -> None:
        """It has said goodbye."""
        self._tasks.pop(agent, None)

    def lost(self, agent: AgentId, at: float) -> None:
        """Its stream has ended; nothing follows for one that has left."""
        task = self._tasks.pop(agent, None)
        if task is not None:
            self._lost[agent] = task, at

    def stages(self, at: float) -> set[int]:
        """The Spark stages whose failed tasks tell more; none when nobody is missing."""
        self._lost = {agent: lost for agent, lost in self._lost.items() if at < lost[1] + FORGET_S}
        return {task.stage for task, _ in self._lost.values()}

    def settle(self, failed: Mapping[int, str]) -> list[tuple[AgentId, str]]:
        """The lost agents whose tasks have failed, with what Spark says; each is told once. `failed` is by task id."""
        found = [(agent, failed[task.id]) for agent, (task, _) in self._lost.items() if task.id in failed]
        for agent, _ in found:
            del self._lost[agent]
        return found
