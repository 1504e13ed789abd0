"""The agent: the code of one Spark task. It joins the coordinator, keeps a warm zygote, and runs one member at a time.

`Attendance` is the task: it dials the coordinator, and lives as one `Agent` after the other, each with an id of its
own. An agent joins, and then four things run side by side: it handles messages, sends heartbeats, keeps its zygote,
and prepares code. The first of them that ends with an error or a reason ends the agent. Decisions are the
coordinator's: the agent starts and stops members as it is asked, and passes on what they send.

The invariant: no member trains without a lease. A lease counts from the moment at which an answered heartbeat was
sent, so the agent ends its member before the coordinator, which waits longer, gives the trial to another agent. After
a broken stream the agent ends its member, and joins again as a new agent as soon as it reaches the coordinator. Where
another coordinator may follow it holds the member for a while instead, see `workbench`: two attempts of a trial may
train side by side meanwhile, and only one of them has the generation that counts.
Nothing that a training function does may end the task: a failed task costs a slot, and several of them Spark's whole
job.
"""

import asyncio
import logging
import signal
import sys
import uuid
from collections.abc import Coroutine
from contextlib import closing, suppress
from functools import partial
from pathlib import Path

from sparktrain.base.backoff import Backoff
from sparktrain.base.clock import Clock, SystemClock
from sparktrain.base.ids import AgentId, Member, RunId
from sparktrain.errors import BugError, InfraError, ProtocolError
from sparktrain.executor.cluster_dialer import END_TIMEOUT_S, ClusterDialer, CoordinatorProcess
from sparktrain.executor.code import keep
from sparktrain.executor.departure import UNLIMITED_S, Departure, LossNotice, end_by
from sparktrain.executor.member_runner import LIMITS, MemberLimits, MemberSession
from sparktrain.executor.memory_holder import shared_memory
from sparktrain.executor.notice_probe import HostNotices
from sparktrain.executor.outbox import fitting
from sparktrain.executor.spark_task import Placement
from sparktrain.executor.warm_zygote import WarmZygote
from sparktrain.executor.workbench import Workbench
from sparktrain.executor.zygote_process import ZygoteLostError
from sparktrain.protocol import messages as m
from sparktrain.protocol.grpc import GrpcDialer
from sparktrain.protocol.ticket import AgentTicket
from sparktrain.protocol.transport import Dialer, Link, LinkClosedError, Unreachable
from sparktrain.state.liveness import Lease
from sparktrain.state.outcome import Failure, FailureKind, Outcome
from sparktrain.store.hadoop.token_file import TokenFile
from sparktrain.store.held_folders import HeldFolder

ATTEMPT_S = 15.0
"""How long one attempt to reach the coordinator again may take."""
PAUSE_S = 0.5
"""The pause before the second attempt; it doubles with each attempt."""
PAUSE_AT_MOST_S = 15.0
REST_S = 30.0
"""How long an agent pauses after too many lost zygotes, or with a full disk; it doubles each time."""
REST_AT_MOST_S = 600.0
STORE_TIMEOUT_S = 5.0
"""How long a dismissed agent waits for its member's end, and for its uploads."""

logger = logging.getLogger("sparktrain")


class UnfitError(InfraError, RuntimeError):
    """The agent's host prevents it from working, such as with a full disk."""


def attend(place: Placement, ticket: AgentTicket, warm: WarmZygote, folder: HeldFolder) -> tuple[str, bool]:
    """Run the agent at `place` until the pool closes, with a zygote that has `started` in `folder`. Blocks, in the main
    thread; returns why it ended, and whether it joined. After a notice that this process will be gone, it does not
    return: the process ends by a signal."""
    with closing(folder), shared_memory() as memory, closing(TokenFile(warm.scratch)) as tokens:
        departure = Departure(SystemClock(), place.jvm)
        coordinator = CoordinatorProcess(warm.scratch / "coordinator")
        dialer = _dialer_of(place, ticket, tokens, coordinator)
        attendance = Attendance(place, ticket, warm, tokens, dialer, memory=memory, departure=departure)
        try:
            end = asyncio.run(_until_due(attendance, departure))
        except BaseException:
            coordinator.close(0.0)
            raise
        # An agent that was dismissed leaves before the result is written, and its end would be that of its coordinator.
        # Where this process will be gone, another agent starts the successor.
        coordinator.close(0.0 if isinstance(end, int) else END_TIMEOUT_S)
    if isinstance(end, int):
        end_by(end)
        raise BugError(f"the agent's process outlives signal {end}")
    return end


def _dialer_of(place: Placement, ticket: AgentTicket, tokens: TokenFile, coordinator: CoordinatorProcess) -> Dialer:
    """What finds the coordinator: in the driver, or where an agent of the call has started it."""
    if ticket.home is None:
        return GrpcDialer(ticket)
    if ticket.home.tokens:
        tokens.keep(ticket.home.tokens)
    return ClusterDialer(ticket, ticket.home, place, coordinator, tuple(sys.path))


async def _until_due(attendance: "Attendance", departure: Departure) -> tuple[str, bool] | int:
    """How the attendance ended; the signal that ends the process, where that is due before."""
    departure.listen()
    running = asyncio.create_task(attendance.run())
    due = asyncio.create_task(departure.due(lambda: attendance.is_connected, lambda: attendance.is_busy))
    try:
        await asyncio.wait({running, due}, return_when=asyncio.FIRST_COMPLETED)
        if running.done():
            return running.result()
        return due.result()
    finally:
        for task in (running, due):
            task.cancel()
        await asyncio.gather(running, due, return_exceptions=True)


class Attendance:
    """The agents of one Spark task, one after the other: each reconnection starts another one."""

    def __init__(
        self,
        place: Placement,
        ticket: AgentTicket,
        warm: WarmZygote,
        tokens: TokenFile,
        dialer: Dialer | None = None,
        clock: Clock | None = None,
        memory: Path | None = None,
        departure: Departure | None = None,
    ) -> None:
        self._place = place
        self._ticket = ticket
        self._life: Agent | None = None
        self._bench: Workbench | None = None
        self._warm = warm
        self._tokens = tokens
        self._memory = memory
        self._dialer = dialer or GrpcDialer(ticket)
        self._clock = clock or SystemClock()
        self._departure = departure or Departure(self._clock)

    @property
    def is_connected(self) -> bool:
        """An agent has joined, and its stream is open."""
        return self._life is not None and self._life.has_joined

    @property
    def is_busy(self) -> bool:
        """The agent has a member, or files of one that are not stored yet."""
        return self._bench is not None and self._bench.is_busy

    async def run(self) -> tuple[str, bool]:
        """Run until dismissed or refused; returns why, and whether the coordinator was ever reached."""
        reached = False
        rests = Backoff(REST_S, REST_AT_MOST_S)
        away = ""
        try:
            link = await self._dialer.attend(self._ticket.connect_s)
            while True:
                reached = True
                # A new id for each life: the coordinator has given up the one before, and must not mistake its late
                # messages for those of this one.
                life = Agent(
                    self._place, self._warm, self._dialer, link, self._clock, self._tokens, self._memory,
                    departure=self._departure, bench=self._bench, hold_s=self._ticket.hold_s,
                )  # fmt: skip
                self._life = life
                self._bench = life.bench
                if (reason := await life.run(away, self._ticket.batch)) is not None:
                    return reason, reached
                self._life = None
                self._bench = life.bench if life.bench.is_held else None
                lost_at = self._clock.now()
                if life.unfit:
                    await self._clock.sleep(rests.next_s())
                    self._warm.forgive()
                link = await self._dial(life.cut)
                away = f"away for {self._clock.now() - lost_at:.0f} s: {life.cut}"
        except Unreachable as error:
            return f"agent on {self._place.host}: {error}", reached
        finally:
            if self._bench is not None:
                await self._bench.end()
            await self._warm.close()
            await self._dialer.close()

    async def _dial(self, cause: str) -> Link:
        """Reconnect to the coordinator, without a limit of time: Spark ends this task when its driver is gone.

        Where the ticket has a limit because Spark does not end the task, it raises Unreachable once the driver's host
        has refused connections for that long.
        """
        backoff = Backoff(PAUSE_S, PAUSE_AT_MOST_S)
        refused_since = None
        while True:
            started = self._clock.now()
            try:
                return await self._dialer.attend(ATTEMPT_S)
            except Unreachable as error:
                refused_since = (started if refused_since is None else refused_since) if error.refused else None
                limit_s = self._ticket.refused_s
                if limit_s is not None and refused_since is not None and self._clock.now() >= refused_since + limit_s:
                    raise
                if backoff.pause_s == PAUSE_S:
                    logger.warning("the agent on %s tries to come back (%s): %s", self._place.host, cause, error)
            await self._clock.sleep(backoff.next_s())


class Agent:
    """One agent, from `Join` to the end of its stream. All methods belong to its event loop."""

    def __init__(
        self,
        place: Placement,
        warm: WarmZygote,
        dialer: Dialer,
        link: Link,
        clock: Clock,
        tokens: TokenFile,
        memory: Path | None = None,
        *,
        limits: MemberLimits = LIMITS,
        departure: Departure | None = None,
        bench: Workbench | None = None,
        hold_s: float = 0.0,
    ) -> None:
        """`memory` is the agent's folder in shared memory, if there is any; `bench` has the member that this task has
        held since its coordinator was lost, and `hold_s` is how long it holds one."""
        self._departure = departure or Departure(clock)
        self.has_joined = False
        """Whether the coordinator has welcomed it, and its stream is open."""
        self.id = AgentId(f"{place.slot}-{uuid.uuid4().hex[:12]}")
        self._place = place
        self._warm = warm
        self._dialer = dialer
        self._link = link
        self._clock = clock
        self._tokens = tokens
        self._limits = limits
        self.bench = bench or Workbench(self.id, warm.scratch, memory, dialer, clock, hold_s)
        self._notices = HostNotices(
            clock,
            lambda notice: self._departure.announce(LossNotice(notice, UNLIMITED_S)),
            lambda address, looks, problem: self._post(m.NoticeUnreadable(address, looks, problem)),
            self._spawn,
        )
        self._lease = Lease(0.0)
        self._leased = asyncio.Event()
        """Set when the coordinator has answered a heartbeat: then the agent has a lease."""
        self.cut = ""
        """Why the agent lost its stream or its lease, or is unfit."""
        self.unfit = False
        """Whether its host prevented it from working; it may work after a pause."""
        self._tasks: set[asyncio.Task[str | None]] = set()
        self._ended: asyncio.Future[str | None] | None = None

    async def run(self, away: str = "", batch: int = 0) -> str | None:
        """Run until dismissed or refused, and return the reason; None when the task may join again: see `cut`.

        `away` is why, and for how long, this task's agent was gone before; `batch` is that of the ticket.
        """
        self._ended = asyncio.get_running_loop().create_future()
        try:
            welcome = await self._join(away, batch)
            if isinstance(welcome, str):
                return welcome
            self._lease = Lease(welcome.lease_s)
            self.has_joined = True
            self._spawn(self._handle_messages())
            self._spawn(self._send_heartbeats(welcome.heartbeat_s))
            self._spawn(self._keep_zygote())
            self._spawn(self._ready(welcome.preload, None))
            self._spawn(self._announce())
            return await self._ended
        except (LinkClosedError, UnfitError) as error:
            self.cut = str(error)
            self.unfit = isinstance(error, UnfitError)
            return None
        finally:
            self.has_joined = False
            await self._leave()

    async def _announce(self) -> None:
        """Report to the coordinator once this process has notice that it will be gone."""
        await self._departure.announced.wait()
        assert self._departure.notice is not None
        notice = self._departure.notice
        self._post(m.AgentLeaves(notice.text, notice.grace_s if notice.grace_s < UNLIMITED_S else None))

    async def _join(self, away: str, batch: int) -> m.Welcome | str:
        place = self._place
        join = m.Join(
            agent=self.id,
            slot=place.slot,
            host=place.host,
            pid=place.pid,
            versions=place.versions,
            devices=tuple(device.name for device in place.devices),
            executor=place.executor,
            address=place.address,
            task=place.task,
            away=m.AgentAbsence(away, self.bench.held),
            device_mib=tuple(device.mib for device in place.devices),
            batch=batch,
        )
        self.bench.open(self.id, self._post, self._fail)
        self._post(join)
        match await self._link.receive():
            case m.Welcome() as welcome:
                return welcome
            case m.Refuse(reason=reason) | m.Dismiss(reason=reason):
                return reason
            case other:
                raise ProtocolError(f"{type(other).__name__} in answer to Join")

    def _post(self, message: m.FromAgent) -> None:
        with suppress(LinkClosedError):  # the reader of the stream raises it, and ends the agent
            # The coordinator ends a link that carries a message above its limit, and with it the agent.
            for part in fitting(message):
                self._link.post(part)

    def _fail(self, error: BaseException) -> None:
        """What the agent works with has failed: that ends the agent."""
        if self._ended is not None and not self._ended.done():
            self._ended.set_exception(error)

    def _spawn(self, work: Coroutine[None, None, str | None]) -> "asyncio.Task[str | None]":
        """Run `work` as a task; its error, or the text that it returns, ends the agent."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._settle)
        return task

    def _settle(self, task: "asyncio.Task[str | None]") -> None:
        self._tasks.discard(task)
        if task.cancelled() or self._ended is None or self._ended.done():
            return
        if (error := task.exception()) is not None:
            self._fail(error)
        elif task.result() is not None:
            self._ended.set_result(task.result())

    # ---- connected

    async def _handle_messages(self) -> str:
        while True:
            match await self._link.receive():
                case m.HeartbeatAck(settled=settled):
                    self.bench.outbox.settle(settled)
                    self._lease.answered()
                    self._leased.set()
                case m.AskHeartbeat():
                    self._send_heartbeat()
                case m.Prepare() as prepare:
                    self._spawn(self._prepare(prepare))
                case m.Tokens(content=content):
                    await asyncio.to_thread(self._tokens.keep, content)  # the next message may need them
                case m.Certificates() as renewed:
                    self._dialer.renew(renewed.bundle)
                case m.StartMember() as start:
                    self._start(start)
                case m.MemberAdopted() as adopted:
                    self._adopt(adopted)
                case m.StopMember(member=member) if self.bench.is_held and self._mine(member) is not None:
                    self.bench.drop()
                case m.StopMember(member=member, grace_s=grace_s) if (mine := self._mine(member)) is not None:
                    mine.stop(grace_s)
                case m.RenameMember(member=member, successor=successor) if (mine := self._mine(member)) is not None:
                    mine.rename(successor)
                    self.bench.outbox.rename(successor)
                case m.ForgetSnapshot(member=member) if self._mine(member) is not None:
                    self.bench.memory.forget()
                case m.FeedEnded(member=member, over=over) if (mine := self._mine(member)) is not None:
                    mine.pass_on(over)
                case (
                    m.Seating() | m.PeerShared() | m.Judged() | m.Advise() | m.AskSnapshot() | m.AnswerMember()
                ) as message if (mine := self._mine(message.member)) is not None:
                    if isinstance(message, m.AnswerMember):
                        self.bench.outbox.answered(message.number)
                    mine.pass_on(message)
                case m.AckCheckpoint() as ack:
                    self.bench.snapshots.acknowledged(ack)
                case (m.CommitParts() | m.GiveUpPart()) as news:
                    self.bench.snapshots.decided(news)
                case m.Depart(notice=notice):
                    self._departure.announce(LossNotice(notice, UNLIMITED_S, signal.SIGTERM))
                case m.Dismiss(reason=reason):
                    await self._finish(reason)
                    return reason
                case m.Refuse(reason=reason):
                    return reason

    def _mine(self, member: Member) -> MemberSession | None:
        """The session of `member`, unless another one has followed it."""
        mine = self.bench.member
        return mine if mine is not None and mine.member == member else None

    def _adopt(self, adopted: m.MemberAdopted) -> None:
        """The member that was held continues; one that has ended since the agent has named it is lost."""
        if not self.bench.adopt(adopted):
            summary = f"its agent on {self._place.host} has held it for too long, and ended it"
            ended = m.MemberEnded(adopted.member, Outcome(0.0, failure=Failure(FailureKind.LOST, summary)))
            self.bench.outbox.post(ended)

    async def _send_heartbeats(self, heartbeat_s: float) -> None:
        """Renew the lease. Raises LinkClosedError when it has run out: another agent may have the member by then."""
        while self._lease.left_s(now := self._clock.now()) > 0.0:
            self._send_heartbeat()
            await self._clock.sleep(min(heartbeat_s, self._lease.left_s(now)))
        raise LinkClosedError("the coordinator did not answer before the lease ran out")

    def _send_heartbeat(self) -> None:
        # Count the lease from here and not from the answer: the coordinator may have counted it from any moment since.
        self._lease.sent(self._clock.now())
        self._post(m.Heartbeat())

    async def _keep_zygote(self) -> None:
        """Replace lost zygotes. Raises UnfitError after too many losses."""
        try:
            await self._warm.keep()
        except ZygoteLostError as error:
            raise self._unfit(str(error)) from error

    def _unfit(self, why: str) -> "UnfitError":
        """Leave for a while: the end of the task would cost a slot, and its failure Spark's whole job."""
        self._post(m.Leave(f"agent on {self._place.host} leaves for a while: {why}"))
        return UnfitError(why)

    async def _prepare(self, prepare: m.Prepare) -> None:
        """Store the code of a run and preload its modules. Raises UnfitError if the disk fails."""
        await self._notices.watch(prepare.notices)
        try:
            self.bench.codes[prepare.run] = await asyncio.to_thread(keep, prepare.code, self._warm.scratch / "code")
        except OSError as error:
            why = f"the code of run {prepare.run} cannot be kept below {self._warm.scratch}: {error}"
            raise self._unfit(why) from error
        await self._ready(prepare.preload, prepare.run)

    async def _ready(self, modules: tuple[str, ...], run: RunId | None) -> None:
        failed = await self._warm.preload(modules)
        # A member may start as soon as the agent is ready, so it must have a lease by then.
        await self._leased.wait()
        self._post(m.Ready(run, failed))

    def _start(self, start: m.StartMember) -> None:
        member = start.member  # unique: uploads of an equal member of an earlier run may still be under way
        name = f"trial-{member.trial}-{member.generation}-{member.rank}-{uuid.uuid4().hex[:12]}"
        bench = self.bench
        session = MemberSession(
            start,
            bench.codes[member.run],
            self._warm.scratch / name,
            self._clock,
            bench.snapshots,
            bench.memory,
            limits=self._limits,
        )
        bench.start(session, partial(self._train, session, bench.training))

    async def _train(self, member: MemberSession, previous: "asyncio.Task[None] | None") -> None:
        if previous is not None:
            await asyncio.wait({previous})  # its process may outlive its outcome, and hold the GPU
        await member.train(await self._warm.take(), self._place, self.bench.post)

    # ---- the end

    async def _finish(self, reason: str) -> None:
        """End the member at once, wait for its uploads for a few seconds, and leave."""
        if self.bench.is_held:
            self.bench.drop()
        await self.bench.end_member()
        await self.bench.stored(STORE_TIMEOUT_S)
        self._post(m.Leave(reason))

    async def _leave(self) -> None:
        """End the member's process first, or hold it for the next coordinator; then the tasks, then the stream."""
        try:
            if not (self.cut and not self.unfit and self.bench.hold()):
                await self.bench.end()
        finally:  # also where this process is to end before that: a task that is left would replace the zygote
            tasks = list(self._tasks)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self._link.close("the agent left")
