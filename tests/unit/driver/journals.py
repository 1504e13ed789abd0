"""Journals made of lists."""

from collections.abc import Sequence

from sparktrain.driver.journal_writer import JournalPort
from sparktrain.rundir.journal.writer import Compaction
from sparktrain.state.records import AnyRecord


class NoJournal(JournalPort):
    """Takes everything, and forgets it."""

    def append(self, records: Sequence[AnyRecord]) -> None:
        return

    def compaction(self) -> Compaction:
        raise AssertionError("no test writes so much")

    def settle(self) -> None:
        return

    def check(self) -> None:
        return
