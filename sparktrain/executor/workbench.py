"""What an agent works with: its member, the code of runs, snapshots, and what it sends about them.

A workbench lasts as long as the stream to a coordinator, and longer where the ticket of the agent names for how long
(`AgentTicket.hold_s`). Then `hold` keeps the member's process and the uploads of its files while the agent looks for
the next coordinator, and names the member to it (`held`). That decides: the member continues (`adopt`), or ends at once
(`drop`). Without a decision in time everything ends as it does where no member is held.

The invariant: a member that is held obeys one coordinator, the one that has adopted it last. What it sends meanwhile
waits in the outbox.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from pathlib import Path

from msgspec.structs import replace

from sparktrain.base.clock import Clock
from sparktrain.base.ids import AgentId, RunId
from sparktrain.executor.member_runner import MemberSession
from sparktrain.executor.memory_holder import MemoryHolder
from sparktrain.executor.outbox import Outbox, Post
from sparktrain.executor.snapshots import CheckpointStorer
from sparktrain.executor.upload_queue import Chunks, Uploader
from sparktrain.protocol import messages as m
from sparktrain.protocol import pipe_messages as pm
from sparktrain.protocol.transport import Dialer, LinkClosedError

END_TIMEOUT_S = 5.0
"""How long the end of a workbench waits for its member's process."""
BREAK_S = 5.0
"""An upload that breaks off may be the first sign of a lost coordinator: how long until the stream breaks, too."""

logger = logging.getLogger("sparktrain")


class Workbench(Uploader):
    """The work of one agent. All methods belong to its event loop."""

    def __init__(
        self, agent: AgentId, scratch: Path, memory: Path | None, dialer: Dialer, clock: Clock, hold_s: float = 0.0
    ) -> None:
        """`agent` is the first one that works here, `memory` its folder in shared memory, if there is any."""
        self.agent = agent
        self.codes: dict[RunId, pm.LocalCode] = {}
        self.snapshots = CheckpointStorer(scratch, agent, self.post)
        self.memory = MemoryHolder(memory)
        self.member: MemberSession | None = None
        self.training: asyncio.Task[None] | None = None
        self.outbox = Outbox(keeps=hold_s > 0.0)
        self.on_error: Callable[[BaseException], None] | None = None
        """Called with the error of a task here; it ends the agent."""
        self._dialer = dialer
        self._clock = clock
        self._hold_s = hold_s
        self._send: Post | None = None
        self._storing: set[asyncio.Task[None]] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._expiry: asyncio.Task[None] | None = None
        """Since the loss of the coordinator: it ends what is held."""
        self._entered_at: float | None = None
        self._streams = 0
        """Coordinators that the member has had."""
        self._changed = asyncio.Event()
        """Set, and replaced, when the member gets a coordinator, or loses it."""

    # ---- at work

    @property
    def is_busy(self) -> bool:
        """It has a member, or files of one that are not stored yet."""
        return bool(self._storing) or (self.training is not None and not self.training.done())

    def open(self, agent: AgentId, send: Post, on_error: Callable[[BaseException], None]) -> None:
        """An agent of this id works here from now on; a member that is held waits until it is adopted."""
        self.agent = agent
        self._send = send
        self.on_error = on_error
        if not self.is_held:
            self._attach()

    def post(self, message: m.FromAgent) -> None:
        """Send a message of the work to the coordinator, once there is one."""
        if isinstance(message, m.MemberMessage | m.MemberStored):
            if isinstance(message, m.MemberStarted) and self._entered_at is None:
                self._entered_at = self._clock.now()
            self.outbox.post(message)
        elif self._send is not None and not self.is_held:
            self._send(message)

    def start(self, member: MemberSession, training: Callable[[], Coroutine[None, None, None]]) -> None:
        """Run `member`, in a process that `training` gives it, and store its files."""
        self.outbox.clear()
        self._entered_at = None
        self.member = member
        self.training = self._spawn(training())
        storing = self._spawn(member.store(self.agent, self, self.post))
        self._storing.add(storing)
        storing.add_done_callback(self._storing.discard)

    async def stored(self, timeout_s: float) -> None:
        """Wait until the files of members are stored."""
        if self._storing:
            await asyncio.wait(self._storing, timeout=timeout_s)

    async def upload(self, header: m.UploadHeader, chunks: Chunks) -> m.UploadDone:
        """See base class. A file goes to the next coordinator from its start where this one is lost."""
        while True:
            streams = self._streams
            try:
                return await self._dialer.upload(replace(header, agent=self.agent), chunks())
            except LinkClosedError:
                if not (self._hold_s and await self._is_adopted_after(streams)):
                    raise

    async def _is_adopted_after(self, streams: int) -> bool:
        """Wait for the next coordinator; False where this one is not lost."""
        until = self._clock.now() + BREAK_S
        while self._streams == streams:
            changed = self._changed
            if self.is_held:
                await changed.wait()
            elif self._clock.now() >= until:
                return False
            else:
                await self._clock.sleep(0.1)
        return True

    def _spawn(self, work: Coroutine[None, None, None]) -> "asyncio.Task[None]":
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._settle)
        return task

    def _settle(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            if self.on_error is not None:
                self.on_error(error)
            else:
                logger.warning("what this agent holds has failed: %s: %s", type(error).__name__, error)

    # ---- without a coordinator

    @property
    def is_held(self) -> bool:
        """The member has no coordinator: it is held for the next one."""
        return self._expiry is not None

    @property
    def held(self) -> m.HeldMember | None:
        """The member that is held, for the next coordinator."""
        session = self.member
        if session is None or not self.is_held:
            return None
        outbox = self.outbox
        seating = session.seating or m.Seating(member=session.member)
        rank = session.member.rank
        return m.HeldMember(
            member=session.member,
            place=None if seating.ranks or rank >= len(seating.places) else seating.places[rank],
            ring=seating.ring,
            entered=outbox.started is not None,
            trains=outbox.started is not None and outbox.started.trains,
            standing=outbox.standing,
            step=outbox.step,
            seconds=0.0 if self._entered_at is None else self._clock.now() - self._entered_at,
            stopping=session.is_stopping,
        )

    def hold(self) -> bool:
        """The coordinator is lost: keep what is here for the next one. False where there is nothing to hold."""
        self._send = None
        self.on_error = None
        self.outbox.detach()
        if self._expiry is not None:
            return True  # it was lost before it had decided
        if not self._hold_s or self.member is None or not self.outbox.is_whole or self.member.is_stopping:
            return False
        self._expiry = asyncio.create_task(self._expire())
        self._wake()
        return True

    async def _expire(self) -> None:
        await self._clock.sleep(self._hold_s)
        logger.warning("no coordinator has come for %s within %g s: it ends", self.member, self._hold_s)
        await self.end()

    def adopt(self, adopted: m.MemberAdopted) -> bool:
        """The coordinator has adopted the member; False where it is not here any more."""
        if not self.is_held or self.member is None or self.member.member != adopted.member:
            return False
        self._release()
        self._attach()
        return True

    def drop(self) -> None:
        """The coordinator has no use for what is held: its process ends, and so do the uploads of its files."""
        self._release()
        if self.member is not None:
            self.member.stop(0.0)
        self.member = None
        for task in self._storing:
            task.cancel()
        self.outbox.clear()
        self._attach()

    def _attach(self) -> None:
        if self._send is not None:
            self._streams += 1
            self.outbox.attach(self._send)
            self._wake()

    def _release(self) -> None:
        expiry = self._expiry
        self._expiry = None
        if expiry is not None and expiry is not asyncio.current_task():
            expiry.cancel()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def end_member(self) -> None:
        """End the member's process at once, and wait a few seconds for that."""
        if self.member is not None:
            self.member.stop(0.0)
        if self.training is not None:
            await asyncio.wait({self.training}, timeout=END_TIMEOUT_S)

    async def end(self) -> None:
        """End the member's process first, then the uploads. The workbench may be used again."""
        self._release()
        await self.end_member()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self.member = None
        self.training = None
        self.outbox.clear()
        self._attach()
