"""Stores reports of trials beside the journal: each is durable before a later checkpoint or result counts."""

import logging
import threading
from collections.abc import Sequence

from sparktrain.clock import Clock
from sparktrain.driver.journal_writer import JournalPort, Rewriting
from sparktrain.ids import Member
from sparktrain.rundir.metric_log import MetricLog, StepRow, step_row
from sparktrain.state.outcome import Report
from sparktrain.state.records import AnyRecord, CheckpointAcknowledged, GangRestarted, RunEnded, TrialConcluded

FLUSH_S = 5.0
"""A report waits no longer than this for the next write of the journal; an idle journal then writes it."""
MOST_WAITING = 500_000
"""Steps and metrics that may wait for a store that does not answer; later ones are dropped."""

_FLUSHES = (CheckpointAcknowledged, TrialConcluded, GangRestarted, RunEnded)

logger = logging.getLogger("sparktrain")


class MetricRecorder(JournalPort):
    """A journal that first writes the reports that came before its records.

    A crash thus leaves no gap: training resumes from a checkpoint, and every report up to that checkpoint is stored.
    `record` belongs to the coordinator's event loop; the methods of `JournalPort` block, and are called as those are.
    """

    def __init__(self, book: JournalPort, log: MetricLog, clock: Clock, most_waiting: int = MOST_WAITING) -> None:
        """At most `most_waiting` steps and metrics wait for the store."""
        self._book = book
        self._log = log
        self._clock = clock
        self._most_waiting = most_waiting
        self._lock = threading.Lock()
        self._rows: list[StepRow] = []
        self._waiting = 0
        """Steps and metrics in `_rows`."""
        self._since = 0.0
        """When the oldest of them came."""
        self._dropped = 0

    def record(self, member: Member, reports: Sequence[Report]) -> None:
        """Keep the reports until the next write; returns at once."""
        rows = [
            step_row(member.trial, member.generation, member.rank, each.step, each.time, each.metrics)
            for each in reports
        ]
        size = sum(1 + len(row.metrics) for row in rows)
        with self._lock:
            if self._waiting + size > self._most_waiting:
                self._dropped += len(rows)
                return
            self._since = self._since if self._rows else self._clock.now()
            self._rows += rows
            self._waiting += size

    def append(self, records: Sequence[AnyRecord]) -> None:
        """See base class."""
        late = self._clock.now() >= self._since + FLUSH_S
        if late or any(isinstance(each, _FLUSHES) for each in records):
            self._flush()
        self._book.append(records)

    def compaction(self) -> Rewriting:
        """See base class."""
        return self._book.compaction()

    def settle(self) -> None:
        """See base class."""
        self._flush()
        self._book.settle()

    def check(self) -> None:
        """See base class."""
        self._flush()
        self._book.check()

    def _flush(self) -> None:
        with self._lock:
            rows, waiting, dropped = self._rows, self._waiting, self._dropped
            self._rows, self._waiting, self._dropped = [], 0, 0
        if dropped:
            logger.warning("%d reports of trials are not in the run's history: the store was behind", dropped)
        if not rows:
            return
        try:
            self._log.append(rows)
        except BaseException:
            with self._lock:
                self._rows, self._waiting = rows + self._rows, waiting + self._waiting
            raise
