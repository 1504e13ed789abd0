"""Stores reports of trials beside the journal: each is durable before a later checkpoint or result counts."""

import logging
import os
import threading
from collections.abc import Callable, Sequence
from tempfile import TemporaryFile
from typing import IO

from sparktrain.base.clock import Clock
from sparktrain.base.ids import Member
from sparktrain.driver.journal_writer import JournalPort
from sparktrain.rundir.journal.writer import Compaction
from sparktrain.rundir.metric_log import MetricLog
from sparktrain.rundir.report_parts import lines_of, step_row
from sparktrain.state.outcome import Report
from sparktrain.state.records import AnyRecord, CheckpointAcknowledged, GangRestarted, RunEnded, TrialConcluded

MEMORY_BYTES = 16 * 2**20
FILE_BYTES = 4 * 2**30


class WaitingReports:
    """A queue of lines, for any thread. Its methods block on the local disk at most."""

    def __init__(self, memory_bytes: int = MEMORY_BYTES, file_bytes: int = FILE_BYTES) -> None:
        """At most `file_bytes` follow the first `memory_bytes`."""
        self._memory_bytes = memory_bytes
        self._file_bytes = file_bytes
        self._lock = threading.Lock()
        self._memory = bytearray()
        self._file: IO[bytes] | None = None
        """It has what follows the bytes in memory, and no name, so that it ends with this process."""
        self._read = self._written = 0
        """Positions in the file."""

    @property
    def size(self) -> int:
        """How many bytes wait."""
        with self._lock:
            return len(self._memory) + self._written - self._read

    def add(self, lines: bytes) -> bool:
        """Append whole lines; returns False where the file has no room for them, or the disk."""
        with self._lock:
            # Once the file has lines, all later ones follow there, or they would overtake those in it.
            if self._file is None and len(self._memory) + len(lines) <= self._memory_bytes:
                self._memory += lines
                return True
            return self._spill(lines)

    def oldest(self) -> bytes:
        """The oldest lines, about as many as memory may hold; they wait until `discard`. Raises OSError."""
        with self._lock:
            while (end := self._memory.rfind(b"\n") + 1) == 0 and self._refill():
                pass
            return bytes(self._memory[:end])

    def discard(self, size: int) -> None:
        """Remove the oldest bytes, which `oldest` has returned."""
        with self._lock:
            del self._memory[:size]

    def _spill(self, lines: bytes) -> bool:
        if self._written + len(lines) > self._file_bytes:
            return False
        try:
            if self._file is None:
                self._file = TemporaryFile(prefix="sparktrain-reports-", buffering=0)  # noqa: SIM115  # `_refill` closes it
            written = os.pwrite(self._file.fileno(), lines, self._written)
        except OSError:
            return False
        if written < len(lines):  # the disk is full; the next lines replace the part
            return False
        self._written += written
        return True

    def _refill(self) -> bool:
        """Move the first bytes of the file into memory; returns whether there were any."""
        if self._file is None:
            return False
        piece = os.pread(self._file.fileno(), min(self._memory_bytes, self._written - self._read), self._read)
        self._memory += piece
        self._read += len(piece)
        if self._read == self._written:
            self._file.close()
            self._file = None
            self._read = 0
            self._written = 0
        return bool(piece)


FLUSH_S = 5.0
"""A report waits no longer than this for the next write of the journal; an idle journal then writes it."""

_FLUSHES = (CheckpointAcknowledged, TrialConcluded, GangRestarted, RunEnded)

logger = logging.getLogger("sparktrain")


class MetricRecorder(JournalPort):
    """A journal that first writes the reports that came before its records.

    A crash thus leaves no gap: training resumes from a checkpoint, and every report up to that checkpoint is stored.
    `record` belongs to the coordinator's event loop; the methods of `JournalPort` block, and are called as those are.
    """

    def __init__(
        self,
        journal: JournalPort,
        log: MetricLog,
        clock: Clock,
        waiting: WaitingReports | None = None,
        heard: Callable[[Member, Sequence[Report]], None] = lambda member, reports: None,
    ) -> None:
        """`heard` gets what `record` gets; it must neither block nor raise."""
        self._heard = heard
        self._journal = journal
        self._log = log
        self._clock = clock
        self._waiting = waiting or WaitingReports()
        self._since = 0.0
        """No report that waits is older than this."""
        self._dropped = self._named = 0
        """Reports for which there was no room, and those of them that the log of the driver names."""
        self.recorded = 0
        """Calls of `record`."""
        self.stored = 0
        """Those of them with reports that are in the store."""

    def record(self, member: Member, reports: Sequence[Report]) -> None:
        """Keep the reports until the next write; blocks on the local disk at most."""
        self._heard(member, reports)
        if not self._waiting.size:
            self._since = self._clock.now()
        rows = (
            step_row(member.trial, member.generation, member.rank, report.step, report.time, report.metrics)
            for report in reports
        )
        if not self._waiting.add(lines_of(rows)):
            self._dropped += len(reports)
        self.recorded += 1

    def append(self, records: Sequence[AnyRecord]) -> None:
        """See base class."""
        late = self._clock.now() >= self._since + FLUSH_S
        # Reports are written before the record, so that a crash between the two leaves reports without a checkpoint,
        # never the reverse.
        if late or any(isinstance(record, _FLUSHES) for record in records):
            self._flush()
        self._journal.append(records)

    def compaction(self) -> Compaction:
        """See base class."""
        return self._journal.compaction()

    def settle(self) -> None:
        """See base class."""
        self._flush()
        self._journal.settle()

    def check(self) -> None:
        """See base class."""
        self._flush()
        self._journal.check()

    def _flush(self) -> None:
        if (dropped := self._dropped) > self._named:
            new_count = dropped - self._named
            self._named = dropped
            logger.warning("%d reports of trials are not in the run's history: the driver's disk was full", new_count)
        recorded = self.recorded  # before the size, which has all of these then
        remaining = self._waiting.size
        self._since = self._clock.now()
        while remaining > 0:
            lines = self._waiting.oldest()
            self._log.append(lines)
            # Discard only after the append: where that raises, the same lines are written by the next flush.
            self._waiting.discard(len(lines))
            remaining -= len(lines)
        self.stored = recorded
