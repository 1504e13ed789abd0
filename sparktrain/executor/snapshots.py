"""Stores a member's snapshots as checkpoints of the run, and fetches a checkpoint to a member's folder."""

import asyncio
import os
import shutil
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar
from uuid import uuid4

from msgspec import Struct

from sparktrain.base.backoff import Backoff, RetryBudget
from sparktrain.base.ids import AgentId, Member, RunId
from sparktrain.base.threads import aside, spawn
from sparktrain.config.store_address import StoreAddress
from sparktrain.errors import CheckpointError, ProtocolError, SparktrainError
from sparktrain.protocol import messages as m
from sparktrain.protocol import pipe_messages as pm
from sparktrain.rundir.checkpoints import Draft, commit, fetch, write, write_part
from sparktrain.rundir.layout import RunLayout
from sparktrain.state.checkpoint_history import Checkpoint
from sparktrain.state.checkpoint_parts import StoredPart
from sparktrain.store.base import Store
from sparktrain.store.folder_removal import discard, remove
from sparktrain.store.url import open_store

T = TypeVar("T")
PartNews = m.CommitParts | m.GiveUpPart | m.AckCheckpoint

MOST_SHARDS = 8000
"""Files in the part of one member, about 1 TB: one message lists all of them."""


class SnapshotRetryPolicy(Struct, frozen=True):
    """How long and how often a CheckpointStorer tries; all times in seconds."""

    store_s: float = 1200.0
    """For all attempts to store one checkpoint."""
    acknowledge_s: float = 60.0
    fetch_s: float = 1200.0
    """For all attempts to fetch one checkpoint."""
    attempts: int = 20
    """The most attempts; none starts after the store's own timeout."""
    between_s: float = 1.0
    """The pause before the second attempt; it doubles with each attempt."""
    longest_between_s: float = 30.0
    absent_s: float = 5.0
    """How long attempts continue where the store answers that there is no such file, as one that lags behind does."""
    local_s: float = 60.0
    """How long the local disk may take to move a checkpoint's files."""


class _Part:
    """A part on its way into a checkpoint that all members write."""

    def __init__(self, member: Member, step: int) -> None:
        self.member = member
        self.step = step
        self.news: asyncio.Queue[PartNews] = asyncio.Queue()
        self.abandoned = threading.Event()
        """Its threads must end."""


class CheckpointStorer:
    """Stores the chief's snapshots as checkpoints, and caches the files of the newest one on the local disk.

    One per agent. Its methods belong to the agent's event loop and do not block it: threads use the store; a thread
    that hangs is abandoned, and stores no manifest.
    """

    def __init__(
        self,
        scratch: Path,
        agent: AgentId,
        post: Callable[[m.FromAgent], None],
        policy: SnapshotRetryPolicy = SnapshotRetryPolicy(),  # noqa: B008 - frozen
        opened: Callable[[StoreAddress], Store] = open_store,
    ) -> None:
        """`scratch` must be on the same file system as the members' homes, and may hold files of an earlier agent."""
        self._local = scratch / "checkpoints"
        """The folder of cached checkpoints, each in a folder named by its digest: mostly one."""
        self._in_work = scratch / "snapshots"
        self._agent = agent
        self._post = post
        self._policy = policy
        self._open = opened
        self._stores: dict[str, Store] = {}
        self._shared: set[tuple[str, RunId]] = set()
        """The stores and names of runs with a directory that this host has seen."""
        self._awaited: dict[str, asyncio.Future[None]] = {}
        """The waits for acknowledgements, by the digest of the stored checkpoint."""
        self._part: _Part | None = None
        """The part that is being stored."""
        self._newest: tuple[Member, str] | None = None
        """The member and digest of the newest acknowledged checkpoint."""

    # ---- from snapshot to checkpoint

    async def store(self, start: m.StartMember, home: Path, snapshot: pm.Snapshot) -> pm.SnapshotAnswered:
        """Store the snapshot, post `CheckpointStored`, wait for the acknowledgement; returns the member's answer.

        Of a part it posts `PartStored`, and the chief's agent stores the manifest once the coordinator has those of all
        members. One at a time for each member. The answer reports a failure: then the checkpoint before stays, and the
        snapshot's files are removed. Cancel it when the member's process is gone.
        """
        local_s = self._policy.local_s
        try:
            async with asyncio.timeout(local_s):
                folder = await self._take(home, snapshot)
        except TimeoutError:
            return pm.SnapshotAnswered(
                snapshot.step, f"the local disk below {home} did not answer within {local_s:g} s"
            )
        except (OSError, ProtocolError) as error:
            return pm.SnapshotAnswered(snapshot.step, str(error))
        try:
            if snapshot.part:
                checkpoint = await self._store_part(start, snapshot, folder)
            else:
                checkpoint = await self._put_in_store(start, snapshot, folder)
                await self._acknowledge(start.member, checkpoint)
            with suppress(OSError):  # the checkpoint counts; the next restart reads the store
                async with asyncio.timeout(local_s):
                    await aside(lambda: self._cache(folder, checkpoint.digest))
        except (SparktrainError, OSError) as error:
            return pm.SnapshotAnswered(snapshot.step, str(error))
        finally:
            spawn(lambda: remove(folder))  # nothing is there once it is cached
        return pm.SnapshotAnswered(snapshot.step)

    def acknowledged(self, ack: m.AckCheckpoint) -> None:
        """Note that the coordinator has acknowledged a checkpoint, in time or not."""
        # Also one that comes late: the checkpoint counts, and the next one must name it as its parent.
        self._newest = ack.member, ack.checkpoint.digest
        waiting = self._awaited.get(ack.checkpoint.digest)
        if waiting is not None and not waiting.done():
            waiting.set_result(None)
        self._pass_on(ack, ack.checkpoint.step)

    def decided(self, news: m.CommitParts | m.GiveUpPart) -> None:
        """Note what the coordinator has decided about the parts of a step. News of any other part count no more."""
        part = self._pass_on(news, news.step)
        if part is not None and isinstance(news, m.GiveUpPart):
            part.abandoned.set()

    def _pass_on(self, news: PartNews, step: int) -> _Part | None:
        part = self._part
        if part is None or (part.member, part.step) != (news.member, step):
            return None
        part.news.put_nowait(news)
        return part

    async def _take(self, home: Path, snapshot: pm.Snapshot) -> Path:
        """Move the snapshot out of the member's home, which may be removed before the snapshot is stored."""
        source = Path(snapshot.folder)
        target = self._in_work / uuid4().hex

        def move() -> None:
            # The path comes from the training function's process, which must not have other files moved.
            if home.resolve() not in source.resolve().parents:
                raise ProtocolError(f"snapshot {source} must lie in the member's directory {home}")
            target.parent.mkdir(parents=True, exist_ok=True)
            source.rename(target)

        await aside(move)
        return target

    async def _put_in_store(self, start: m.StartMember, snapshot: pm.Snapshot, folder: Path) -> Checkpoint:
        draft = self._draft(start, snapshot, folder)
        return await self._write(start, draft, threading.Event(), write)

    async def _write(
        self,
        start: m.StartMember,
        draft: Draft,
        abandoned: threading.Event,
        writer: Callable[[Store, RunLayout, Draft, Callable[[], None]], T],
    ) -> T:
        """The result of `writer`, again after an error of the store. Sets `abandoned` at its end."""
        layout = RunLayout(start.member.run)
        policy = self._policy

        # A thread in a call of a store cannot be ended. It asks before it stores the manifest, so that a checkpoint
        # that was given up never appears.
        def check() -> None:
            if abandoned.is_set():
                raise CheckpointError("the wait for this checkpoint is over")

        def put() -> T:
            store = self._opened(start.store)
            # A local path exists on every host: without this look, each host would store checkpoints that no other host
            # can read.
            if (start.store.url, start.member.run) not in self._shared:
                _check_shared(store, layout)
                self._shared.add((start.store.url, start.member.run))
            return writer(store, layout, draft, check)

        work = self._again(put, abandoned, start.store.timeout_s)
        try:
            async with asyncio.timeout(policy.store_s):
                return await aside(work)
        except TimeoutError as error:
            raise CheckpointError(
                f"the checkpoint of step {draft.step} was not stored in {start.store.url} within "
                f"{policy.store_s:.0f} s: see whether the store is overloaded, or save less often"
            ) from error
        finally:
            abandoned.set()

    def _draft(self, start: m.StartMember, snapshot: pm.Snapshot, folder: Path) -> Draft:
        return Draft(
            start.member, snapshot.step, folder, self._parent(start), snapshot.keep, snapshot.score, str(self._agent)
        )

    # ---- from part to checkpoint

    async def _store_part(self, start: m.StartMember, snapshot: pm.Snapshot, folder: Path) -> Checkpoint:
        """The acknowledged checkpoint that has this part. Raises CheckpointError where it was given up, and OSError."""
        policy = self._policy
        draft = self._draft(start, snapshot, folder)
        part = self._part = _Part(start.member, snapshot.step)
        try:
            async with asyncio.timeout(policy.store_s + policy.acknowledge_s):
                return await self._carry(part, start, draft)
        except TimeoutError as error:
            raise CheckpointError(
                f"the checkpoint of step {snapshot.step} did not get the parts of all members, and a manifest, within "
                f"{policy.store_s + policy.acknowledge_s:.0f} s: every member must save the same steps, and the store "
                "may be slow"
            ) from error
        finally:
            part.abandoned.set()
            if self._part is part:
                self._part = None

    async def _carry(self, part: _Part, start: m.StartMember, draft: Draft) -> Checkpoint:
        try:
            stored = await self._write(start, draft, part.abandoned, write_part)
        except CheckpointError:
            if part.news.empty():
                raise
        else:
            if len(stored.shards) > MOST_SHARDS:
                raise CheckpointError(
                    f"the part of step {draft.step} of {start.member} has {len(stored.shards)} files, and a member may "
                    f"store {MOST_SHARDS}: train in a gang with more members, which have smaller parts"
                )
            self._post(m.PartStored(start.member, draft.step, stored))
        while True:
            match await part.news.get():
                case m.AckCheckpoint(checkpoint=checkpoint):
                    return checkpoint
                case m.GiveUpPart(problem=problem):
                    raise CheckpointError(problem)
                case m.CommitParts(parts=parts):
                    checkpoint = await self._commit(start, draft, parts)
                    self._post(m.CheckpointStored(start.member, checkpoint))

    async def _commit(self, start: m.StartMember, draft: Draft, parts: tuple[StoredPart, ...]) -> Checkpoint:
        def store_manifest(store: Store, layout: RunLayout, draft: Draft, check: Callable[[], None]) -> Checkpoint:
            return commit(store, layout, draft, parts, check)

        return await self._write(start, draft, threading.Event(), store_manifest)

    async def _acknowledge(self, member: Member, checkpoint: Checkpoint) -> None:
        waiting = self._awaited[checkpoint.digest] = asyncio.get_running_loop().create_future()
        try:
            self._post(m.CheckpointStored(member, checkpoint))
            async with asyncio.timeout(self._policy.acknowledge_s):
                await waiting
        except TimeoutError as error:
            raise CheckpointError(
                f"checkpoint {checkpoint.manifest} was stored, but the coordinator did not acknowledge it within "
                f"{self._policy.acknowledge_s:.0f} s: it does not count"
            ) from error
        finally:
            del self._awaited[checkpoint.digest]

    def _parent(self, start: m.StartMember) -> str:
        if self._newest is not None and self._newest[0] == start.member:
            return self._newest[1]
        return start.checkpoint.digest if start.checkpoint is not None else ""

    # ---- from checkpoint to member

    async def restore_dir(self, start: m.StartMember, home: Path) -> str:
        """The folder in the member's `home` with the verified files to resume from; empty without a checkpoint.

        Reads no file from the store if this agent has stored or fetched the checkpoint last. Raises CheckpointError
        if it is corrupt, and OSError if the store or the disk fails or takes too long.
        """
        checkpoint = start.checkpoint
        policy = self._policy
        self._newest = None  # a member of another run of this name can be equal
        if checkpoint is None:
            return ""
        target = home / "restore"
        cached = self._local / checkpoint.digest
        abandoned = threading.Event()

        def bring() -> None:
            store = self._opened(start.store)
            try:
                fetch(store, checkpoint, target, cached if cached.is_dir() else None)
            # A checkpoint that is corrupt stays so; another attempt would only delay the gang.
            except CheckpointError:
                _check_shared(store, RunLayout(start.member.run))
                raise

        try:
            async with asyncio.timeout(policy.fetch_s):
                await aside(self._again(bring, abandoned, start.store.timeout_s))
        except TimeoutError as error:
            raise TimeoutError(
                f"checkpoint {checkpoint.manifest} was not fetched from {start.store.url} within "
                f"{policy.fetch_s:.0f} s: see whether the store is overloaded"
            ) from error
        finally:
            abandoned.set()
        with suppress(OSError):  # the next restart reads the store
            await aside(lambda: self._cache_links(target, checkpoint.digest))
        return str(target)

    # ---- in threads

    def _opened(self, address: StoreAddress) -> Store:
        if address.url not in self._stores:
            self._stores[address.url] = self._open(address)
        return self._stores[address.url]

    def _again(self, attempt: Callable[[], T], abandoned: threading.Event, time_s: float) -> Callable[[], T]:
        """Retry `attempt` after OSError, not after CheckpointError, for at most `time_s` seconds."""

        def work() -> T:
            policy = self._policy
            retries = RetryBudget(time_s, Backoff(policy.between_s, policy.longest_between_s))
            for _ in range(policy.attempts - 1):
                try:
                    return attempt()
                except CheckpointError:
                    raise
                except OSError as error:
                    lacks_file = isinstance(error, FileNotFoundError) and retries.spent_s() >= policy.absent_s
                    if abandoned.is_set() or lacks_file or not retries.wait():
                        raise
            return attempt()

        return work

    def _cache_links(self, folder: Path, digest: str) -> None:
        if not (self._local / digest).is_dir():
            copy = self._in_work / uuid4().hex
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copytree(folder, copy, copy_function=os.link)
            self._cache(copy, digest)

    def _cache(self, folder: Path, digest: str) -> None:
        """Make `folder` the only cached checkpoint."""
        self._local.mkdir(parents=True, exist_ok=True)
        older = [path for path in self._local.iterdir() if path.name != digest]
        with suppress(FileExistsError):
            folder.rename(self._local / digest)
        for path in older:
            discard(path)  # a name must not remain with a part of its files


def _check_shared(store: Store, layout: RunLayout) -> None:
    """Raise FileNotFoundError if this host does not see the run directory of the driver."""
    if not store.exists(layout.spec):
        raise FileNotFoundError(
            f"{store.where(layout.spec)} is not there on host {socket.gethostname()}: executors write and read "
            "checkpoints themselves, so dir must be on storage that all hosts share"
        )
