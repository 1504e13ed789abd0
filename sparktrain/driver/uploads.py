"""Uploads of agents: logs, metrics and files of their members, into the run directory."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from functools import partial

from sparktrain.base.clock import Clock
from sparktrain.base.ids import AgentId, Member
from sparktrain.base.threads import aside
from sparktrain.errors import ProtocolError, SparktrainError
from sparktrain.protocol import messages as m
from sparktrain.rundir.event_files import clear_growing, open_growing
from sparktrain.rundir.layout import RunLayout
from sparktrain.store.base import Store, WriteStream

SETTLE_TIMEOUT_S = 60.0
"""How long the end of a run waits for uploads that make no progress."""
POLL_S = 0.005
AT_ONCE = 8
"""Number of small files of one upload that are written at the same time."""

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
        self._former: dict[Member, Member] = {}
        """The names under which processes have started that are other members since."""
        self._adopted: set[Member] = set()
        """Members of the coordinator before this one, which may have a part of their files."""

    def expect(self, agent: AgentId, member: Member) -> None:
        """`agent` has started `member`: it will upload the member's files."""
        self._open[member] = agent

    def adopt(self, agent: AgentId, member: Member) -> None:
        """`agent` has held `member`, which continues: it uploads all files of the member again."""
        self._open[member] = agent
        self._adopted.add(member)

    def rename(self, agent: AgentId, member: Member, successor: Member) -> None:
        """The process of `member` is `successor`: its files come under that name, unless it has ended before."""
        if self._open.get(member) == agent:
            self._open[successor] = agent
            self._former[successor] = member

    def stored(self, agent: AgentId, member: Member, problem: str) -> None:
        """The agent has uploaded all that it could."""
        if problem:
            logger.warning("not stored from %s: %s", member, problem)
        names = [name for pair in self._former.items() if member in pair for name in pair] or [member]
        for name in names:
            self._former.pop(name, None)
            if self._open.get(name) == agent:
                del self._open[name]

    async def receive(self, header: m.UploadHeader, chunks: AsyncIterator[bytes]) -> m.UploadDone:
        """Write one file into the member's directory, or several small ones.

        Raises ProtocolError when the sender does not have that member, SpecError when the name leads elsewhere; the
        answer names each of several files that was not written.
        """
        # An agent that was given up may still send: its member's files belong to its successor now.
        if self._open.get(header.member) != header.agent:
            raise ProtocolError(
                f"agent {header.agent} uploads {header.name!r} of {header.member}, which it does not have"
            )
        if header.parts:
            return await self._unpack(header, chunks)
        member = self._layout.member(header.member)
        path = member.file(header.name)
        await self._clear(header.member, path)
        if path == member.log or (path == member.steps and header.grows):
            return m.UploadDone(await self._grow(lambda: self._store.open_stream(path), chunks))
        if header.grows:
            return m.UploadDone(await self._grow(lambda: open_growing(self._store, path, self._clock), chunks))
        # A model that breaks off is of no use, so it appears whole; a log is of use while it grows.
        return m.UploadDone(await self._publish(path, chunks))

    async def _clear(self, member: Member, path: str) -> None:
        """Delete what the coordinator before has stored of a file, if the agent may send all of it again."""
        if member in self._adopted:
            await aside(lambda: clear_growing(self._store, path))

    async def _grow(self, open_file: Callable[[], WriteStream], chunks: AsyncIterator[bytes]) -> int:
        """Write a file that is read while it grows; a partial one stays."""
        stream = await aside(open_file)
        try:
            return await self._pour(chunks, stream.write)
        finally:
            await aside(stream.close)

    async def _publish(self, path: str, chunks: AsyncIterator[bytes]) -> int:
        """Write a file that is useful only when complete."""
        new_file = await aside(lambda: self._store.create(path))
        try:
            size = await self._pour(chunks, new_file.write)
            await aside(new_file.publish)
            return size
        finally:
            await aside(new_file.discard)

    async def _unpack(self, header: m.UploadHeader, chunks: AsyncIterator[bytes]) -> m.UploadDone:
        """Write small files, some at a time: most of what each takes is a wait for the store."""
        content = await _held(header, chunks)
        room = asyncio.Semaphore(AT_ONCE)
        start = 0
        writing = []
        for part in header.parts:
            writing.append(self._put(header, part.name, content[start : start + part.size_bytes], room))
            start += part.size_bytes
        refused = [problem for problem in await asyncio.gather(*writing) if problem]
        return m.UploadDone(len(content), tuple(refused))

    async def _put(self, header: m.UploadHeader, name: str, content: bytes, room: asyncio.Semaphore) -> str:
        """Write one file; returns why that was not possible, or an empty text."""
        try:
            path = self._layout.member(header.member).file(name)
            async with room:
                await self._clear(header.member, path)
                is_present = not await aside(lambda: self._store.put_if_absent(path, content))
            self._progress_at = self._clock.now()
        except (SparktrainError, OSError) as error:
            return f"{name}: {error}"
        return f"{name}: {self._store.where(path)} is there already" if is_present else ""

    async def _pour(self, chunks: AsyncIterator[bytes], write: Callable[[bytes], None]) -> int:
        size = 0
        async for chunk in chunks:
            await aside(partial(write, chunk))
            size += len(chunk)
            self._progress_at = self._clock.now()
        return size

    async def settle(self) -> None:
        """Wait until every member's files are stored, its agent is lost, or no upload makes progress."""
        self._progress_at = self._clock.now()
        while open_members := [member for member, agent in self._open.items() if self._alive(agent)]:
            if self._clock.now() > self._progress_at + SETTLE_TIMEOUT_S:
                logger.warning("the logs of %s are not complete: no progress for %g s", open_members, SETTLE_TIMEOUT_S)
                return
            await self._clock.sleep(POLL_S)


async def _held(header: m.UploadHeader, chunks: AsyncIterator[bytes]) -> bytes:
    """The content of several small files. Raises ProtocolError where it does not match the header."""
    size = sum(part.size_bytes for part in header.parts)
    content = bytearray()
    fits = all(part.size_bytes >= 0 for part in header.parts) and size <= m.PARCEL_BYTES
    if not fits or len(header.parts) > m.PARCEL_FILES:
        raise ProtocolError(
            f"{len(header.parts)} files of {size} bytes in one upload: the limits are {m.PARCEL_FILES} and "
            f"{m.PARCEL_BYTES}"
        )
    async for chunk in chunks:
        content += chunk
        if len(content) > size:
            break
    if len(content) != size:
        raise ProtocolError(f"an upload of files of {size} bytes has {len(content)} bytes or more")
    return bytes(content)
