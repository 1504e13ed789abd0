"""The agent: our code in one Spark task. It joins the coordinator, keeps a warm zygote, and runs one member at a time.

An agent outlives a broken stream only without its member: it ends it, and joins again as a new agent.
"""

import asyncio
import shutil
import sys
import tempfile
import uuid
from collections.abc import Coroutine
from contextlib import suppress
from pathlib import Path

from sparktrain.clock import Clock, SystemClock
from sparktrain.errors import InfraError, ProtocolError
from sparktrain.executor.code import LocalCode, keep
from sparktrain.executor.member import MemberSession
from sparktrain.executor.placement import Placement, placement
from sparktrain.executor.process import scratch_root, thread_limits
from sparktrain.executor.snapshots import SnapshotKeeper
from sparktrain.executor.warm import WarmZygote
from sparktrain.ids import AgentId, Member, RunId
from sparktrain.protocol import messages as m
from sparktrain.protocol import pipe_messages as pm
from sparktrain.protocol.grpc import GrpcDialer
from sparktrain.protocol.ticket import AgentTicket
from sparktrain.protocol.transport import Dialer, Link, LinkClosedError, Unreachable
from sparktrain.store.hadoop.tokens import TokenFile

REJOIN_S = 3.0
"""How long an agent whose stream broke tries to reach the coordinator again; a dead driver's agents are gone then."""
STORE_TIMEOUT_S = 5.0
"""How long a dismissed agent waits for its member's end, and goes on uploading."""


def attend(slot: int, ticket: AgentTicket) -> tuple[str, bool]:
    """Be the agent of `slot` until the pool closes; why it ended, and whether it reached the coordinator. Blocks."""
    scratch = Path(tempfile.mkdtemp(prefix="sparktrain-agent-", dir=scratch_root()))
    tokens = TokenFile(scratch)
    try:
        place = placement(slot, ticket)
        warm = WarmZygote(scratch, sys.path, thread_limits(place.cpus), SystemClock())
        warm.start()
        return asyncio.run(_attend(place, ticket, warm, tokens))
    finally:
        tokens.close()
        shutil.rmtree(scratch, ignore_errors=True)


async def _attend(place: Placement, ticket: AgentTicket, warm: WarmZygote, tokens: TokenFile) -> tuple[str, bool]:
    dialer = GrpcDialer(ticket)
    deadline_s, reached = ticket.connect_s, False
    try:
        while True:
            link = await dialer.attend(deadline_s)
            reached, deadline_s = True, REJOIN_S
            if (reason := await Agent(place, warm, dialer, link, SystemClock(), tokens).run()) is not None:
                return reason, reached
    except Unreachable as error:
        return f"agent on {place.host}: {error}", reached
    finally:
        await warm.close()
        await dialer.close()


class Agent:
    """One life of one agent: from `Join` to the end of its stream. All methods belong to its event loop."""

    def __init__(
        self, place: Placement, warm: WarmZygote, dialer: Dialer, link: Link, clock: Clock, tokens: TokenFile
    ) -> None:
        self.id = AgentId(f"{place.slot}-{uuid.uuid4().hex[:12]}")
        self._place = place
        self._warm = warm
        self._dialer = dialer
        self._link = link
        self._clock = clock
        self._tokens = tokens
        self._codes: dict[RunId, LocalCode] = {}
        self._snapshots = SnapshotKeeper(warm.scratch, self.id, self._post)
        self._member: MemberSession | None = None
        self._training: asyncio.Task[str | None] | None = None
        self._storing: set[asyncio.Task[str | None]] = set()
        self._lease_until = float("inf")
        self._tasks: set[asyncio.Task[str | None]] = set()
        self._ended: asyncio.Future[str | None] | None = None

    async def run(self) -> str | None:
        """Attend until dismissed or refused, and say why; None when the stream or the lease was lost."""
        self._ended = asyncio.get_running_loop().create_future()
        try:
            welcome = await self._join()
            if isinstance(welcome, str):
                return welcome
            self._lease_until = self._clock.now() + welcome.lease_s
            self._spawn(self._obey(welcome.lease_s))
            self._spawn(self._beat(welcome.beat_s))
            self._spawn(self._keep_zygote())
            self._spawn(self._ready(welcome.preload, None))
            return await self._ended
        except LinkClosedError:
            return None
        finally:
            await self._leave()

    async def _join(self) -> m.Welcome | str:
        place = self._place
        where = place.devices, place.executor, place.address, place.task
        self._post(m.Join(self.id, place.slot, place.host, place.pid, place.versions, *where))
        match await self._link.receive():
            case m.Welcome() as welcome:
                return welcome
            case m.Refuse(reason=reason) | m.Dismiss(reason=reason):
                return reason
            case other:
                raise ProtocolError(f"{type(other).__name__} in answer to Join")

    def _post(self, message: m.FromAgent) -> None:
        with suppress(LinkClosedError):  # the reader of the stream finds out, and ends the agent
            self._link.post(message)

    def _spawn(self, work: Coroutine[None, None, str | None]) -> "asyncio.Task[str | None]":
        """Run `work` beside the others; its error, or the text that it returns, ends the agent."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._settle)
        return task

    def _settle(self, task: "asyncio.Task[str | None]") -> None:
        self._tasks.discard(task)
        if task.cancelled() or self._ended is None or self._ended.done():
            return
        if (error := task.exception()) is not None:
            self._ended.set_exception(error)
        elif task.result() is not None:
            self._ended.set_result(task.result())

    # ---- while attending

    async def _obey(self, lease_s: float) -> str:
        while True:
            match await self._link.receive():
                case m.BeatAck():
                    self._lease_until = self._clock.now() + lease_s
                case m.Prepare() as prepare:
                    self._spawn(self._prepare(prepare))
                case m.Tokens(content=content):
                    await asyncio.to_thread(self._tokens.keep, content)  # what comes next may need them
                case m.StartMember() as start:
                    self._start(start)
                case m.StopMember(member=member, grace_s=grace_s) if (mine := self._mine(member)) is not None:
                    mine.stop(grace_s)
                case m.Advise(member=member) if (mine := self._mine(member)) is not None:
                    mine.pass_on(pm.Heed())
                case m.FormGang(member=member, places=places) if (mine := self._mine(member)) is not None:
                    mine.pass_on(pm.Form(places))
                case m.PeerShared(member=member, key=key, value=value) if (mine := self._mine(member)) is not None:
                    mine.pass_on(pm.Share(key, value))
                case m.AckCheckpoint() as ack:
                    self._snapshots.acknowledged(ack)
                case m.Dismiss(reason=reason):
                    await self._finish(reason)
                    return reason
                case m.Refuse(reason=reason):
                    return reason

    def _mine(self, member: Member) -> MemberSession | None:
        """The session of `member`, unless it is over and another has followed."""
        return self._member if self._member is not None and self._member.member == member else None

    async def _beat(self, beat_s: float) -> None:
        """Raises when the lease has run out: the coordinator may have given this agent's member to another."""
        while self._clock.now() < self._lease_until:
            self._post(m.Beat())
            await self._clock.sleep(beat_s)
        raise LinkClosedError("the coordinator did not answer before the lease ran out")

    async def _keep_zygote(self) -> str:
        try:
            await self._warm.keep()
        except InfraError as error:
            reason = f"agent on {self._place.host} leaves: {error}"
            self._post(m.Leave(reason))
            return reason
        raise AssertionError("unreachable")

    async def _prepare(self, prepare: m.Prepare) -> None:
        self._codes[prepare.run] = await asyncio.to_thread(keep, prepare.code, self._warm.scratch / "code")
        await self._ready(prepare.preload, prepare.run)

    async def _ready(self, modules: tuple[str, ...], run: RunId | None) -> None:
        failed = await self._warm.preload(modules)
        self._post(m.Ready(run, failed))

    def _start(self, start: m.StartMember) -> None:
        home = self._warm.scratch / f"trial-{start.member.trial}-{start.member.generation}-{start.member.rank}"
        code = self._codes[start.member.run]
        self._member = MemberSession(start, code, home, self._clock, self._snapshots)
        self._training = self._spawn(self._train(self._member, self._training))
        storing = self._spawn(self._member.store(self.id, self._dialer, self._post))
        self._storing.add(storing)
        storing.add_done_callback(self._storing.discard)

    async def _train(self, member: MemberSession, previous: "asyncio.Task[str | None] | None") -> None:
        if previous is not None:
            await asyncio.wait({previous})  # its process may outlive its outcome, and holds the GPU
        await member.train(await self._warm.take(), self._place, self._post)

    # ---- the end

    async def _finish(self, reason: str) -> None:
        """Dismissed: end the member at once, give its uploads a little time, and say goodbye."""
        await self._end_member()
        if self._storing:
            await asyncio.wait(self._storing, timeout=STORE_TIMEOUT_S)
        self._post(m.Leave(reason))

    async def _end_member(self) -> None:
        if self._member is not None:
            self._member.stop(0.0)
        if self._training is not None:
            await asyncio.wait({self._training}, timeout=STORE_TIMEOUT_S)

    async def _leave(self) -> None:
        """However the agent ends: its member's process goes first, then its tasks, then its stream."""
        await self._end_member()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._link.close("the agent left")
