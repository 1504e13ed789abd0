"""Why Spark tasks failed, from Spark's status store, which exists also without Spark's web pages."""

import logging
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from sparktrain.base.ids import SparkTask
from sparktrain.cluster import kubernetes_client
from sparktrain.cluster.spark_facts import YARN, Facts, executors_for
from sparktrain.cluster.spark_settings import harms

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MOST_TASKS = 10_000
"""The most tasks of a stage to read: failures of agents are few."""

TaskFailures = Callable[[Collection[SparkTask]], dict[int, str]]
"""Why these tasks have failed, and others of their stages, by task id. Blocks, in any thread; never raises."""

logger = logging.getLogger("sparktrain")


def task_failures(session: "SparkSession") -> TaskFailures | None:
    """Reads the failures of a classic session; None for Spark Connect, which reports nothing of executors."""
    context = getattr(session, "_sc", None)
    return None if context is None else lambda tasks: _failed(context, {task.stage for task in tasks})


def failures_of(session: "SparkSession", tag: str) -> list[str]:
    """Why tasks of the jobs with this tag have failed until now, each in the form of Spark's message at a job's end.
    Empty for Spark Connect. Blocks, in any thread; never raises."""
    context = getattr(session, "_sc", None)
    if context is None:
        return []
    try:
        return [
            f"Lost task (TID {task.taskId()}) ({task.host()} executor {task.executorId()}): {_message(task)}"
            for task in _tasks(context, _stages(context, tag), "FAILED")
        ]
    except Exception as error:  # as below
        logger.info("why agents do not start is not known: %s: %s", type(error).__name__, error)
        return []


def finished_of(session: "SparkSession", tag: str) -> set[int]:
    """The partitions of the jobs with this tag with a task that has succeeded until now. Empty for Spark Connect.
    Blocks, in any thread; never raises."""
    context = getattr(session, "_sc", None)
    if context is None:
        return set()
    try:
        return {int(task.partitionId()) for task in _tasks(context, _stages(context, tag), "SUCCESS")}
    except Exception as error:  # as below
        logger.info("which agents have ended is not known: %s: %s", type(error).__name__, error)
        return set()


def running_places(context: Any, stages: Iterable[int]) -> dict[int, tuple[str, str]]:
    """Executor and host of the running tasks of these stages, by task id. Blocks, in any thread; raises what Py4J
    raises."""
    return {
        int(task.taskId()): (str(task.executorId()), str(task.host())) for task in _tasks(context, stages, "RUNNING")
    }


def _stages(context: Any, tag: str) -> list[int]:
    tracker = context.statusTracker()
    jobs = [tracker.getJobInfo(job) for job in context._jsc.sc().statusTracker().getJobIdsForTag(tag)]
    return [stage for job in jobs if job is not None for stage in job.stageIds]


def _failed(context: Any, stages: Iterable[int]) -> dict[int, str]:
    try:
        return {int(task.taskId()): _message(task) for task in _tasks(context, stages, "FAILED")}
    except Exception as error:  # a stopped session, a JVM that has ended: Py4J has many errors for that
        logger.info("why agents were lost is not known: %s: %s", type(error).__name__, error)
        return {}


def _tasks(context: Any, stages: Iterable[int], status: str) -> Iterator[Any]:
    jvm = context._jvm
    store = context._jsc.sc().statusStore()
    task_status = getattr(jvm.org.apache.spark.status.api.v1.TaskStatus, status)
    statuses = jvm.java.util.Collections.singletonList(task_status)
    unsorted = jvm.scala.Option.empty()
    for stage in stages:
        # Agents read no output of another stage: their stage has one attempt.
        tasks = store.taskList(stage, 0, 0, MOST_TASKS, unsorted, True, statuses)
        for number in range(tasks.size()):
            yield tasks.apply(number)


def _message(task: Any) -> str:
    return str(task.errorMessage().getOrElse(None) or "")


def loss_reasons(session: "SparkSession", facts: Facts) -> TaskFailures | None:
    """Why agents were lost, as Spark and its cluster manager report it; None where neither reports anything."""
    context = getattr(session, "_sc", None)
    failures = task_failures(session)
    if failures is None or not (facts.master == YARN or facts.on_kubernetes):
        return None
    if facts.on_kubernetes:
        return _pod_losses(context, failures)
    from sparktrain.cluster import yarn_client  # HTTP, which only YARN needs

    nodes = yarn_client.Nodes()
    return lambda tasks: {task: nodes(message) for task, message in failures(tasks).items()}


def _pod_losses(context: Any, failures: TaskFailures) -> TaskFailures:
    pods = kubernetes_client.LostPods(context)
    silent_nodes = kubernetes_client.SilentNodes(context, partial(running_places, context))

    def reasons(tasks: Collection[SparkTask]) -> dict[int, str]:
        failed = {task: pods(message) for task, message in failures(tasks).items()}
        return failed | silent_nodes([task for task in tasks if task.id not in failed])

    return reasons


def start_outlook(session: "SparkSession", facts: Facts, agents: int) -> Callable[[], str]:
    """A function that explains why this many agents do not start. It blocks, and returns "" where the cluster reports
    nothing. Raises ResourceError where the cluster refuses what they need, until a person changes something."""
    exclusion = "; ".join(finding.message for finding in harms(facts.conf) if finding.check == "exclusion")
    outlook = _outlook(session, facts, agents)
    return lambda: "; ".join(filter(None, (outlook(), exclusion)))


def _outlook(session: "SparkSession", facts: Facts, agents: int) -> Callable[[], str]:
    """What the cluster manager reports."""
    context = getattr(session, "_sc", None)
    if facts.on_kubernetes and context is not None:
        return kubernetes_client.PodOutlook(context)
    if facts.master != YARN:
        return str
    from sparktrain.cluster import yarn_client  # as above

    return yarn_client.Outlook(facts.conf, executors_for(facts, agents))
