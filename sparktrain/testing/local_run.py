"""The run directory of a function in the user's process, and the part of agent and coordinator for it.

The journal, the acknowledgement of checkpoints and their files are those of any run, so each context on a directory is
a generation of its own, resumes from the newest checkpoint, and fences earlier ones.
"""

import asyncio
import socket
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

import msgspec
from msgspec.structs import replace

from sparktrain.base.clock import SystemClock
from sparktrain.base.ids import AgentId, Generation, Member, RunId, TrialId
from sparktrain.config.store_address import StoreAddress
from sparktrain.datasets.manifest import DataRef, MemberData
from sparktrain.driver.data.data_plan import DataPlan
from sparktrain.driver.data.run_data import write_data
from sparktrain.errors import CheckpointError
from sparktrain.executor.snapshots import CheckpointStorer
from sparktrain.protocol import messages as m
from sparktrain.protocol import pipe_messages as pm
from sparktrain.protocol.member_call import MemberCall
from sparktrain.rundir.checkpoints import delete, manifest_of, placed
from sparktrain.rundir.journal.writer import Journal
from sparktrain.rundir.layout import RunLayout
from sparktrain.runs.history import this_driver
from sparktrain.state.checkpoint_history import Checkpoint, CheckpointHistory
from sparktrain.state.outcome import Report
from sparktrain.state.records import (
    AnyRecord,
    CheckpointAcknowledged,
    CheckpointCorrupt,
    DriverStarted,
    GangFormed,
    TrialsAdded,
)
from sparktrain.store.folder_removal import remove
from sparktrain.store.url import open_store

T = TypeVar("T")

RUN = RunId("local")
"""Name of the run, and of its folder in the directory of the user."""
_TRIAL = TrialId(0)
_OWN_FOLDERS = ("work", "snapshots", "restore", "agent")
"""Folders beside a member's files, without use after its end."""


class LocalRun:
    """One generation of the only trial of a run in a local directory; the wire of its only member.

    `start`, `stop` belong to one thread; the methods of the wire to any.
    """

    def __init__(self, directory: Path, call: MemberCall, plan: DataPlan) -> None:
        """`start` takes over the run; this does nothing yet."""
        self.reports: list[Report] = []
        self.checkpoints = CheckpointHistory()
        self.observe: Callable[[pm.FromMember], None] = lambda message: None
        """Called with each message of the member, in the thread that sends it."""
        self._call = call
        self._plan = plan
        self._address = StoreAddress(str(directory))
        self._store = open_store(self._address)
        self._layout = RunLayout(RUN)
        self._directory = directory
        self._advised = threading.Event()
        self._snapshots: deque[pm.Snapshot] = deque()

    # ---- life

    def start(self) -> pm.Assignment:
        """Take over the run in the directory, create the member's folders, read the checkpoint to resume from.

        Blocks on the local disk. Raises RunDirectoryError and any other OSError where the directory cannot be used.
        """
        self._store.probe()
        self._store.put_if_absent(self._layout.spec, msgspec.json.encode({"kind": "local_context"}))
        self._journal, opened = Journal.claim(self._store, self._layout.journal, this_driver())
        generation = self._fold(opened.records) + 1
        self._member = Member(RUN, _TRIAL, Generation(generation))
        self._home = self._directory / self._layout.member(self._member).path
        self._storer = CheckpointStorer(self._home / "agent", AgentId(uuid4().hex), self._acknowledge)
        for folder in ("work", "files"):
            (self._home / folder).mkdir(parents=True)
        self._journal.append(self._first_records(generation, afresh=not opened.records))
        restore_dir = self._restore_dir()
        return pm.Assignment(
            member=self._member,
            call=replace(self._call, data=MemberData(sets=self._written())),
            code=pm.LocalCode(path="", by_reference=False, sys_path=()),
            work_dir=str(self._home / "work"),
            log_dir=str(self._home / "files"),
            log_path="",
            restore_dir=restore_dir,
        )

    def stop(self) -> None:
        """Remove what only the running member needs; its metrics, files, model and checkpoints stay."""
        for name in _OWN_FOLDERS:
            remove(self._home / name)

    def advise_stop(self) -> None:
        """Have `ctx.should_stop()` return True from now on."""
        self._advised.set()

    def saved(self) -> dict[int, int]:
        """Bytes of each checkpoint that counts, by its step. Blocks on the local disk. Raises OSError."""
        manifests = {entry.step: manifest_of(self._store, entry) for entry in tuple(self.checkpoints.retained)}
        return {step: sum(shard.size for shard in manifest.shards) for step, manifest in manifests.items()}

    # ---- the wire

    def send(self, message: pm.FromMember) -> None:
        """See `Wire.send`."""
        match message:
            case pm.Reported(report=report):
                self.reports.append(report)
            case pm.Snapshot():
                self._snapshots.append(message)
        self.observe(message)

    def stop_advised(self) -> bool:
        """See `Wire.stop_advised`."""
        return self._advised.is_set()

    def judged(self, step: int, timeout_s: float) -> bool | None:
        """See `Wire.judged`: there are no rules."""
        return None

    def snapshot_answer(self, timeout_s: float) -> pm.SnapshotAnswered | None:
        """See `Wire.snapshot_answer`: store the snapshot that was sent as a checkpoint, in the caller's thread."""
        if not self._snapshots:
            return None
        snapshot = self._snapshots.popleft()
        return _completed(self._storer.store(self._start_of(None), self._home, snapshot))

    # ---- the coordinator's part

    def moved(self, rank: int) -> None:
        """See base class. There is no other member."""

    def take_asked(self, *, in_store: bool = False) -> bool:
        """See base class."""
        return False

    def ask(self, question: bytes, timeout_s: float | None) -> m.AnswerMember | None:
        """See base class. There is no sampler."""
        return None

    def _written(self) -> dict[str, DataRef]:
        """The datasets, written into the directory where it has none yet."""
        return write_data(self._plan, self._plan.documents, self._store, self._layout, lambda line: None)

    def _fold(self, records: tuple[AnyRecord, ...]) -> int:
        """Take over the checkpoints of earlier generations; returns the number of the newest generation."""
        generation = 0
        for record in records:
            match record:
                case GangFormed():
                    generation = record.generation
                case CheckpointAcknowledged():
                    self.checkpoints.acknowledge(record.checkpoint)
                case CheckpointCorrupt():
                    self.checkpoints.mark_corrupt(record.manifest, record.reason)
        return generation

    def _first_records(self, generation: int, afresh: bool) -> list[AnyRecord]:
        newest = self.checkpoints.newest
        now = SystemClock().wall()
        records: list[AnyRecord] = [DriverStarted(plan="", at=now)]
        if afresh:
            records += [TrialsAdded(cases=(self._call.params,), exhausted=True, asked=1, observed=0)]
        base = newest.digest if newest is not None else ""
        hosts = (socket.gethostname(),) * self._call.gang.size
        return [*records, GangFormed(trial=_TRIAL, generation=Generation(generation), hosts=hosts, base=base, at=now)]

    def _acknowledge(self, message: m.FromAgent) -> None:
        """A checkpoint is in the store: it counts once the journal has it."""
        if not isinstance(message, m.CheckpointStored):
            return
        checkpoint = placed(self._layout, self._member, message.checkpoint)
        newest = self.checkpoints.newest
        if checkpoint is None or (newest is not None and checkpoint.step <= newest.step):
            return
        self._journal.append([CheckpointAcknowledged(trial=_TRIAL, checkpoint=checkpoint, at=SystemClock().wall())])
        doomed = self.checkpoints.acknowledge(checkpoint)
        self._storer.acknowledged(m.AckCheckpoint(self._member, checkpoint))
        for expired in doomed:
            delete(self._store, expired)

    def _restore_dir(self) -> str:
        """The files of the newest checkpoint that can be read. Raises CheckpointError where none of them can be."""
        while (newest := self.checkpoints.newest) is not None:
            try:
                return _completed(self._storer.restore_dir(self._start_of(newest), self._home))
            except CheckpointError as error:
                self._journal.append([CheckpointCorrupt(trial=_TRIAL, manifest=newest.manifest, reason=str(error))])
                self.checkpoints.mark_corrupt(newest.manifest, str(error))
                if self.checkpoints.all_corrupt:
                    raise
        return ""

    def _start_of(self, checkpoint: Checkpoint | None) -> m.StartMember:
        return m.StartMember(
            member=self._member,
            call=self._call,
            store=self._address,
            checkpoint=checkpoint,
        )


def _completed(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in a thread of its own: the caller's thread may have a running event loop."""
    with ThreadPoolExecutor(1, "sparktrain-local") as thread:
        return thread.submit(asyncio.run, work).result()
