"""Holds members' snapshots in shared memory beyond their processes, so that a gang resumes without the store."""

import asyncio
import os
from collections.abc import Iterator
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
    """The newest whole snapshot of this agent."""

    run: RunId
    trial: TrialId
    generation: int
    step: int
    checksum: str
    folder: Path
    """Within the folder of its member."""


class MemoryHolder:
    """The snapshots of one agent's members: one member at a time, and the newest snapshot of the one before.

    All methods belong to the agent's event loop, and do not block it.
    """

    def __init__(self, root: Path | None, held_s: float = HELD_S) -> None:
        """`root` is this agent's folder in shared memory; None without any."""
        self._root = root
        self._held_s = held_s
        self._held: _Held | None = None
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
        if self._held is not None and not self._is_base(self._held, start):
            self._held = None
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
        self._held = _Held(member.run, member.trial, member.generation, snapshot.step, snapshot.checksum, folder)
        return True

    async def restore_dir(self, start: m.StartMember) -> str:
        """The folder of the verified snapshot that the member resumes from.

        Raises CheckpointError for one that is gone or is not whole: the next gang reads the store.
        """
        base = start.memory
        held_snapshot = self._held
        assert base is not None
        if held_snapshot is None or not self._is_base(held_snapshot, start):
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
        if self._held is not None:
            self._expiry = asyncio.get_running_loop().call_later(self._held_s, self.forget)

    def forget(self) -> None:
        """Let go of the newest snapshot: no gang resumes from it."""
        self._held = None
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
        """Remove all folders but those of the running member and of the newest snapshot, and its older one."""
        held_folder = self._held.folder if self._held is not None else None
        needed = [self._current, held_folder.parent if held_folder is not None else None]
        doomed = [folder for folder in self._folders if folder not in needed]
        self._folders = [folder for folder in self._folders if folder in needed]
        older = held_folder if held_folder is not None and held_folder.parent != self._current else None
        if doomed or older is not None:
            spawn(lambda: _remove(doomed, older))


def _folders_in(root: Path) -> list[Path]:
    return [path for path in root.iterdir() if path.is_dir()] if root.is_dir() else []


def _remove(doomed: list[Path], snapshot: Path | None) -> None:
    """Remove folders, and what is beside `snapshot`. The names are not in use: a newer folder has another one."""
    for folder in doomed:
        discard(folder)
    with suppress(OSError):
        for sibling in list(snapshot.parent.iterdir()) if snapshot is not None else ():
            if sibling != snapshot:
                discard(sibling)
