"""What agents bring of their members: logs, metrics and files, into the run directory."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable

from sparktrain.clock import Clock
from sparktrain.errors import ProtocolError
from sparktrain.ids import AgentId, Member
from sparktrain.protocol import messages as m
from sparktrain.store.base import Store
from sparktrain.store.layout import RunLayout

SETTLE_TIMEOUT_S = 60.0
"""How long the end of a run waits for uploads that make no progress."""
POLL_S = 0.005

logger = logging.getLogger("sparktrain")


class Uploads:
    """The uploads of one run. All methods belong to the coordinator's event loop."""

    def __init__(self, store: Store, layout: RunLayout, alive: Callable[[AgentId], bool], clock: Clock) -> None:
        self._store = store
        self._layout = layout
        self._alive = alive
        self._clock = clock
        self._open: dict[Member, AgentId] = {}
        self._progress_at = clock.now()

    def expect(self, agent: AgentId, member: Member) -> None:
        """`agent` has started `member`: it will upload what the member leaves."""
        self._open[member] = agent

    def stored(self, agent: AgentId, member: Member, problem: str) -> None:
        """The agent has uploaded all that it could."""
        if problem:
            logger.warning("of %s was not stored: %s", member, problem)
        if self._open.get(member) == agent:
            del self._open[member]

    async def receive(self, header: m.UploadHeader, chunks: AsyncIterator[bytes]) -> m.UploadDone:
        """Write one file into the member's directory.

        Raises ProtocolError when the sender does not have that member, SpecError when the name leads elsewhere.
        """
        if self._open.get(header.member) != header.agent:
            raise ProtocolError(
                f"agent {header.agent} uploads {header.name!r} of {header.member}, which it does not have"
            )
        path = self._layout.member(header.member).file(header.name)
        stream = await asyncio.to_thread(self._store.open_stream, path)
        size = 0
        try:
            async for chunk in chunks:
                await asyncio.to_thread(stream.write, chunk)
                size += len(chunk)
                self._progress_at = self._clock.now()
        finally:
            await asyncio.to_thread(stream.close)
        return m.UploadDone(size)

    async def settle(self) -> None:
        """Wait until every member's files are stored, its agent is lost, or nothing moves any more."""
        self._progress_at = self._clock.now()
        while left := [member for member, agent in self._open.items() if self._alive(agent)]:
            if self._clock.now() > self._progress_at + SETTLE_TIMEOUT_S:
                logger.warning("the logs of %s are not complete: no progress for %g s", left, SETTLE_TIMEOUT_S)
                return
            await self._clock.sleep(POLL_S)
