"""Holds members' snapshots in shared memory beyond their processes, so that a gang resumes without the store."""

import asyncio
import os
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import uuid4

from msgspec import Struct

from sparktrain.base.ids import RunId, TrialId
from sparktrain.base.threads import aside, spawn
from sparktrain.errors import CheckpointError
from sparktrain.protocol import messages as m
from sparktrain.protocol import pipe_messages as pm
from sparktrain.rundir.folder_checksum import folder_checksum
from sparktrain.state.gangs.memory_parts import is_split
from sparktrain.store.folder_removal import discard
from sparktrain.store.held_folders import held, tidy

SHARED_MEMORY = "/dev/shm"
HELD_S = 600.0
"""How long an agent holds a snapshot after the end of its member, if the coordinator does not answer for it."""
READ_TIMEOUT_S = 30.0
"""How long the verification of a snapshot may take."""


@contextmanager
def shared_memory(root: str = SHARED_MEMORY) -> Iterator[Path | None]:
    """A folder in shared memory, removed at the end; None where this host has none. Blocks on local memory.

    Folders that killed agents have left are removed meanwhile.
    """
    if not os.access(root, os.W_OK | os.X_OK):
        yield None
        return
    spawn(lambda: tidy(root))
    with held("agent-held", root) as folder:
        yield folder


class _Held(Struct, frozen=True):
    """A whole snapshot that this agent holds."""

    run: RunId
    trial: TrialId
    generation: int
    step: int
    checksum: str
    folder: Path
    """Within the folder of its member."""


class MemoryHolder:
    """The snapshots of one agent's members: one member at a time, and the newest snapshot of the one before; of a state
    that members hold in parts the newest two, for others may not have the newest.

    All methods belong to the agent's event loop, and do not block it.
    """

    def __init__(self, root: Path | None, held_s: float = HELD_S) -> None:
        """`root` is this agent's folder in shared memory; None without any."""
        self._root = root
        self._held_s = held_s
        self._held: list[_Held] = []
        """The newest first."""
        self._current: Path | None = None
        """The folder of the member that runs."""
        self._expiry: asyncio.TimerHandle | None = None
        self._folders = _folders_in(root) if root is not None else []
        """All folders of members: at first those that an agent before this one in its task has left."""
        self._clear()

    async def start_member(self, start: m.StartMember) -> str:
        """The folder for the snapshots of a member that starts; empty without shared memory, and for a gang of
        one that cannot grow.

        What the member does not resume from is removed.
        """
        self._stay()
        # What a new gang does not resume from goes at once: a snapshot of a fork of the training must never come back.
        self._held = [snapshot for snapshot in self._held if self._is_base(snapshot, start)]
        if self._root is None or (start.call.gang.size == 1 and not start.call.gang.may_grow):
            self._clear()
            return ""
        folder = self._root / uuid4().hex
        try:
            async with asyncio.timeout(READ_TIMEOUT_S):
                await aside(folder.mkdir)
        except (OSError, TimeoutError):  # the member trains without it
            return ""
        self._current = folder
        self._folders.append(folder)
        self._clear()
        return str(folder)

    def accept(self, start: m.StartMember, snapshot: pm.MemoryWritten) -> bool:
        """Hold the running member's snapshot, which is whole; False for a folder that is not the member's."""
        folder = Path(snapshot.folder)
        # The message comes from the training function's process: a folder elsewhere would be hashed, sent, and deleted.
        if self._current is None or folder.parent != self._current or folder.is_symlink():
            return False
        member = start.member
        newest = _Held(member.run, member.trial, member.generation, snapshot.step, snapshot.checksum, folder)
        self._held = [newest, *self._held[: int(is_split(snapshot.layout))]]
        return True

    async def restore_dir(self, start: m.StartMember) -> str:
        """The folder of the verified snapshot that the member resumes from.

        Raises CheckpointError for one that is gone or is not whole: the next gang reads the store.
        """
        base = start.memory
        assert base is not None
        held_snapshot = next((snapshot for snapshot in self._held if self._is_base(snapshot, start)), None)
        if held_snapshot is None:
            raise CheckpointError(f"this agent holds no snapshot of step {base.step} in memory any more")
        try:
            async with asyncio.timeout(READ_TIMEOUT_S):
                checksum = await aside(lambda: folder_checksum(held_snapshot.folder))
        except (OSError, TimeoutError) as error:
            raise CheckpointError(f"the snapshot of step {base.step} in memory cannot be read: {error}") from error
        # The function could write to its snapshots, and bits can flip: what has changed would be trained on by the
        # whole gang.
        if checksum != base.checksum:
            raise CheckpointError(
                f"the snapshot of step {base.step} in memory has changed: its checksum is {checksum[:12]}, and was "
                f"{base.checksum[:12]}"
            )
        return str(held_snapshot.folder)

    def ended(self) -> None:
        """The member's process is gone: hold its newest snapshot, also if it has returned: others may be lost now."""
        self._current = None
        self._clear()
        if self._held:
            self._expiry = asyncio.get_running_loop().call_later(self._held_s, self.forget)

    def forget(self) -> None:
        """Let go of all snapshots: no gang resumes from them."""
        self._held = []
        self._clear()

    # ---- internal

    def _is_base(self, snapshot: _Held, start: m.StartMember) -> bool:
        base = start.memory
        member = start.member
        mine = base is not None and (snapshot.generation, snapshot.step, snapshot.checksum) == (
            base.generation,
            base.step,
            base.checksum,
        )
        return mine and (snapshot.run, snapshot.trial) == (member.run, member.trial)

    def _stay(self) -> None:
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None

    def _clear(self) -> None:
        """Remove all folders but those of the running member and of held snapshots, and what is beside these."""
        held_folders = [snapshot.folder for snapshot in self._held]
        needed = {self._current, *(folder.parent for folder in held_folders)}
        doomed = [folder for folder in self._folders if folder not in needed]
        self._folders = [folder for folder in self._folders if folder in needed]
        ended = needed - {self._current}
        if doomed or ended:
            spawn(lambda: _remove(doomed, ended, held_folders))


def _folders_in(root: Path) -> list[Path]:
    return [path for path in root.iterdir() if path.is_dir()] if root.is_dir() else []


def _remove(doomed: Iterable[Path], ended: Iterable[Path | None], held_folders: Collection[Path]) -> None:
    """Remove folders, and all but held snapshots in those of `ended` members. The names are not in use: a newer folder
    has another one."""
    for folder in doomed:
        discard(folder)
    for folder in filter(None, ended):
        with suppress(OSError):
            for snapshot in list(folder.iterdir()):
                if snapshot not in held_folders:
                    discard(snapshot)
