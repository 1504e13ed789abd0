"""One member, from its assignment to the last byte of its log: the agent's side."""

import asyncio
import shutil
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from pathlib import Path

from msgspec.structs import replace

from sparktrain import reaper
from sparktrain.clock import Clock
from sparktrain.errors import CheckpointError, InfraError
from sparktrain.executor.code import LocalCode
from sparktrain.executor.exits import classify
from sparktrain.executor.logs import LogFollower, tail_lines
from sparktrain.executor.placement import Placement
from sparktrain.executor.process import MemberProcess, ZygoteLostError
from sparktrain.executor.snapshots import SnapshotKeeper
from sparktrain.ids import AgentId, Member
from sparktrain.protocol import messages as m
from sparktrain.protocol import pipe_messages as pm
from sparktrain.protocol.transport import Dialer
from sparktrain.state.outcome import Failure, FailureKind, Outcome, Report

Post = Callable[[m.FromAgent], None]

REPORT_INTERVAL_S = 0.1
"""Reports of this long travel in one message."""
EXIT_TIMEOUT_S = 10.0
"""From a member's outcome until its process must be gone; then it is killed."""
FROZEN_TIMEOUT_S = 5.0
"""A member that is stopped by a signal for so long is ended."""
FROZEN_LOOK_S = 0.5
LIVE_LOG_AFTER_S = 0.5
"""A member that runs longer has its log uploaded while it runs."""
TRIM_INTERVAL_S = 1.0
CHUNK_BYTES = 256 * 1024


class FilesGoneError(InfraError):
    """The agent's files were deleted under it: its container has ended, and its last processes not yet."""


class MemberSession:
    """Runs one member in a waiting child of the zygote. One use; all methods belong to the agent's event loop."""

    def __init__(
        self, start: m.StartMember, code: LocalCode, home: Path, clock: Clock, snapshots: SnapshotKeeper
    ) -> None:
        self.member = start.member
        self._start = start
        self._code = code
        self._home = home
        self._clock = clock
        self._snapshots = snapshots
        self._keeping: asyncio.Task[None] | None = None
        self._child: MemberProcess | None = None
        self._stop_grace_s: float | None = None
        self._entered_at: float | None = None
        self._told = False
        self._reports: list[Report] = []
        self._pace = _Pace(start.member, clock)
        self._log = LogFollower(home / "log.txt", start.log_limit_bytes, clock)
        self._over = asyncio.Event()

    # ---- training

    async def train(self, child: MemberProcess, place: Placement, post: Post) -> None:
        """Run the member in `child`: post its messages up to `MemberEnded`, return when the process is gone.

        Raises nothing for what the member does; a lost zygote is a lost member. Raises FilesGoneError, and posts no
        `MemberEnded`, for a failure that comes of that: the agent is lost, whatever its processes still do.
        """
        self._child = child
        try:
            for folder in ("work", "files"):
                (self._home / folder).mkdir(parents=True)
            (self._home / "log.txt").touch()
            restore_dir = await self._snapshots.restore_dir(self._start, self._home)
            child.send(self._assignment(place, restore_dir))
            if self._stop_grace_s is not None:
                child.kill(self._stop_grace_s)
            await self._watch(child, post)
        except CheckpointError as error:
            child.kill(0.0)
            self._fail(post, Failure(FailureKind.CHECKPOINT, str(error)))
        except (ZygoteLostError, OSError) as error:
            child.kill(0.0)
            self._fail(post, Failure(FailureKind.LOST, str(error)))
        except FilesGoneError:
            child.kill(0.0)
            raise
        finally:
            self._child = None
            self._over.set()
            self._log.finish()

    async def _keep(self, child: MemberProcess, snapshot: pm.Snapshot, post: Post) -> None:
        kept = await self._snapshots.keep(self._start, self._home, snapshot)
        if kept.problem:
            post(m.CheckpointFailed(self.member, kept.step, kept.problem))
        child.send(kept)

    async def _watch(self, child: MemberProcess, post: Post) -> None:
        beside = [asyncio.create_task(self._flush_reports(post))]
        if self._start.size > 1:
            beside.append(asyncio.create_task(self._end_frozen(child, post)))
        try:
            await self._hear(child, post)
            exited = await self._gone(child)
        finally:
            for task in filter(None, (*beside, self._keeping)):
                task.cancel()
            self._flush(post)
        if not self._told:
            stopped, tail = self._stop_grace_s is not None, tail_lines(self._home / "log.txt")
            self._fail(post, classify(exited, stopped=stopped, disconnected=child.disconnected, log_tail=tail))

    async def _hear(self, child: MemberProcess, post: Post) -> None:
        """Pass on what the member says, to its end."""
        while (message := await child.receive()) is not None:
            match message:
                case pm.Entered(pid=pid):
                    self._entered_at = self._clock.now()
                    post(m.MemberStarted(self.member, pid))
                case pm.Reported(report=report):
                    self._reports.append(report)
                case pm.Reserved(port=port):
                    post(m.MemberReserved(self.member, port))
                case pm.Share(key=key, value=value):
                    post(m.MemberShared(self.member, key, value))
                case pm.Snapshot() as snapshot:
                    self._keeping = asyncio.create_task(self._keep(child, snapshot, post))
                case pm.Stepped(step=step, training=training):
                    post(self._pace.stepped(step, training))
                case pm.Ended(outcome=outcome):
                    self._flush(post)
                    self._end(post, self._with_tail(outcome))

    async def _gone(self, child: MemberProcess) -> pm.Exited:
        """The child's exit; it is killed when it does not exit by itself soon after its last message."""
        waiting = asyncio.ensure_future(child.wait())
        done, _ = await asyncio.wait({waiting}, timeout=EXIT_TIMEOUT_S)
        if not done:
            child.kill(0.0)
        return await waiting

    async def _end_frozen(self, child: MemberProcess, post: Post) -> None:
        """End a member that somebody has stopped by SIGSTOP: it holds up its gang, and has no way to say so."""
        frozen_since: float | None = None
        while True:
            await self._clock.sleep(FROZEN_LOOK_S)
            frozen = reaper.process_state(child.pid) == "T"
            frozen_since = (frozen_since or self._clock.now()) if frozen else None
            if frozen_since is not None and self._clock.now() >= frozen_since + FROZEN_TIMEOUT_S:
                summary = f"process {child.pid} was stopped by a signal (SIGSTOP?) for {FROZEN_TIMEOUT_S:g} s; ended"
                self._fail(post, Failure(FailureKind.HANG, summary, log_tail=tail_lines(self._home / "log.txt")))
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

    def _fail(self, post: Post, failure: Failure) -> None:
        seconds = 0.0 if self._entered_at is None else self._clock.now() - self._entered_at
        self._end(post, Outcome(seconds, failure=failure))

    def _end(self, post: Post, outcome: Outcome) -> None:
        """Tell the outcome, unless one was told: what happens to the process afterwards does not change it."""
        if not self._told:
            self._told = True
            post(m.MemberEnded(self.member, outcome))

    def _with_tail(self, outcome: Outcome) -> Outcome:
        if outcome.failure is None:
            return outcome
        if not (self._home.is_dir() and self._code.path.is_file()):
            raise FilesGoneError(f"the files of {self.member} below {self._home.parent} were deleted under it")
        failure = replace(outcome.failure, log_tail=tail_lines(self._home / "log.txt"))
        return Outcome(outcome.seconds, failure=failure)

    def _assignment(self, place: Placement, restore_dir: str) -> pm.Assignment:
        start = self._start
        return pm.Assignment(
            member=start.member,
            size=start.size,
            params=start.params,
            seed=start.seed,
            metric=start.metric,
            code_path=str(self._code.path),
            by_reference=self._code.by_reference,
            sys_path=self._code.sys_path,
            work_dir=str(self._home / "work"),
            log_dir=str(self._home / "files"),
            log_path=str(self._home / "log.txt"),
            gpus=place.gpus,
            address=place.address,
            backend=start.backend,
            restore_dir=restore_dir,
        )

    # ---- being told

    def stop(self, grace_s: float) -> None:
        """End the process, or never start it; `MemberEnded` still comes."""
        self._stop_grace_s = grace_s
        if self._child is not None:
            self._child.kill(grace_s)

    def pass_on(self, message: pm.ToMember) -> None:
        """Give the member a message of the coordinator's; one that has no process any more does not get it."""
        if self._child is not None:
            self._child.send(message)

    # ---- storing

    async def store(self, agent: AgentId, dialer: Dialer, post: Post) -> None:
        """Upload log, metrics and files, the log while the member runs; post `MemberStored`; remove the local copy."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._over.wait(), LIVE_LOG_AFTER_S)
        problems = [await self._upload(agent, dialer, "log.txt", aiter(self._log))]
        while not self._over.is_set():  # the upload failed: what the member still prints must not fill the disk
            self._log.trim()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._over.wait(), TRIM_INTERVAL_S)
        for path in await asyncio.to_thread(lambda: list(self._files())):
            name = path.relative_to(self._home).as_posix()
            problems.append(await self._upload(agent, dialer, name, _chunks(path)))
        post(m.MemberStored(self.member, "; ".join(filter(None, problems))))
        await asyncio.to_thread(shutil.rmtree, self._home, ignore_errors=True)

    async def _upload(self, agent: AgentId, dialer: Dialer, name: str, chunks: AsyncIterator[bytes]) -> str:
        try:
            await dialer.upload(m.UploadHeader(agent, self.member, name), chunks)
        except (InfraError, OSError) as error:
            return f"{name}: {error}"
        return ""

    def _files(self) -> Iterator[Path]:
        found = [self._home / "metrics.jsonl", self._home / "model.keras", *sorted((self._home / "files").rglob("*"))]
        return (path for path in found if path.is_file() and not path.is_symlink())


class _Pace:
    """How fast a member trains."""

    def __init__(self, member: Member, clock: Clock) -> None:
        self._member = member
        self._clock = clock
        self._last: tuple[float, int] | None = None

    def stepped(self, step: int, training: bool) -> m.MemberStepped:
        """What the coordinator is told; the rate is over the time since the last call."""
        now, per_s = self._clock.now(), 0.0
        if self._last is not None and now > self._last[0]:
            per_s = max(0, step - self._last[1]) / (now - self._last[0])
        self._last = (now, step)
        return m.MemberStepped(self._member, step, per_s, training)


async def _chunks(path: Path) -> AsyncIterator[bytes]:
    with path.open("rb") as file:
        while chunk := await asyncio.to_thread(file.read, CHUNK_BYTES):
            yield chunk
