"""Journals made of lists."""

from collections.abc import Sequence

from sparktrain.driver.scribe import Book
from sparktrain.state.records import AnyRecord


class NoBook(Book):
    """Takes everything, and forgets it."""

    def append(self, records: Sequence[AnyRecord]) -> None:
        return

    def compact(self, records: Sequence[AnyRecord]) -> None:
        return

    def check(self) -> None:
        return
