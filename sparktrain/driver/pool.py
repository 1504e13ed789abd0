"""Agents that stay between calls: a coordinator, batches of agents, and their warm zygotes.

A pool opens a coordinator with a certificate authority of its own, takes slots of the engine, and submits one batch
of agents for them (two where some members need no GPU). It stands between three owners of threads: the caller's
thread blocks in `run`; each batch calls `_on_job_end` in a thread of its own; and the coordinator asks `_why_none` in
another. `_job_lock` guards which batches are the pool's, and `_wants_jobs` whether a batch that ends gets a
successor. What concerns the coordinator is passed to its event loop.

Any number of calls may be on a pool, in any threads; the coordinator shares the agents among them. A signal ends the
call of the main thread, and the pool closes with it unless others are on it.

The invariant: of each part of its slots a pool has one batch at most, and only while it wants agents. So a batch that
is dismissed is first taken off the books (`_retire_jobs`), then its agents are dismissed, and last the engine ends
those that did not get the message, such as tasks that had not joined yet. Each of these waits has a deadline, also at
exit, where all open pools close.
"""

import atexit
import logging
import signal
import threading
import uuid
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import count
from typing import NamedTuple

from sparktrain.base.boundary import DriverTerminated
from sparktrain.base.clock import SystemClock, pause
from sparktrain.base.ids import TrialId
from sparktrain.base.threads import aside, spawn
from sparktrain.cluster.driver_address import HOST_KEY, PORT_KEY
from sparktrain.cluster.import_failures import advice
from sparktrain.config.versions import installed_versions
from sparktrain.display.pool_state import PoolState
from sparktrain.driver.agent_server import Server
from sparktrain.driver.coordinator import OUTLOOK_S, Coordinator
from sparktrain.driver.engines.engine import AgentBatch, Engine, JobEnd, OnBatchEnd
from sparktrain.driver.engines.job_failures import final_error
from sparktrain.driver.event_loop import call, deliver, submit, wait
from sparktrain.driver.gpu_claims import GpuClaims
from sparktrain.driver.run_request import RunOutcome, RunRequest
from sparktrain.driver.slots.slot_holders import HOLDERS
from sparktrain.driver.slots.writing_turns import WritingTurns
from sparktrain.driver.vacant_slots import PAUSE_S, Vacancies
from sparktrain.errors import (
    AgentsLostError,
    JoinTimeoutError,
    PoolError,
    ResourceError,
    SessionError,
    SparktrainError,
)
from sparktrain.protocol.certificates import CertificateKeeper, server_fingerprint
from sparktrain.protocol.grpc import GrpcListener
from sparktrain.protocol.ticket import AgentTicket
from sparktrain.protocol.transport import ListenError
from sparktrain.rundir.journal.driver_identity import DriverIdentity
from sparktrain.runs.history import this_driver
from sparktrain.state.ending import Ending

RELAUNCH_PAUSE_S = 0.5
CONNECT_S = 15.0
"""How long a fresh agent tries to reach the coordinator."""
JOIN_POLL_S = 0.02
OPEN_TIMEOUT_S = 30.0
CLOSE_TIMEOUT_S = 15.0
LEAVE_TIMEOUT_S = 2.0
"""How long the tasks of dismissed agents may take to end."""
INTERRUPT_TIMEOUT_S = 15.0
"""How long Ctrl-C waits for the trials' processes to be gone."""

NO_SLOTS = "either other jobs hold the session's slots, or it has no executors yet"

logger = logging.getLogger("sparktrain")


class PoolTimes(NamedTuple):
    """How long a pool waits, in seconds."""

    connect_s: float = CONNECT_S
    """A fresh agent tries so long to reach the coordinator."""
    outlook_s: float = OUTLOOK_S
    """Interval at which the pool asks the cluster what agents wait for."""
    vacancy_s: float = PAUSE_S
    """From the end of a slot's agent until the pool submits the slot again."""


POOL_TIMES = PoolTimes()


class _NumberedBatch(NamedTuple):
    """A batch of agents that runs, and the number in the tickets of its agents."""

    number: int
    batch: AgentBatch


class AgentPool:
    """Agents of one engine. Its methods block, and may be called in any thread."""

    def __init__(
        self,
        engine: Engine,
        agents: int,
        preload: tuple[str, ...],
        idle_timeout_s: float | None,
        without_gpus: int = 0,
        times: PoolTimes = POOL_TIMES,
    ) -> None:
        """`agents` is the number in all; the last `without_gpus` of them have executors of their own without GPUs."""
        self.engine = engine
        self.agents = agents
        self._first_agents = agents
        self._without_gpus = without_gpus
        self.preload = preload
        self._idle_timeout_s = idle_timeout_s
        self._id = uuid.uuid4().hex[:12]
        self._coordinator: Coordinator | None = None
        self._certificates: CertificateKeeper | None = None
        self._hosts: tuple[str, ...] = ()
        self._port = 0
        self._jobs: dict[range, _NumberedBatch] = {}
        """Those that run, by their slots."""
        self._count = count(1)
        self._held: tuple[int, ...] = ()
        """Which of the engine's slots its agents have."""
        self._job_lock = threading.Lock()
        self._wants_jobs = False
        """False while it is idle or closed: a job that ends then has no successor."""
        self._times = times
        self._vacancies = Vacancies(self._resubmit, SystemClock(), times.vacancy_s)
        self._ends = Counter[tuple[range, int]]()
        """How many jobs have ended, by their slots and by how often a member had trained there."""
        self._outlook = engine.outlook(agents - without_gpus)
        self._idle: Future[None] | None = None
        self._unavailable: SparktrainError | None = None
        self._on: set[str] = set()
        """Names of the runs that it is on, or is about to be."""
        self._turns = WritingTurns()
        self._grown: list[range] = []
        """Slots that it has got since it was opened, each range with a batch of its own."""

    # ---- life

    def open(self, *, agents: bool = True) -> None:
        """Listen and submit the agents' job, or leave that to `run`; does not wait for agents to join.

        Raises SessionError when the coordinator can listen nowhere, PoolError when others hold the slots.
        """
        try:
            self._open(agents)
        except BaseException:
            self.close()
            raise
        _OPEN.add(self)

    def _open(self, agents: bool) -> None:
        address = self.engine.address()
        self._certificates = self.engine.certificates(self._id)
        listener = GrpcListener(address.bind, (address.port,), self._certificates.server)
        claims = GpuClaims(SystemClock(), self.engine.gpu_mib)
        server = Server(listener, SystemClock(), installed_versions(), self.preload, self._certificates, claims)
        server.pod_nodes = self.engine.pod_nodes()
        reasons = self.engine.loss_reasons()
        announcements = self.engine.announcements()
        self._coordinator = Coordinator(
            server, SystemClock(), self._why_none, reasons, self._times.outlook_s, announcements
        )
        try:
            _, self._port = call(self._coordinator.open(), OPEN_TIMEOUT_S)
        except ListenError as error:
            raise SessionError(f"{error}; see {PORT_KEY}, {HOST_KEY} and spark.driver.bindAddress") from error
        self._hosts = address.hosts
        if agents:
            self._want_jobs()

    def close(self) -> None:
        """Dismiss the agents and release their slots; a second call does nothing. Blocks for some seconds at most."""
        coordinator = self._coordinator
        self._coordinator = None
        if coordinator is None:
            return
        self._cancel_idle()
        # Retire the jobs before the agents leave: a job that ends while it is wanted is resubmitted.
        jobs = self._retire_jobs()
        try:
            call(coordinator.close("the pool closes"), CLOSE_TIMEOUT_S)
        except Exception as error:  # the slots are released anyway
            logger.warning("the pool did not close in order: %s: %s", type(error).__name__, error)
        _end(jobs)

    @contextmanager
    def writing(self, run: str, timeout_s: float, show: Callable[[str], None]) -> Iterator[None]:
        """Spark's jobs, which write the data of `run`, have slots until the context ends: those that no pool has, or
        those of the agents, which are dismissed. While other runs train on these it waits, and shows a line.

        Raises PoolError when the pool is closed, and when the others train for longer than `timeout_s`.
        """
        coordinator = self.check_open()
        if len(self._on) > 1 and (vacant := HOLDERS.vacant(self.engine.holder, self.engine.slots)):
            holder = object()
            HOLDERS.take(holder, self.engine.holder, vacant, self.engine.slots, "slot to write data")
            try:
                yield
            finally:
                HOLDERS.free(holder)
            return

        def report(others: list[str]) -> None:
            show(
                f"waiting for slots to write the data: {', '.join(others)} {'has' if len(others) == 1 else 'have'} them"
            )

        with self._turns.writing(run, timeout_s, report):
            self._cancel_idle()
            if jobs := self._retire_jobs(retain_slots=True):
                call(coordinator.dismiss("its slots write data first"), CLOSE_TIMEOUT_S)
                _end(jobs)
            yield

    def driver_identity(self) -> DriverIdentity:
        """This driver, as others find it in the journal of its run."""
        certificate = self._certificates.server.certificate if self._certificates is not None else b""
        address = f"{self._hosts[0]}:{self._port}" if self._hosts else ""
        return this_driver(address, server_fingerprint(certificate) if certificate else "")

    def state(self) -> PoolState:
        """What a notebook shows of it. Any thread; does not block."""
        coordinator = self._coordinator
        alive = 0 if coordinator is None else coordinator.agents_alive
        return PoolState(self.engine.name, self.agents, alive, tuple(sorted(self._on)), coordinator is not None)

    def check_open(self) -> Coordinator:
        """The coordinator. Raises PoolError when the pool is closed."""
        if self._coordinator is None:
            raise PoolError("the pool is closed: open a new one with sparktrain.pool()")
        return self._coordinator

    def check_name(self, name: str) -> None:
        """Raises PoolError when the pool is closed, or on a run of this name."""
        self.check_open()
        if name in self._on:
            raise PoolError(f"the pool is on run {name!r}: wait for its end, or give this call another name")

    @contextmanager
    def entered(self, name: str) -> Iterator[None]:
        """The run of this name is on the pool, or about to be. Raises PoolError when one of this name is already."""
        with self._job_lock:
            self.check_name(name)
            self._on.add(name)
        try:
            yield
        finally:
            self._on.discard(name)
            if self._idle_timeout_s is not None and not self._on and self._coordinator is not None:
                self._idle = submit(self._retire_when_idle(self._idle_timeout_s))

    # ---- runs

    def have(self, package: str, timeout_s: float) -> bool:
        """Whether executors have `package`, as the first one of them reports. Blocks and raises as `reported`."""
        return package in self.reported(timeout_s)

    def reported(self, timeout_s: float) -> dict[str, str]:
        """`Join.versions` of the first executor. Blocks until that has joined.

        Raises JoinTimeoutError when none has within `timeout_s`, PoolError when data is written on the slots for as
        long, and whatever keeps agents from joining.
        """
        with self._turns.training(f"a call that starts in thread {threading.get_ident()}", timeout_s):
            return self._reported(timeout_s)

    def _reported(self, timeout_s: float) -> dict[str, str]:
        coordinator = self.check_open()
        clock = SystemClock()
        self._cancel_idle()
        if len(self._on) < 2:
            self._unavailable = None
        self._want_jobs()
        until = clock.now() + timeout_s
        with _interrupts(), self._watching():
            while (joined := coordinator.joined) is None:
                if self._unavailable is not None:
                    raise self._unavailable
                if clock.now() > until:
                    why = self._why_none() or NO_SLOTS
                    raise JoinTimeoutError(self._too_late(f"no agent joined within {timeout_s:g} s", why, timeout_s))
                pause(JOIN_POLL_S)
        return joined

    @contextmanager
    def _watching(self) -> Iterator[None]:
        """As long as the block lasts, which no progress shows, log why no agent joins: each reason once."""
        ended = threading.Event()

        def watch() -> None:
            shown = ""
            while not ended.wait(self._times.outlook_s):
                if (why := self._why_none()) not in ("", shown):
                    logger.warning("no agent has joined yet, on %s: %s", self.engine.name, why)
                    shown = why

        spawn(watch, "sparktrain-outlook")
        try:
            yield
        finally:
            ended.set()

    def run(self, work: RunRequest) -> tuple[RunOutcome, signal.Signals | None]:
        """Run `work`, which has `entered`, to its end; returns its outcome, and SIGINT or SIGTERM where that ended it.

        Either of them, in the main thread, ends the trials at once, and closes the pool unless it is on other runs.
        Blocks while the data of other runs is written on the slots. Raises PoolError when the pool is closed, and when
        that takes longer than `start_timeout`.
        """
        with ExitStack() as stack:
            stack.enter_context(self._turns.training(work.spec.name, work.spec.start_timeout_s))
            coordinator = self.check_open()
            stack.callback(self._close_if_broken, coordinator)
            self._cancel_idle()
            if len(self._on) < 2:
                self._unavailable = None
                self._ends.clear()
            self._want_jobs()
            stack.enter_context(_interrupts())
            running = submit(coordinator.run(work))
            try:
                return wait(running), None
            except KeyboardInterrupt:
                return self._interrupted(running, work, "Ctrl-C", Ending.STOPPED), signal.SIGINT
            except DriverTerminated:
                return self._interrupted(running, work, "SIGTERM", Ending.TERMINATED), signal.SIGTERM

    def _close_if_broken(self, coordinator: Coordinator) -> None:
        if coordinator.broken:
            self.close()

    def _interrupted(self, running: "Future[RunOutcome]", work: RunRequest, cause: str, ending: Ending) -> RunOutcome:
        """The outcome of a run that a signal ends, once its trials are ended and its records stored.

        KeyboardInterrupt, or DriverTerminated, when the store hangs.
        """
        if (coordinator := self._coordinator) is not None:
            stop = partial(coordinator.stop, f"interrupted by {cause}", 0.0, ending, work.spec.name)
            deliver(stop, f"the stop by {cause}")
        try:
            return wait(running, INTERRUPT_TIMEOUT_S)
        except TimeoutError as error:
            where = work.store.where(work.layout.path)
            message = (
                f"run {work.spec.name} was interrupted, and its end could not be written to {where} within "
                f"{INTERRUPT_TIMEOUT_S:g} s; resume it to continue"
            )
            interruption = DriverTerminated if ending is Ending.TERMINATED else KeyboardInterrupt
            raise interruption(message) from error
        finally:
            if self._on <= {work.spec.name}:
                self.close()

    def failure(self, ran: RunOutcome, start_timeout_s: float) -> SparktrainError | None:
        """The error that ended a run that lacked agents, if any."""
        if ran.end.ending == Ending.UNAVAILABLE:
            return self._unavailable or AgentsLostError(ran.end.reason)
        if ran.end.ending == Ending.NO_AGENTS:
            return JoinTimeoutError(self._too_late(ran.end.reason, ran.outlook or NO_SLOTS, start_timeout_s))
        return None

    def _too_late(self, reason: str, why: str, start_timeout_s: float) -> str:
        return (
            f"{reason}, on {self.engine.name}: {why}; free them, or wait longer with start_timeout "
            f"({start_timeout_s:g} s)"
        )

    def stop(self, run: str, reason: str, grace_s: float) -> None:
        """Stop a run, if it is on: it is advised to stop, and ended `grace_s` later. Any thread; does not block."""
        if (coordinator := self._coordinator) is not None:
            deliver(partial(coordinator.stop, reason, grace_s, run=run), f"the stop of run {run} ({reason})")

    def stop_trial(self, run: str, trial: TrialId, reason: str) -> None:
        """Stop one trial of a run, if that is on. Any thread; does not block."""
        if (coordinator := self._coordinator) is not None:
            deliver(partial(coordinator.stop_trial, run, trial, reason), f"the stop of trial {trial} ({reason})")

    # ---- the agents' jobs

    def _parts(self) -> list[range]:
        """The slots of each batch: those of the session's own executors, and those of executors without GPUs."""
        # On an executor like the session's, a parameter server holds a GPU that it never uses.
        first = self._first_agents - self._without_gpus
        without = [range(first, self._first_agents)] if self._without_gpus else []
        return [range(first), *without, *self._grown]

    def can_stand_for(self, pool: "AgentPool") -> bool:
        """Whether calls that want `pool` can use this one: its agents are on the same slots, and of the same kind."""
        kind = (self.engine.gpu_mib, self._without_gpus + pool._without_gpus)
        is_open = self._coordinator is not None and not self._coordinator.broken
        return is_open and self.engine.holder is pool.engine.holder and kind == (pool.engine.gpu_mib, 0)

    def grow(self, agents: int) -> None:
        """Have up to `agents` agents, as far as no other pool has the slots. Any thread; does not wait for them."""
        with self._job_lock:
            vacant = HOLDERS.vacant(self.engine.holder, self.engine.slots)
            new_agents = min(agents - self.agents, vacant)
            if self._without_gpus or new_agents <= 0:
                return
            self._grown.append(range(self.agents, self.agents + new_agents))
            self.agents += new_agents
        self._want_jobs()

    def _batch(self, number: int, slots: range, on_end: OnBatchEnd) -> AgentBatch:
        """A batch of agents, started. Raises what the engine raises when it can start none."""
        apart = bool(self._without_gpus) and slots.start >= self.agents - self._without_gpus
        batch = self.engine.batch(self._ticket(number), slots, self._held, on_end, without_gpus=apart)
        batch.start()
        return batch

    def _want_jobs(self) -> None:
        """Take the slots, and submit the agents' jobs, unless they run. Raises PoolError when others hold the slots."""
        held = HOLDERS.take(self._id, self.engine.holder, self.agents - self._without_gpus, self.engine.slots)
        with self._job_lock:
            self._held = held
            self._wants_jobs = self._coordinator is not None
        if not self._wants_jobs:  # another thread has closed it
            HOLDERS.free(self._id)
        self._launch()

    def _launch(self) -> None:
        """Submit the agents' jobs, unless they run or are no longer wanted."""
        with self._job_lock:
            if self._certificates is None or not self._wants_jobs:
                return
            for slots in self._parts():
                if slots not in self._jobs:
                    number = next(self._count)
                    batch = self._batch(number, slots, partial(self._on_job_end, number, slots))
                    self._jobs[slots] = _NumberedBatch(number, batch)

    def _ticket(self, batch: int) -> AgentTicket:
        assert self._certificates is not None
        times = self._times.connect_s, self.engine.refused_s()
        agent = self._certificates.agent
        return AgentTicket(self._id, self._hosts, self._port, agent, *times, batch, preload=self.preload)

    def _resubmit(self, slot: int) -> AgentBatch | None:
        """Resubmit one slot with an agent that has ended, while its job continues."""
        with self._job_lock:
            job = next((batch for slots, batch in self._jobs.items() if slot in slots), None)
            if job is None:
                return None
            return self._batch(job.number, range(slot, slot + 1), lambda end: None)

    def _running(self) -> list[AgentBatch]:
        with self._job_lock:
            return [job.batch for job in self._jobs.values()]

    def _retire_jobs(self, *, idle: bool = False, retain_slots: bool = False) -> list[AgentBatch]:
        """The jobs, which are expected to end from now on; with `idle` none when a call has just come.

        With `retain_slots` no other pool gets the slots.
        """
        with self._job_lock:
            # A call may have come between the end of the pause and this lock.
            if idle and self._on:
                return []
            self._wants_jobs = False
            jobs = [job.batch for job in self._jobs.values()]
            self._jobs = {}
        if not retain_slots:
            HOLDERS.free(self._id)
        return [*jobs, *self._vacancies.retire()]

    def _on_job_end(self, number: int, slots: range, end: JobEnd) -> None:
        """Called in the job's thread: resubmit it, or give up."""
        with self._job_lock:
            running = self._jobs.get(slots)
            # A dismissed batch ends later than the next one of the same slots starts: its number shows which one this
            # is.
            if running is None or running.number != number:
                return
            del self._jobs[slots]
        self._end_batch(number, end)
        # Agents of a slot that was resubmitted alone would hold it beside the new job.
        for alone in self._vacancies.retire():
            alone.cancel()  # the whole job is resubmitted
        coordinator = self._coordinator
        without_progress = slots, coordinator.entered(slots) if coordinator is not None else 0
        self._ends[without_progress] += 1
        refused = coordinator.refused if coordinator is not None else None
        error = final_error(end, self.engine, self._ends[without_progress], refused)
        if error is None:
            logger.warning("%s is resubmitted, for it ended: %s", self.engine.batch_name, end.problem)
            pause(RELAUNCH_PAUSE_S)
            self._launch()
            return
        self._give_up(error)

    def _end_batch(self, number: int, end: JobEnd) -> None:
        """Have the agents leave that outlive their job: Spark ends them some seconds later, with what runs on them."""
        if (coordinator := self._coordinator) is None:
            return
        try:
            call(coordinator.end_batch(number, f"{self.engine.batch_name} ended: {end.problem}"), CLOSE_TIMEOUT_S)
        except Exception as error:  # the job is resubmitted anyway
            logger.warning("agents of the last job may still be there: %s: %s", type(error).__name__, error)

    def _why_none(self) -> str:
        """Why agents do not join, as far as it is known. Gives up where none is left and none can come: for executors
        that lack a module, Spark would retry for a quarter of an hour. Blocks, in any thread."""
        self._vacancies.look(self._running())
        job = next(iter(self._running()), None)
        coordinator = self._coordinator
        is_alone = job is not None and coordinator is not None and coordinator.agents_alive == 0
        # Sessions allow a thousand failed tasks so that they outlast lost containers, so a task that can never start is
        # retried as often; its error came after a quarter of an hour.
        if is_alone and job is not None and (missing := job.lacking()) is not None:
            self._give_up(AgentsLostError(advice(missing)))
        try:
            return self._outlook()
        except ResourceError as error:
            if is_alone:
                self._give_up(error)
            return str(error)

    def _give_up(self, error: SparktrainError) -> None:
        """No agent can come: that ends all runs."""
        self._unavailable = error
        if (coordinator := self._coordinator) is not None:
            deliver(partial(coordinator.agents_unavailable, str(error)), "the end of the run, for no agents are left")

    # ---- idle

    async def _retire_when_idle(self, seconds: float) -> None:
        await SystemClock().sleep(seconds)
        coordinator = self._coordinator
        if coordinator is not None and (jobs := self._retire_jobs(idle=True)):
            await coordinator.dismiss(f"the pool was idle for {seconds:g} s")
            await aside(partial(_end, jobs), "sparktrain-idle")

    def _cancel_idle(self) -> None:
        idle = self._idle
        self._idle = None
        if idle is not None:
            idle.cancel()


def _end(jobs: list[AgentBatch]) -> None:
    """Wait for the agents of dismissed batches, and have the engine end those that did not get the message: they had
    not joined yet, or are cut off and would rejoin. Blocks for some seconds at most."""
    for job in jobs:
        if not job.join(LEAVE_TIMEOUT_S):
            job.cancel()


@contextmanager
def _interrupts() -> Iterator[None]:
    """Have Ctrl-C raise KeyboardInterrupt in the main thread: PySpark's own handler would first end the agents' job.

    SIGTERM raises DriverTerminated there, unless the program has a handler of its own.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous_handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    has_default = signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    if has_default:
        signal.signal(signal.SIGTERM, _terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous_handler)
        if has_default:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _terminate(signum: int, frame: object) -> None:
    # A second one must not cut off what the first has started: the records of the run's end.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise DriverTerminated


_OPEN: "weakref.WeakSet[AgentPool]" = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    """A driver that ends with an open pool releases its slots first."""
    for pool in list(_OPEN):
        try:
            pool.close()
        except Exception as error:  # the others have slots to release, too
            logger.warning("a pool was not closed: %s: %s", type(error).__name__, error)
