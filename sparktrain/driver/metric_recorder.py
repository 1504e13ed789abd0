"""Stores reports of trials beside the journal: each is durable before a later checkpoint or result counts."""

import logging
from collections.abc import Callable, Sequence

from sparktrain.base.clock import Clock
from sparktrain.base.ids import Member
from sparktrain.driver.journal_writer import JournalPort
from sparktrain.driver.waiting_reports import WaitingReports
from sparktrain.rundir.journal.writer import Compaction
from sparktrain.rundir.metric_log import MetricLog
from sparktrain.rundir.report_parts import lines_of, step_row
from sparktrain.state.outcome import Report
from sparktrain.state.records import AnyRecord, CheckpointAcknowledged, GangRestarted, RunEnded, TrialConcluded

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
