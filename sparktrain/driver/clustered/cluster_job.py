"""The agents of a call that has its coordinator in the cluster, as the client submits them."""

import logging
import threading
from functools import partial

from sparktrain.base.clock import pause
from sparktrain.driver.engines.engine import AgentBatch, Engine, JobEnd
from sparktrain.driver.engines.job_failures import final_error
from sparktrain.driver.pool import RELAUNCH_PAUSE_S
from sparktrain.driver.slots.slot_holders import HOLDERS
from sparktrain.errors import AgentsLostError, SparktrainError
from sparktrain.protocol.ticket import AgentTicket

logger = logging.getLogger("sparktrain")


class ClusterJob:
    """Spark jobs of agents that find their coordinator by themselves. Any thread may use it.

    A job that Spark gives up is submitted again as long as this process lives: no other one can.
    """

    def __init__(self, engine: Engine, ticket: AgentTicket, agents: int, without_gpus: int) -> None:
        self._engine = engine
        self._ticket = ticket
        first = agents - without_gpus
        self._agents = agents
        self._first = first
        self._held: tuple[int, ...] = ()
        self._lock = threading.Lock()
        self._batches: dict[range, AgentBatch] = {}
        self._ends = 0
        self._over = False
        self._ended = threading.Event()
        self.error: SparktrainError | None = None
        """Why no agent is left."""

    def start(self) -> None:
        """Submit the agents; returns at once. Raises PoolError when other calls hold the slots."""
        engine = self._engine
        self._held = HOLDERS.take(self, engine.holder, self._first, engine.slots)
        for slots in (range(self._first), range(self._first, self._agents)):
            if slots:
                self._submit(slots)

    def join(self, timeout_s: float) -> bool:
        """Wait until all jobs have ended; whether they have."""
        return self._ended.wait(timeout_s)

    def finish(self, patience_s: float) -> None:
        """The run is over: let the agents leave, and cancel the jobs of those that do not. Blocks for that long."""
        with self._lock:
            self._over = True
            batches = list(self._batches.values())
        for batch in batches:
            if not batch.join(patience_s):
                batch.cancel()
        HOLDERS.free(self)

    def _submit(self, slots: range) -> None:
        apart = slots.start >= self._first > 0
        with self._lock:
            batch = self._engine.batch(
                self._ticket, slots, self._held, partial(self._on_end, slots), without_gpus=apart
            )
            self._batches[slots] = batch
        batch.start()

    def _on_end(self, slots: range, end: JobEnd) -> None:
        """Called in the job's thread: submit it again, or give up."""
        with self._lock:
            self._ends += 1
            over = self._over or self.error is not None
        error = None if over or _has_ended(end) else self._final_error(end)
        if not over and not _has_ended(end) and error is None:
            logger.warning("%s is resubmitted, for it ended: %s", self._engine.batch_name, end.problem)
            pause(RELAUNCH_PAUSE_S)
            self._submit(slots)
            return
        with self._lock:
            self.error = self.error or error
            self._batches.pop(slots, None)
            if not self._batches:
                self._ended.set()

    def _final_error(self, end: JobEnd) -> SparktrainError | None:
        if end.exits:
            return AgentsLostError(f"no coordinator runs in the cluster: {end.problem}")
        return final_error(end, self._engine, self._ends, None)


def _has_ended(end: JobEnd) -> bool:
    """Whether the agents have left because the run is over: one of them was dismissed."""
    return any(reached for _, _, reached in end.exits)
