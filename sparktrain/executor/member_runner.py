"""The agent's side of one member, from its assignment to the last byte of its log.

`MemberSession.train` takes a waiting child of the zygote, gives it its assignment, and passes its messages on as
those of the member. Beside that it sends reports in groups, looks whether the process is stopped by a signal, and
stores the chief's snapshots. `store` uploads the log and the files meanwhile, and removes the local folder at the
end. So there are two ends: the outcome, and the process. The member's last message has the outcome; where the process
ends without one, its exit status decides (`exit_causes`).

The invariant: the coordinator gets one `MemberEnded` for each member, whatever happens, and none after a loss of the
agent's own files, because the agent is lost then, and not the member failed. Reports travel before the checkpoint,
the question and the outcome that follow them. Deadlines: a process may live 10 s after its outcome, be stopped for 5
s, and fail to save on the local disk for half an hour; its hang while it trains is for the coordinator to see.
"""

import asyncio
import logging
import socket
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from msgspec.structs import replace

from sparktrain.base import process_tree
from sparktrain.base.clock import Clock
from sparktrain.base.ids import AgentId, Member, Rank
from sparktrain.base.spans import span
from sparktrain.errors import CheckpointError, InfraError
from sparktrain.executor.exit_causes import SEARCHED_LINES, classify
from sparktrain.executor.live_events import LiveEvents
from sparktrain.executor.log_noise import is_chosen
from sparktrain.executor.log_tail import POLL_S, LogFollower, drop_noise, lines_before, tail_lines
from sparktrain.executor.memory_holder import MemoryHolder
from sparktrain.executor.snapshots import CheckpointStorer
from sparktrain.executor.spark_task import Placement
from sparktrain.executor.upload_queue import Storing, Uploader
from sparktrain.executor.zygote_process import MemberProcess, ZygoteLostError
from sparktrain.protocol import messages as m
from sparktrain.protocol import pipe_messages as pm
from sparktrain.rundir.layout import STEPS
from sparktrain.rundir.newest_step import StepMarks, read_newest_step
from sparktrain.state.outcome import Failure, FailureKind, Outcome, Report
from sparktrain.store.folder_removal import discard
from sparktrain.store.hadoop.token_file import token_variables

T = TypeVar("T")
Post = Callable[[m.FromAgent], None]

REPORT_INTERVAL_S = 0.1
"""The reports of this interval are sent in one message, unless a member waits for what rules make of one."""
REPORT_METRICS = 10_000
"""The most reports and metrics in one message, which has a largest size."""
EXIT_TIMEOUT_S = 10.0
"""How long a process may live after its member's outcome before the agent kills it."""
FROZEN_LOOK_S = 0.5
LIVE_LOG_AFTER_S = 0.5
"""The agent uploads the log of a member that runs longer while it runs."""
TRIM_INTERVAL_S = 1.0

logger = logging.getLogger("sparktrain")


class FilesGoneError(InfraError):
    """The agent's files were deleted: its container has ended, and its last processes have not."""


@dataclass(frozen=True)
class MemberLimits:
    """How long an agent waits for a member that makes no progress."""

    frozen_s: float = 5.0
    """The agent ends a member that is stopped by a signal for so long."""
    unsaved_s: float = 1800.0
    """The agent ends a member that fails to save on the local disk for so long: another host may work."""


LIMITS = MemberLimits()


class MemberSession:
    """Runs one member in a waiting child of the zygote. One use; all methods belong to the agent's event loop."""

    def __init__(
        self,
        start: m.StartMember,
        code: pm.LocalCode,
        home: Path,
        clock: Clock,
        snapshots: CheckpointStorer,
        memory: MemoryHolder,
        *,
        limits: MemberLimits = LIMITS,
    ) -> None:
        self.member = start.member
        self._start = start
        self._code = code
        self._home = home
        self._clock = clock
        self._snapshots = snapshots
        self._memory = memory
        self._limits = limits
        self._storing: asyncio.Task[None] | None = None
        self._child: MemberProcess | None = None
        self._stop_grace_s: float | None = None
        self._entered_at: float | None = None
        self._frameworks: tuple[str, ...] = ()
        self._unsaved_since: float | None = None
        """The first failed save on the local disk since the last good one; None without a failure."""
        self._outcome_sent = False
        self._reports: list[Report] = []
        self._reported = 0
        """How many reports and metrics these are."""
        self._pace = _Pace(clock)
        self._whole_log = is_chosen(start.call.env)
        self._log = LogFollower(home / "log.txt", start.call.options.log_limit, clock, is_whole=self._whole_log)
        self._over = asyncio.Event()
        self.seating: m.Seating | None = None
        """Of its newest ring."""
        self._named = asyncio.Event()
        """The member has the name that it keeps: one that is prepared gets that with its place."""
        if not start.call.gang.prepared:
            self._named.set()

    # ---- training

    async def train(self, child: MemberProcess, place: Placement, post: Post) -> None:
        """Run the member in `child`: post its messages up to `MemberEnded`, return when the process is gone.

        Raises nothing for an error of the member; a lost zygote is a lost member. Raises FilesGoneError, without
        `MemberEnded`, for a failure after the loss of the container's files: the agent is lost too.
        """
        try:
            with span("folders"):
                self._make_home()
            memory_dir = await self._memory.start_member(self._start)
            restore_dir = await self._restore_dir()
            child.send(self._assignment(place, restore_dir, memory_dir))
            # Other messages come after its assignment.
            self._child = child
            # A stop may have come while the checkpoint was fetched, when there was no process to end.
            if self._stop_grace_s is not None:
                child.kill(self._stop_grace_s)
            await self._watch(child, post)
        # The checkpoint is at fault, not this host: the coordinator may start the next gang from an older one.
        except CheckpointError as error:
            child.kill(0.0)
            self._fail(post, Failure(FailureKind.CHECKPOINT, str(error)))
        except ZygoteLostError as error:
            hint = "did the function end its parent process (os.getppid())?"
            self._fail(post, Failure(FailureKind.LOST, f"{error}\n{hint}"))
        except OSError as error:
            child.kill(0.0)
            self._fail(post, Failure(FailureKind.LOST, str(error)))
        # Without `MemberEnded`: the stream ends soon, and Spark's own reason for that counts.
        except FilesGoneError:
            child.kill(0.0)
            raise
        except Exception as error:  # a bug of this package: the agent continues, and reports it
            logger.exception("agent cannot run %s", self.member)
            child.kill(0.0)
            summary = f"its agent could not run it any more: {type(error).__name__}: {error}"
            self._fail(post, Failure(FailureKind.LOST, summary))
            with suppress(ZygoteLostError):
                await child.wait()
        finally:
            self._child = None
            self._named.set()
            self._over.set()
            self._log.finish()
            self._memory.ended()

    def _make_home(self) -> None:
        for folder in ("work", "files"):
            (self._home / folder).mkdir(parents=True)
        (self._home / "log.txt").touch()

    async def _restore_dir(self) -> str:
        """The folder to resume from; empty without one, and where another member sends the state from its memory."""
        # The others are ahead of every checkpoint, and of what this agent may hold.
        if self._start.call.gang.ring or self._start.call.gang.prepared:
            return ""
        memory = self._start.memory
        if memory is None:
            return await self._snapshots.restore_dir(self._start, self._home)
        return await self._memory.restore_dir(self._start) if memory.checksum else ""

    async def _store_snapshot(self, child: MemberProcess, snapshot: pm.Snapshot, post: Post) -> None:
        try:
            reply = await self._snapshots.store(self._start, self._home, snapshot)
        except Exception as error:  # training waits for an answer
            logger.exception("the checkpoint of step %d of %s failed", snapshot.step, self.member)
            reply = pm.SnapshotAnswered(snapshot.step, f"its agent failed: {type(error).__name__}: {error}")
        self._unsaved_since = None  # the local disk works
        if reply.problem:
            post(m.CheckpointFailed(self.member, reply.step, reply.problem, snapshot.part))
        child.send(reply)

    def _not_saved(self, child: MemberProcess, unsaved: pm.Unsaved, post: Post) -> None:
        """Report it at once; after too long without a save on this host's disk the member is lost, for another host."""
        host = socket.gethostname()
        now = self._clock.now()
        problem = "" if unsaved.returned else f"{unsaved.problem} (host {host})"
        post(m.CheckpointFailed(self.member, unsaved.step, problem, unsaved.part, unsaved.returned))
        if not unsaved.disk:
            return
        since = self._unsaved_since = now if self._unsaved_since is None else self._unsaved_since
        if now - since >= self._limits.unsaved_s:
            summary = f"nothing could be saved on host {host} for {now - since:.0f} s"
            self._fail(post, Failure(FailureKind.LOST, f"{summary} (step {unsaved.step}: {unsaved.problem})"))
            child.kill(0.0)

    async def _watch(self, child: MemberProcess, post: Post) -> None:
        side_work = [self._flush_reports(post), self._end_frozen(child, post)]
        try:
            exited = await _with(self._run_to_exit(child, post), *side_work)
        finally:
            if self._storing is not None:
                self._storing.cancel()
            self._flush(post)
        if not self._outcome_sent:
            stopped = self._stop_grace_s is not None
            failure = classify(
                exited,
                stopped=stopped,
                disconnected=child.disconnected,
                log_tail=tail_lines(self._home / "log.txt", SEARCHED_LINES),
                frameworks=self._frameworks,
            )
            self._fail(post, failure)

    async def _run_to_exit(self, child: MemberProcess, post: Post) -> pm.Exited:
        await self._forward(child, post)
        return await self._await_exit(child)

    async def _forward(self, child: MemberProcess, post: Post) -> None:
        """Forward the member's messages until its pipe ends."""
        while (message := await child.receive()) is not None:
            match message:
                case pm.Entered(pid=pid, trains=trains, frameworks=frameworks):
                    self._frameworks = self._frameworks or frameworks
                    self._entered_at = self._clock.now()
                    post(m.MemberStarted(self.member, pid, trains))
                case pm.Reported(report=report, judged=judged):
                    self._reports.append(report)
                    self._reported += 1 + len(report.metrics)
                    # A loop that looks once after each epoch trained a whole epoch more when its report was held back
                    # for 0.1 s.
                    if judged or self._reported >= REPORT_METRICS:
                        self._flush(post)
                case m.Standing() as standing:
                    self._flush(post)  # where it leaves its ring, what it has reported counts for its successor
                    post(m.MemberStands(self.member, standing))
                case pm.SharedValue(key=key, value=value):
                    post(m.MemberShared(self.member, key, value))
                case pm.FeedPhase() as news:
                    post(m.MemberFeed(self.member, news))
                case pm.SamplerAsked(number=number, question=question):
                    self._flush(post)  # the sampler gets a question after what was reported before it
                    post(m.MemberAsked(self.member, number, question))
                case pm.RowsAwaited(feed=feed, waiting=waiting):
                    post(m.MemberAwaits(self.member, feed, waiting))
                case pm.Snapshot() as snapshot:
                    self._flush(post)  # the coordinator gets them before the later checkpoint
                    self._storing = asyncio.create_task(self._store_snapshot(child, snapshot, post))
                case (
                    pm.MemoryWritten(step=step, checksum=checksum, paused=paused, layout=layout, parts=parts) as written
                ):
                    if self._memory.accept(self._start, written):
                        post(m.SnapshotHeld(self.member, step, checksum, paused, layout, parts))
                case pm.Unsaved() as unsaved:
                    self._not_saved(child, unsaved, post)
                case pm.Doubts(ranks=ranks):
                    post(m.MemberDoubts(self.member, tuple(map(Rank, ranks))))
                case pm.Stepped() as stepped:
                    post(self._pace.stepped(self.member, stepped))
                case pm.FunctionEnded(outcome=outcome, catches_stops=catches_stops):
                    self._flush(post)
                    if self.is_stopping and catches_stops and outcome.failure is None:
                        ended = Failure(FailureKind.STOPPED, "stopped on request; it handled SIGTERM and returned")
                        outcome = Outcome(outcome.seconds, failure=ended, notices=outcome.notices)
                    self._end(post, self._with_tail(outcome))

    async def _await_exit(self, child: MemberProcess) -> pm.Exited:
        """The child's exit; the agent kills it if it does not exit soon after its last message."""
        waiting = asyncio.ensure_future(child.wait())
        finished, _ = await asyncio.wait({waiting}, timeout=EXIT_TIMEOUT_S)
        if not finished:
            child.kill(0.0)
        return await waiting

    async def _end_frozen(self, child: MemberProcess, post: Post) -> None:
        """End a member that is stopped by SIGSTOP: it holds its slot, and cannot report that."""
        frozen_since: float | None = None
        while True:
            await self._clock.sleep(FROZEN_LOOK_S)
            frozen = process_tree.process_state(child.pid) == "T"
            frozen_since = (frozen_since or self._clock.now()) if frozen else None
            if frozen_since is not None and self._clock.now() >= frozen_since + self._limits.frozen_s:
                summary = (
                    f"process {child.pid} was stopped by a signal (SIGSTOP?) for {self._limits.frozen_s:g} s; ended"
                )
                self._fail(post, Failure(FailureKind.LOST, summary, log_tail=tail_lines(self._home / "log.txt")))
                child.kill(0.0)
                return

    async def _flush_reports(self, post: Post) -> None:
        while True:
            await self._clock.sleep(REPORT_INTERVAL_S)
            self._flush(post)

    def _flush(self, post: Post) -> None:
        if self._reports:
            post(m.MemberReported(self.member, tuple(self._reports)))
            self._reports.clear()
            self._reported = 0

    def _fail(self, post: Post, failure: Failure) -> None:
        seconds = 0.0 if self._entered_at is None else self._clock.now() - self._entered_at
        self._end(post, Outcome(seconds, failure=failure))

    def _end(self, post: Post, outcome: Outcome) -> None:
        """Post the outcome, the first time only: later events of the process do not change it."""
        if not self._outcome_sent:
            self._outcome_sent = True
            is_lost = outcome.failure is not None
            if is_lost and (last := self._pace.last_of(self.member, read_newest_step(self._home))):
                post(last)
            post(m.MemberEnded(self.member, outcome))

    def _with_tail(self, outcome: Outcome) -> Outcome:
        if outcome.failure is None:
            return outcome
        # The end of a container deletes its files before its last process is gone: an exception that comes of that is
        # no fault of the training function.
        if not (self._home.is_dir() and Path(self._code.path).is_file()):
            raise FilesGoneError(f"the files of {self.member} below {self._home.parent} were deleted under it")
        printed = lines_before(outcome.failure.ending, self._home / "log.txt")
        failure = replace(outcome.failure, log_tail=printed)
        return Outcome(outcome.seconds, failure=failure)

    def _assignment(self, place: Placement, restore_dir: str, memory_dir: str) -> pm.Assignment:
        start = self._start
        call = start.call
        return pm.Assignment(
            member=start.member,
            # Only a member that reads datasets gets the path of tokens: training functions have no other use for them.
            call=replace(call, env={**token_variables(), **call.env}) if call.data.sets else call,
            code=self._code,
            work_dir=str(self._home / "work"),
            log_dir=str(self._home / "files"),
            log_path=str(self._home / "log.txt"),
            gpus=place.gpus,
            gpu_totals=tuple(device.mib for device in place.devices),
            address=place.address,
            restore_dir=restore_dir,
            memory_dir=memory_dir,
            memory_transfers=None if start.memory is None else start.memory.transfers,
        )

    # ---- requests of the agent

    @property
    def is_stopping(self) -> bool:
        """The coordinator, or its agent, has had it stopped."""
        return self._stop_grace_s is not None

    def stop(self, grace_s: float) -> None:
        """End the process, or never start it; `MemberEnded` still comes."""
        self._stop_grace_s = grace_s
        if self._child is not None:
            self._child.kill(grace_s)

    def pass_on(self, message: pm.ToMember) -> None:
        """Forward a message of the coordinator to the member, if it has a process."""
        if isinstance(message, m.Seating) and message.moving is None:
            self.seating = message
            if message.ring and message.places:
                self._named.set()
        if self._child is not None:
            self._child.send(message)

    def rename(self, successor: Member) -> None:
        """The process, which is prepared, is `successor` from now on."""
        self.member = successor
        self._start = replace(self._start, member=successor)

    # ---- storing

    async def store(self, agent: AgentId, uploader: Uploader, post: Post) -> None:
        """Upload log and files, a long log and event files while the member runs; post `MemberStored`; remove the copy.

        A member that prints nothing has no log in the run directory. One that is prepared has none before it has its
        place.
        """
        await self._named.wait()
        member = self.member
        storing = Storing(agent, member, self._home, uploader)
        events = asyncio.create_task(LiveEvents(storing, self._home, self._over).follow())
        try:
            is_whole = await self._store_log(storing)
            await events
        finally:
            events.cancel()
        await storing.bring_all(STEPS, *(["log.txt"] if is_whole else []))
        post(m.MemberStored(member, storing.problem))
        await asyncio.to_thread(discard, self._home)

    async def _store_log(self, storing: Storing) -> bool:
        """Upload the log while the member runs; True when it has ended and left a short one, which is not uploaded."""
        # Each upload is a call of its own, and each new folder is synced to disk: a short trial sends its log with its
        # other small files, and one that prints nothing sends none.
        await self._over_within(LIVE_LOG_AFTER_S)
        while not self._over.is_set() and not storing.has_content("log.txt"):
            await self._over_within(POLL_S)
        if self._over.is_set() and storing.is_short("log.txt", self._start.call.options.log_limit):
            if not self._whole_log:
                with suppress(OSError):  # it is stored as it is
                    drop_noise(self._home / "log.txt")
            return True
        await storing.bring("log.txt", self._log.__aiter__)
        while not self._over.is_set():  # the upload failed: the log must not fill the disk
            with suppress(OSError):
                self._log.trim()
            await self._over_within(TRIM_INTERVAL_S)
        return False

    async def _over_within(self, seconds: float) -> None:
        """Wait for the end of the process, at most `seconds`."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._over.wait()


async def _with(work: Coroutine[None, None, T], *side_work: Coroutine[None, None, None]) -> T:
    """The result of `work`; `side_work` runs until then. Raises the first error of any of them."""
    main = asyncio.create_task(work)
    tasks: set[asyncio.Task[Any]] = {main, *map(asyncio.create_task, side_work)}
    pending = tasks
    try:
        while main in pending:
            finished, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
            for task in finished:
                task.result()
        return main.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class _Pace:
    """Measures how fast a member trains."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._last: tuple[float, int] | None = None

    def stepped(self, member: Member, message: pm.Stepped) -> m.MemberStepped:
        """The message about `member` for the coordinator; its rate covers the time since the last call."""
        now = self._clock.now()
        per_s = 0.0
        if self._last is not None and now > self._last[0]:
            per_s = max(0, message.step - self._last[1]) / (now - self._last[0])
        self._last = (now, message.step)
        return m.MemberStepped(member, message.step, per_s, message.training, message.times)

    def last_of(self, member: Member, marks: StepMarks) -> m.MemberStepped | None:
        """The message about the newest step of a member that ends, where its reports lack that."""
        is_reported = self._last is not None and self._last[1] == marks.step
        if marks.step is None or (is_reported and marks.called is None):
            return None
        return m.MemberStepped(member, marks.step, 0.0, called=marks.called)
