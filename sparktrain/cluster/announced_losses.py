"""Which agents Spark and YARN have announced to end: those on executors and nodes that they decommission."""

import logging
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from sparktrain.base.clock import Clock, SystemClock
from sparktrain.base.ids import SparkTask
from sparktrain.cluster.spark_facts import YARN, Facts
from sparktrain.cluster.task_failures import running_places

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NODES_S = 10.0
"""Interval at which the ResourceManager is asked for nodes that it decommissions, which it does within minutes."""

logger = logging.getLogger("sparktrain")


def announcements(session: "SparkSession", facts: Facts) -> "AnnouncedLosses | None":
    """What a classic session announces; None for Spark Connect, which reports nothing of executors."""
    context = getattr(session, "_sc", None)
    if context is None:
        return None
    return AnnouncedLosses(context, yarn_nodes if facts.master == YARN else _no_nodes)


def yarn_nodes() -> frozenset[str]:
    """Hosts with nodes that YARN decommissions. Blocks; raises whatever the ResourceManager's answer causes."""
    from sparktrain.cluster import yarn_client  # HTTP, which only YARN needs

    return yarn_client.ResourceManager.configured().decommissioning()


def _no_nodes() -> frozenset[str]:
    return frozenset()


class ClusterNotice(Struct, frozen=True):
    """The announcement that a task will be lost."""

    text: str
    """What announced it, in a few words."""
    executor: str = ""
    """The executor to replace once its tasks have nothing to do; empty where Spark does that."""


class AnnouncedLosses:
    """The running tasks of one Spark context that Spark or YARN has announced to end. One thread at a time."""

    def __init__(self, context: Any, nodes: Callable[[], frozenset[str]], clock: Clock | None = None) -> None:
        self._context = context
        self._nodes = nodes
        self._clock = clock or SystemClock()
        self._hosts: frozenset[str] = frozenset()
        self._hosts_at: float | None = None
        self._pending: Any = None
        """The scheduler's map of executors that it decommissions, in the JVM; None until it was fetched."""
        self._places: dict[int, tuple[str, str]] = {}
        """Executor and host of the tasks that were looked up."""

    def __call__(self, tasks: Collection[SparkTask]) -> "dict[int, ClusterNotice]":
        """What has announced the end of these running tasks, by task id. Blocks, in any thread; raises nothing."""
        try:
            executors = self._executors()
            hosts = self._leaving_hosts()
            if not executors and not hosts:
                return {}
            unknown = {task.stage for task in tasks if task.id not in self._places}
            self._places |= running_places(self._context, unknown)
        except Exception as error:  # a hint must not end a run: a stopped session, another version of Spark
            logger.debug("what Spark decommissions is not known: %s: %s", type(error).__name__, error)
            return {}
        notices: dict[int, ClusterNotice] = {}
        for task in tasks:
            executor, host = self._places.get(task.id, ("", ""))
            if executor in executors:
                notices[task.id] = ClusterNotice(f"Spark decommissions executor {executor}")
            elif host in hosts:
                notices[task.id] = ClusterNotice(f"YARN decommissions node {host}", executor)
        return notices

    def replace(self, executor: str) -> None:
        """Have Spark end an executor on a node that YARN decommissions, and request another one in its place.

        Without this Spark would start the next agent on the same executor, and none elsewhere, until YARN ends the
        container. Blocks, in any thread; raises nothing.
        """
        try:
            ids = self._context._jvm.java.util.Collections.singletonList(executor)
            executors = self._context._jvm.org.apache.spark.api.python.PythonUtils.toSeq(ids)
            self._context._jsc.sc().schedulerBackend().killExecutors(executors, False, False, True)
        except Exception as error:  # as above
            logger.info("executor %s cannot be replaced: %s: %s", executor, type(error).__name__, error)

    def _executors(self) -> frozenset[str]:
        """The executors that Spark's scheduler decommissions: two calls of the JVM, whatever their number."""
        if self._pending is None:
            self._pending = self._context._jsc.sc().taskScheduler().executorsPendingDecommission()
        listed = str(self._pending.keysIterator().mkString(","))
        return frozenset(filter(None, listed.split(",")))

    def _leaving_hosts(self) -> frozenset[str]:
        now = self._clock.now()
        if self._hosts_at is None or now >= self._hosts_at + NODES_S:
            self._hosts_at = now
            self._hosts = self._nodes()
        return self._hosts
