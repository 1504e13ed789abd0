"""The only place that starts Spark tasks: one job, of which every task is an agent."""

import functools
import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pyspark import InheritableThread
from pyspark.sql import SparkSession

from sparktrain.driver.missing import Missing, missing_in
from sparktrain.executor.entry import EXIT_SCHEMA, agent_task
from sparktrain.protocol.ticket import AgentTicket

JOIN_TIMEOUT_S = 10.0
"""How long `AgentJob.cancel` waits for the job's thread."""

logger = logging.getLogger("sparktrain")


@dataclass(frozen=True)
class JobEnd:
    """How the agents' job ended: what each agent said, or why Spark gave the job up."""

    exits: tuple[tuple[int, str, bool], ...] = ()
    """Slot, reason, and whether it had reached the coordinator, of each agent."""
    error: str | None = None
    missing: Missing | None = None
    """What kept agents from beginning, where Spark's error tells of that."""


class AgentJob:
    """The Spark job that carries the agents of a pool. Its methods may be called from any thread."""

    def __init__(self, spark: SparkSession, ticket: AgentTicket, agents: int, on_end: Callable[[JobEnd], None]) -> None:
        self._spark = spark
        self._ticket = ticket
        self._agents = agents
        self._on_end = on_end
        self._tag = f"sparktrain-{ticket.pool}"
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Submit the job from a thread of its own; returns at once. `on_end` is called in that thread, once."""
        inherited: Any = InheritableThread  # it copies the scheduler pool and other local properties of the caller
        self._thread = inherited(target=self._work, session=self._spark, name=self._tag, daemon=True)
        self._thread.start()

    def cancel(self) -> None:
        """Have Spark end the tasks of agents that did not leave by themselves; waits a little for that."""
        if self._thread is None or not self._thread.is_alive():
            return
        try:
            self._interrupt()
        except Exception as error:  # Spark's own errors have no common root; a stopped session has no job either
            logger.info("the agents' job could not be cancelled: %s", first_line(error))
        self.join(JOIN_TIMEOUT_S)

    def join(self, timeout_s: float) -> bool:
        """Wait for the job's end; whether it has ended."""
        if self._thread is None:
            return True
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _add_tag(self) -> None:
        if (context := self._context()) is not None:
            context.addJobTag(self._tag)
        else:
            self._spark.addTag(self._tag)

    def _interrupt(self) -> None:
        if (context := self._context()) is not None:  # a classic session interrupts only what the same thread tagged
            context.cancelJobsWithTag(self._tag)
        else:
            self._spark.interruptTag(self._tag)

    def _context(self) -> Any:
        """None with Spark Connect."""
        return getattr(self._spark, "_sc", None)

    def _work(self) -> None:
        task = functools.partial(agent_task, ticket=self._ticket)
        try:
            self._add_tag()
            slots = self._spark.range(0, self._agents, 1, self._agents)
            rows = slots.mapInArrow(task, EXIT_SCHEMA).collect()
            end = JobEnd(tuple((row.slot, row.reason, row.reached) for row in rows))
        except BaseException as error:  # whatever Spark, Py4J or gRPC raise: it is the end of the agents
            end = JobEnd(error=first_line(error), missing=missing_in(str(error)))
        self._on_end(end)


def first_line(error: BaseException) -> str:
    """The part of a Spark error that tells something: a Python cause where there is one, else its first line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    causes = [line for line in lines if line.startswith(("ModuleNotFoundError", "ImportError"))]
    return (causes or lines or [type(error).__name__])[0]
