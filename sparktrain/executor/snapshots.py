"""Snapshots of a chief on their way to the store, and checkpoints on their way back: the agent's side."""

import asyncio
import shutil
import socket
import threading
from collections.abc import Callable
from pathlib import Path

from sparktrain.clock import Clock
from sparktrain.errors import CheckpointError
from sparktrain.ids import AgentId, Member
from sparktrain.protocol import messages as m
from sparktrain.state.checkpoints import Checkpoint
from sparktrain.store import checkpoints
from sparktrain.store.base import Store
from sparktrain.store.layout import RunLayout
from sparktrain.store.url import open_store

ATTEMPTS = 3
"""To write one snapshot, each under names of its own."""
PAUSE_S = 0.5
"""Before a second attempt; twice as long before the third."""
ACK_TIMEOUT_S = 30.0
"""From the publication of a checkpoint to the coordinator's acknowledgement."""
WRITE_TIMEOUT_S = 600.0
"""For all attempts to write one snapshot; after that the store counts as stuck."""
FETCH_TIMEOUT_S = 600.0
"""For the files of one checkpoint."""


class SnapshotKeeper:
    """The checkpoints that pass through one agent. All methods belong to its event loop; the store has threads."""

    def __init__(self, agent: AgentId, scratch: Path, clock: Clock, post: Callable[[m.FromAgent], None]) -> None:
        self._agent = agent
        self._folder = scratch / "checkpoints"
        self._clock = clock
        self._post = post
        self._acks: dict[str, asyncio.Future[None]] = {}
        self._newest: tuple[Checkpoint, Path] | None = None
        """Stays on the local disk, so that a restart on this host reads nothing from the store."""

    async def keep(self, member: Member, store_url: str, snapshot: m.Snapshot, over: threading.Event) -> m.Kept:
        """Make the snapshot a checkpoint that the coordinator has acknowledged; its files are gone afterwards.

        The answer tells the problem when that could not be done. Once `over` is set nothing more is written.
        """
        folder = Path(snapshot.folder)
        try:
            checkpoint = await asyncio.wait_for(self._write(member, store_url, snapshot, over), WRITE_TIMEOUT_S)
            await self._acknowledged(member, checkpoint)
            self._adopt(checkpoint, folder)
        except (OSError, TimeoutError) as error:
            await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)
            return m.Kept(snapshot.step, str(error) or f"the store did not take it within {WRITE_TIMEOUT_S:g} s")
        return m.Kept(snapshot.step)

    def acknowledge(self, checkpoint: Checkpoint) -> None:
        """The coordinator has acknowledged `checkpoint`."""
        waiting = self._acks.pop(checkpoint.digest, None)
        if waiting is not None and not waiting.done():
            waiting.set_result(None)

    async def fetch(self, member: Member, store_url: str, checkpoint: Checkpoint) -> Path:
        """A local folder with the verified files of `checkpoint`, for `member` alone.

        Raises CheckpointError when the checkpoint is damaged, any other OSError when the store cannot be read.
        """
        store = open_store(store_url)
        target = self._folder / f"of-{member.trial}-{member.generation}-{member.rank}"
        cache = self._newest[1] if self._newest is not None and self._newest[0].digest == checkpoint.digest else None

        def fetch() -> None:
            _check_shared(store, member)
            shutil.rmtree(target, ignore_errors=True)
            checkpoints.fetch(store, checkpoint, target, cache)

        await asyncio.wait_for(asyncio.to_thread(fetch), FETCH_TIMEOUT_S)
        return target

    def forget(self, member: Member) -> None:
        """`member` has ended: what was fetched for it is not needed any more."""
        target = self._folder / f"of-{member.trial}-{member.generation}-{member.rank}"
        shutil.rmtree(target, ignore_errors=True)

    async def _write(self, member: Member, store_url: str, snapshot: m.Snapshot, over: threading.Event) -> Checkpoint:
        store, layout = open_store(store_url), RunLayout(member.run)
        parent = self._newest[0].digest if self._newest is not None else ""
        draft = checkpoints.Draft(
            member, snapshot.step, Path(snapshot.folder), parent, snapshot.keep, snapshot.score, self._agent
        )

        def check() -> None:
            if over.is_set():
                raise CheckpointError(f"{member} has ended: its snapshot of step {snapshot.step} is not needed")

        for attempt in range(1, ATTEMPTS + 1):
            try:
                await asyncio.to_thread(_check_shared, store, member)
                return await asyncio.to_thread(checkpoints.write, store, layout, draft, check)
            except CheckpointError:
                raise
            except OSError:
                if attempt == ATTEMPTS:
                    raise
            await self._clock.sleep(PAUSE_S * attempt)
        raise AssertionError("unreachable")

    async def _acknowledged(self, member: Member, checkpoint: Checkpoint) -> None:
        waiting = self._acks[checkpoint.digest] = asyncio.get_running_loop().create_future()
        self._post(m.CheckpointWritten(member, checkpoint))
        try:
            await asyncio.wait_for(waiting, ACK_TIMEOUT_S)
        except TimeoutError:
            raise CheckpointError(
                f"the coordinator did not acknowledge the checkpoint of step {checkpoint.step} within "
                f"{ACK_TIMEOUT_S:g} s: it is not newer than the last one, or this member was replaced"
            ) from None
        finally:
            self._acks.pop(checkpoint.digest, None)

    def _adopt(self, checkpoint: Checkpoint, folder: Path) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        kept = self._folder / f"gen-{checkpoint.generation:04d}-{checkpoint.step:08d}"
        folder.rename(kept)
        older, self._newest = self._newest, (checkpoint, kept)
        if older is not None:
            shutil.rmtree(older[1], ignore_errors=True)


def _check_shared(store: Store, member: Member) -> None:
    """Raise OSError where the run directory of the driver is not there for this host."""
    spec = RunLayout(member.run).spec
    if not store.exists(spec):
        raise OSError(
            f"{store.where(spec)} is not there on host {socket.gethostname()}: executors write and read checkpoints "
            "themselves, so dir must be on storage that all hosts share"
        )
