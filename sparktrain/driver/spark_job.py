"""The only place that starts Spark tasks: one job of one task for each slot, such as an agent."""

import functools
import logging
import re
import threading
import uuid
from collections.abc import Callable
from typing import Any

from pyspark import InheritableThread
from pyspark.resource import ExecutorResourceRequests, ResourceProfile, ResourceProfileBuilder, TaskResourceRequests
from pyspark.sql import SparkSession

from sparktrain.cluster.import_failures import Missing, missing_in
from sparktrain.cluster.spark_facts import FAILURES_KEY
from sparktrain.cluster.task_failures import failures_of, finished_of
from sparktrain.driver.engines.engine import AgentBatch, JobEnd, OnBatchEnd
from sparktrain.executor.entry import EXIT_SCHEMA, REPORT_SCHEMA, agent_task, checkup_task, scout_task
from sparktrain.protocol.scouting import ScoutTicket
from sparktrain.protocol.ticket import AgentTicket

MISSING_FAILURES = 4
"""Tasks that must fail because a module is missing before it counts as missing: Spark's own default limit, which may be
raised to outlast lost containers."""
JOIN_TIMEOUT_S = 10.0
"""How long `SlotJob.cancel` waits for the job's thread."""

_TOO_OFTEN = "Job aborted due to stage failure: Task "
_CALLED = "An error occurred while calling "
"""How Py4J starts the text of each error of the JVM: the error follows in the next line."""

_RAISED = re.compile(r"^.*from the Python worker:.*\n(?:[ \t].*\n|Traceback .*\n|\n)*(?P<cause>\S.*)$", re.MULTILINE)
"""An error in a Python worker: the last line of its traceback."""

logger = logging.getLogger("sparktrain")


class SlotJob:
    """A Spark job of one task for each slot. Its methods may be called from any thread."""

    def __init__(self, spark: SparkSession, tag: str, slots: range, profile: ResourceProfile | None = None) -> None:
        """`slots` are their numbers; `profile` is for executors that are not as the session's."""
        self._spark = spark
        self._tag = tag
        self._slots = slots
        self._profile = profile
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Submit the job from a thread of its own; returns at once. `_work` is called in that thread, once."""
        inherited: Any = InheritableThread  # it copies the scheduler pool and other local properties of the caller
        self._thread = inherited(target=self._work, session=self._spark, name=self._tag, daemon=True)
        self._thread.start()

    def lacking(self) -> Missing | None:
        """What keeps tasks from starting, while Spark still retries them; None when nothing is known to be
        missing. Blocks for a moment; raises nothing."""
        causes = [cause for cause in map(missing_in, failures_of(self._spark, self._tag)) if cause is not None]
        return causes[-1] if len(causes) >= MISSING_FAILURES else None

    def vacant(self) -> set[int]:
        """Slots with tasks that have ended; with Spark Connect, none before the job has. Blocks for a moment; raises
        nothing."""
        if self.join(0.0):
            return set(self._slots)
        return {self._slots[partition] for partition in finished_of(self._spark, self._tag)}

    def cancel(self) -> None:
        """Have Spark end the tasks that did not end by themselves; waits a little for that."""
        if self._thread is None or not self._thread.is_alive():
            return
        try:
            self._interrupt()
        except Exception as error:  # Spark's own errors have no common base class; a stopped session has no job either
            logger.info("the job %s could not be cancelled: %s", self._tag, first_line(error))
        self.join(JOIN_TIMEOUT_S)

    def join(self, timeout_s: float) -> bool:
        """Wait for the job's end; returns whether it has ended."""
        if self._thread is None:
            return True
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _work(self) -> None:
        """Run `_rows`, and keep the outcome; raises nothing."""
        raise NotImplementedError

    def _rows(self, task: Callable[..., Any], schema: str) -> list[Any]:
        """What the tasks return; each gets its slot. Blocks; raises whatever Spark, Py4J or gRPC raise."""
        self._add_tag()
        slots = self._spark.range(self._slots.start, self._slots.stop, 1, len(self._slots))
        # No barrier stage: at any failure Spark ends the job of such a stage, and repeats none of its tasks.
        return list(slots.mapInArrow(task, schema, profile=self._profile).collect())

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


REFUSED_S = 15.0
"""How long agents of a Spark Connect session, which outlives its client, dial a driver that no longer listens."""


def refused_s(spark: SparkSession) -> float | None:
    """The value for an agent's ticket: a classic session ends its executors, and with them its agents, by itself."""
    return REFUSED_S if getattr(spark, "_sc", None) is None else None


class AgentJob(SlotJob, AgentBatch):
    """The Spark job that carries the agents of a pool."""

    def __init__(
        self,
        spark: SparkSession,
        ticket: AgentTicket,
        slots: range,
        on_end: OnBatchEnd,
        profile: ResourceProfile | None = None,
    ) -> None:
        """`on_end` is called in the job's thread, once."""
        # A tag of its own: agents of one job may be ended after those of the pool's next have started.
        super().__init__(spark, f"sparktrain-{ticket.pool}-{uuid.uuid4().hex[:8]}", slots, profile)
        self._ticket = ticket
        self._on_end = on_end

    def _work(self) -> None:
        try:
            rows = self._rows(functools.partial(agent_task, ticket=self._ticket), EXIT_SCHEMA)
            end = JobEnd(tuple((row.slot, row.reason, row.reached) for row in rows))
        except BaseException as error:  # whatever Spark, Py4J or gRPC raise: it is the end of the agents
            end = JobEnd(error=_problem(error), missing=missing_in(str(error)))
        self._on_end(end)


class ReportJob(SlotJob):
    """A Spark job of tasks that each return a report."""

    def __init__(self, spark: SparkSession, name: str, slots: int, task: Callable[..., Any]) -> None:
        super().__init__(spark, f"sparktrain-{name}", range(slots))
        self._task = task
        self.reports: tuple[str, ...] = ()
        """Each slot's report, as JSON; empty before the job's end."""
        self.error: str | None = None
        """Why Spark gave the job up."""
        self.missing: Missing | None = None
        """What kept slots from starting, where Spark's error names it."""

    def _work(self) -> None:
        try:
            rows = self._rows(self._task, REPORT_SCHEMA)
            self.reports = tuple(row.report for row in rows)
        except BaseException as error:  # as above
            self.error, self.missing = first_line(error), missing_in(str(error))


class CheckupJob(ReportJob):
    """The Spark job that has each slot report about its host."""

    def __init__(self, spark: SparkSession, ticket: AgentTicket, slots: int) -> None:
        super().__init__(spark, ticket.pool, slots, functools.partial(checkup_task, ticket=ticket))


class ScoutJob(ReportJob):
    """The Spark job that has one slot report what it sees of a run directory, and of the client."""

    def __init__(self, spark: SparkSession, ticket: ScoutTicket) -> None:
        super().__init__(spark, f"scout-{uuid.uuid4().hex[:12]}", 1, functools.partial(scout_task, ticket=ticket))


def without_gpus(cores: int, cpus: int) -> ResourceProfile:
    """Executors as those of the session, with so many `cores` and `cpus` for a task, and without its GPUs."""
    executor = ExecutorResourceRequests().cores(cores)
    task = TaskResourceRequests().cpus(cpus)
    return ResourceProfileBuilder().require(executor).require(task).build


def _problem(error: BaseException) -> str:
    """Why Spark gave a job of agents up."""
    line = first_line(error)
    if _TOO_OFTEN not in line:
        return line
    return f"{line}; it ended the healthy agents too: raise {FAILURES_KEY}, by default 4, above the losses to outlast"


def first_line(error: BaseException) -> str:
    """The informative part of a Spark error: a Python cause where there is one, else the first line that names one."""
    if (raised := _RAISED.search(str(error))) is not None:
        return raised["cause"]
    lines = [line.strip().removeprefix(": ") for line in str(error).splitlines()]
    named = [line for line in lines if line and not line.startswith(_CALLED)]
    causes = [line for line in named if line.startswith(("ModuleNotFoundError", "ImportError"))]
    # On Kubernetes the reason of a lost executor starts in the next line.
    if not causes and named[1:] and named[0].endswith("Reason:"):
        return " ".join(named[:2])
    return (causes or named or [type(error).__name__])[0]
