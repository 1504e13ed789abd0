"""An agent's way from its member's snapshots to checkpoints of the run, and from a checkpoint to a member's folder."""

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

from sparktrain.backoff import Backoff, RetryBudget
from sparktrain.config.store_address import StoreAddress
from sparktrain.errors import CheckpointError, ProtocolError, SparktrainError
from sparktrain.executor.folders import discard, remove
from sparktrain.ids import AgentId, Member, RunId
from sparktrain.protocol import messages as m
from sparktrain.protocol import pipe_messages as pm
from sparktrain.rundir.checkpoints import Draft, fetch, write
from sparktrain.rundir.layout import RunLayout
from sparktrain.state.checkpoint_history import Checkpoint
from sparktrain.store.base import Store
from sparktrain.store.url import open_store
from sparktrain.threads import aside, spawn

T = TypeVar("T")


class SnapshotRetryPolicy(Struct, frozen=True):
    """How long a keeper tries; all times in seconds."""

    write_s: float = 1200.0
    """For all attempts to write one checkpoint."""
    acknowledge_s: float = 60.0
    fetch_s: float = 1200.0
    """For all attempts to fetch one checkpoint."""
    attempts: int = 20
    """At most; and none begins once the store's own time is over."""
    between_s: float = 1.0
    """Before the second attempt; twice that before the next, and so on."""
    longest_between_s: float = 30.0
    local_s: float = 60.0
    """For the local disk to move a checkpoint's files."""


class SnapshotKeeper:
    """Makes checkpoints of what the chief's process hands over, and keeps the newest one's files on the local disk.

    One per agent. Its methods belong to the agent's event loop and do not block it: the store is used by threads, which
    are left behind when they hang, and publish nothing then.
    """

    def __init__(
        self,
        scratch: Path,
        agent: AgentId,
        post: Callable[[m.FromAgent], None],
        patience: SnapshotRetryPolicy = SnapshotRetryPolicy(),  # noqa: B008 - frozen
        opened: Callable[[StoreAddress], Store] = open_store,
    ) -> None:
        """`scratch` must be on the same file system as the members' homes, and may hold what an agent before kept."""
        self._local = scratch / "checkpoints"
        """A folder for each checkpoint whose files are at hand, named by its digest: mostly one."""
        self._in_work = scratch / "snapshots"
        self._agent = agent
        self._post = post
        self._patience = patience
        self._open = opened
        self._stores: dict[str, Store] = {}
        self._shared: set[RunId] = set()
        """Runs whose directory has been seen on this host."""
        self._awaited: dict[str, asyncio.Future[None]] = {}
        """By the digest of a checkpoint that was published and not acknowledged yet."""
        self._newest: tuple[Member, str] | None = None
        """The digest of what a member has last got acknowledged."""

    # ---- from snapshot to checkpoint

    async def keep(self, start: m.StartMember, home: Path, snapshot: pm.Snapshot) -> pm.SnapshotStored:
        """Write the snapshot, post `CheckpointWritten`, wait for the acknowledgement; the answer for the member.

        One at a time for each member. What fails is said in the answer, and the checkpoint before it stays at hand; the
        snapshot's files are gone then. When the member's process is gone, cancel it.
        """
        local_s = self._patience.local_s
        try:
            folder = await asyncio.wait_for(self._take(home, snapshot), local_s)
        except TimeoutError:
            return pm.SnapshotStored(snapshot.step, f"the local disk below {home} did not answer within {local_s:g} s")
        except (OSError, ProtocolError) as error:
            return pm.SnapshotStored(snapshot.step, str(error))
        try:
            checkpoint = await self._write(start, snapshot, folder)
            await self._acknowledge(start.member, checkpoint)
            with suppress(OSError):  # it counts; the next restart reads the store then
                await asyncio.wait_for(aside(lambda: self._hold(folder, checkpoint.digest)), local_s)
        except (SparktrainError, OSError) as error:
            return pm.SnapshotStored(snapshot.step, str(error))
        finally:
            spawn(lambda: remove(folder))  # nothing is there when it is held
        return pm.SnapshotStored(snapshot.step)

    def acknowledged(self, ack: m.AckCheckpoint) -> None:
        """The coordinator has acknowledged a checkpoint, in time or not."""
        self._newest = ack.member, ack.checkpoint.digest
        waiting = self._awaited.get(ack.checkpoint.digest)
        if waiting is not None and not waiting.done():
            waiting.set_result(None)

    async def _take(self, home: Path, snapshot: pm.Snapshot) -> Path:
        """Move the snapshot out of the member's home, which may go before it is written."""
        source, target = Path(snapshot.folder), self._in_work / uuid4().hex

        def move() -> None:
            if home.resolve() not in source.resolve().parents:
                raise ProtocolError(f"snapshot {source} must lie in the member's directory {home}")
            target.parent.mkdir(parents=True, exist_ok=True)
            source.rename(target)

        await aside(move)
        return target

    async def _write(self, start: m.StartMember, snapshot: pm.Snapshot, folder: Path) -> Checkpoint:
        layout, patience = RunLayout(start.member.run), self._patience
        draft = Draft(
            start.member, snapshot.step, folder, self._parent(start), snapshot.keep, snapshot.score, str(self._agent)
        )
        abandoned = threading.Event()

        def check() -> None:
            if abandoned.is_set():
                raise CheckpointError("nobody waits for this checkpoint any more")

        def write_it() -> Checkpoint:
            store = self._store(start.store)
            if start.member.run not in self._shared:
                _check_shared(store, layout)
                self._shared.add(start.member.run)
            return write(store, layout, draft, check)

        work = self._again(write_it, abandoned, start.store.timeout_s)
        try:
            return await asyncio.wait_for(aside(work), patience.write_s)
        except TimeoutError as error:
            raise CheckpointError(
                f"the checkpoint of step {snapshot.step} was not written to {start.store.url} within "
                f"{patience.write_s:.0f} s: see whether the store is overloaded, or save less often"
            ) from error
        finally:
            abandoned.set()

    async def _acknowledge(self, member: Member, checkpoint: Checkpoint) -> None:
        waiting = self._awaited[checkpoint.digest] = asyncio.get_running_loop().create_future()
        try:
            self._post(m.CheckpointWritten(member, checkpoint))
            await asyncio.wait_for(waiting, self._patience.acknowledge_s)
        except TimeoutError as error:
            raise CheckpointError(
                f"checkpoint {checkpoint.manifest} was written, but the coordinator did not acknowledge it within "
                f"{self._patience.acknowledge_s:.0f} s: it does not count"
            ) from error
        finally:
            del self._awaited[checkpoint.digest]

    def _parent(self, start: m.StartMember) -> str:
        if self._newest is not None and self._newest[0] == start.member:
            return self._newest[1]
        return start.checkpoint.digest if start.checkpoint is not None else ""

    # ---- from checkpoint to member

    async def restore_dir(self, start: m.StartMember, home: Path) -> str:
        """The folder in the member's `home` with the verified files to resume from; empty when there is no checkpoint.

        Reads no file of it from the store when this agent has written or fetched the checkpoint last. Raises
        CheckpointError when it is damaged, and any other OSError when the store or the disk failed, or took too long.
        """
        checkpoint, patience = start.checkpoint, self._patience
        if checkpoint is None:
            return ""
        target, held = home / "restore", self._local / checkpoint.digest
        abandoned = threading.Event()

        def bring() -> None:
            store = self._store(start.store)
            try:
                fetch(store, checkpoint, target, held if held.is_dir() else None)
            except CheckpointError:
                _check_shared(store, RunLayout(start.member.run))
                raise

        try:
            await asyncio.wait_for(aside(self._again(bring, abandoned, start.store.timeout_s)), patience.fetch_s)
        except TimeoutError as error:
            raise TimeoutError(
                f"checkpoint {checkpoint.manifest} was not fetched from {start.store.url} within "
                f"{patience.fetch_s:.0f} s: see whether the store is overloaded"
            ) from error
        finally:
            abandoned.set()
        with suppress(OSError):  # the next restart reads the store then
            await aside(lambda: self._hold_links(target, checkpoint.digest))
        return str(target)

    # ---- in threads

    def _store(self, address: StoreAddress) -> Store:
        if address.url not in self._stores:
            self._stores[address.url] = self._open(address)
        return self._stores[address.url]

    def _again(self, attempt: Callable[[], T], abandoned: threading.Event, time_s: float) -> Callable[[], T]:
        """`attempt` until it succeeds, or says that trying again is of no use; for `time_s` seconds at most."""

        def work() -> T:
            patience = self._patience
            retries = RetryBudget(time_s, Backoff(patience.between_s, patience.longest_between_s))
            for _ in range(patience.attempts - 1):
                try:
                    return attempt()
                except CheckpointError:
                    raise
                except OSError:
                    if abandoned.is_set() or not retries.wait():
                        raise
            return attempt()

        return work

    def _hold_links(self, folder: Path, digest: str) -> None:
        if not (self._local / digest).is_dir():
            copy = self._in_work / uuid4().hex
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copytree(folder, copy, copy_function=os.link)
            self._hold(copy, digest)

    def _hold(self, folder: Path, digest: str) -> None:
        """From now on `folder` is the copy at hand, and no other is."""
        self._local.mkdir(parents=True, exist_ok=True)
        older = [path for path in self._local.iterdir() if path.name != digest]
        with suppress(FileExistsError):
            folder.rename(self._local / digest)
        for path in older:
            discard(path)  # its name must not stand for half of its files


def _check_shared(store: Store, layout: RunLayout) -> None:
    """Raise OSError where the run directory of the driver is not there for this host."""
    if not store.exists(layout.spec):
        raise OSError(
            f"{store.where(layout.spec)} is not there on host {socket.gethostname()}: executors write and read "
            "checkpoints themselves, so dir must be on storage that all hosts share"
        )
