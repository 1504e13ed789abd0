"""A real agent with a real zygote, and a coordinator that records the messages of the agent."""

import asyncio
import hashlib
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import cloudpickle

from sparktrain.base.clock import SystemClock
from sparktrain.base.ids import Generation, Member, RunId, TrialId
from sparktrain.executor.agent import Agent
from sparktrain.executor.member_runner import LIMITS, MemberLimits
from sparktrain.executor.spark_task import Placement
from sparktrain.executor.warm_zygote import RESTARTS, WarmZygote
from sparktrain.protocol import messages as m
from sparktrain.protocol.memory_transport import MemoryTransport
from sparktrain.protocol.transport import Link
from sparktrain.state.outcome import Failure
from sparktrain.store.hadoop.token_file import TokenFile
from tests.process.harness import MARK, eventually
from tests.support.member_calls import member_call
from tests.unit.executor.reception import Reception

WITHIN_S = 30.0
PLACE = Placement(slot=0, host="host", pid=0, executor=0, cpus=None, gpus=(), devices=(), versions={})


class Hall(Reception):
    """The coordinator's side of one agent with a real zygote."""

    def __init__(self, scratch: Path) -> None:
        super().__init__()
        self.scratch = scratch
        self.files: dict[tuple[Member, str], bytes] = {}
        self.streams = 0
        """Uploads that have started."""
        self.ended: asyncio.Task[str | None] | None = None
        """The task in which the agent runs."""
        self.link: Link | None = None

    async def serve(self, link: Link) -> None:
        """See base class."""
        self.link = link
        await super().serve(link)

    async def store(self, header: m.UploadHeader, chunks: AsyncIterator[bytes]) -> m.UploadDone:
        """Keep an upload in memory."""
        self.streams += 1
        content = b"".join([chunk async for chunk in chunks])
        start = 0
        for part in header.parts or (m.Part(header.name, len(content)),):
            self.files[header.member, part.name] = content[start : start + part.size_bytes]
            start += part.size_bytes
        assert start == len(content)
        return m.UploadDone(len(content))

    async def prepare(self, run: str, function: Callable[..., Any]) -> None:
        """Send `function` to the agent as the code of `run`."""
        pickled = cloudpickle.dumps(function)
        code = m.Code(hashlib.sha256(pickled).hexdigest(), pickled)
        assert self.link is not None
        self.link.post(m.Prepare(RunId(run), code, ()))
        await self.until(lambda: m.Ready(RunId(run)) in self.heard, f"the agent is ready for {run}")

    def start(self, run: str, trial: int = 0, **changes: Any) -> Member:
        """Have the agent start a member of a prepared run."""
        member = Member(RunId(run), TrialId(trial), Generation(1))
        assert self.link is not None
        self.link.post(m.StartMember(member=member, call=member_call(**changes)))
        return member

    async def ended_member(self, member: Member) -> m.MemberEnded:
        """Wait for the end of `member`; return its exit."""
        return await self._first(m.MemberEnded, member)

    async def failure(self, member: Member) -> Failure:
        """Wait for the failure of `member`; return it."""
        outcome = (await self.ended_member(member)).outcome
        assert outcome.failure is not None, outcome.metrics
        return outcome.failure

    async def stored(self, member: Member) -> str:
        """Wait until the files of `member` are stored; return those that could not be."""
        return (await self._first(m.MemberStored, member)).problem

    async def until(self, holds: Callable[[], object], what: str) -> None:
        """Wait until the condition holds. AssertionError when the agent ends before."""
        assert self.ended is not None
        await eventually(lambda: holds() or self.ended is None or self.ended.done(), WITHIN_S, what)
        if not holds():
            raise AssertionError(f"the agent ended: {self.ended.result()}")

    async def _first(self, kind: type[Any], member: Member) -> Any:
        def found() -> list[Any]:
            return [each for each in self.heard if isinstance(each, kind) and each.member == member]

        await self.until(found, f"{kind.__name__} of {member}")
        return found()[0]


@asynccontextmanager
async def attended(
    scratch: Path, mark: str, dismissed: bool = True, *, restarts: int = RESTARTS, limits: MemberLimits = LIMITS
) -> AsyncIterator[Hall]:
    """An agent that has joined, with its files below `scratch`; dismissed at the end."""
    transport, hall, tokens = MemoryTransport(), Hall(scratch), TokenFile(scratch)
    await transport.listener.start(hall.serve, hall.store)
    warm = WarmZygote(scratch, sys.path, {MARK: mark}, SystemClock(), restarts=restarts)
    warm.start()
    dialer = transport.dialer()
    link = await dialer.attend(1.0)
    hall.ended = asyncio.create_task(Agent(PLACE, warm, dialer, link, SystemClock(), tokens, limits=limits).run())
    try:
        await hall.until(lambda: m.Ready() in hall.heard, "the agent is ready")
        yield hall
        if dismissed:
            assert hall.link is not None
            hall.link.post(m.Dismiss("over"))
            assert await hall.ended == "over"
    finally:
        hall.ended.cancel()
        await asyncio.gather(hall.ended, return_exceptions=True)
        await warm.close()
        await dialer.close()
        await transport.listener.close(1.0)
        tokens.close()
