"""No history of crashes, faults, deposed drivers and compactions loses, doubles or forks acknowledged records.

The same histories find each of the mistakes that a journal without a lock invites: see `MUTANTS`.
"""

from collections.abc import Sequence
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test
from msgspec.structs import replace

from sparktrain.rundir.journal import reader
from sparktrain.rundir.journal import writer as product
from sparktrain.rundir.journal.journal_file import SNAPSHOT, Content, Followed
from sparktrain.rundir.journal.reader import JournalContents, Replay, Tail
from sparktrain.rundir.journal.run_claim import read_claim
from sparktrain.rundir.journal.writer import Compaction, DriverIdentity, Journal
from sparktrain.rundir.layout import JournalLayout
from sparktrain.state.records import AnyRecord
from sparktrain.store.base import Store
from tests.unit.rundir.journal.journal_histories import World

ALL_HISTORIES = pytest.mark.all(case="120 histories", covered_by="a quarter of them; mistakes that they must find")

some = st.integers(0, 3)
HISTORIES = 120
FAULTS = ("before", "after")


class Histories(RuleBasedStateMachine):
    """Hypothesis chooses who does the next operations, and what breaks."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World()

    def teardown(self) -> None:
        self.world.close()

    def _step(self, index: int, fault: str = "") -> None:
        actors = self.world.actors
        if actors:
            actors[-1 - index % len(actors)].step(fault)

    @initialize()
    def start(self) -> None:
        self.world.drive()

    @rule(index=some, count=st.integers(1, 12))
    def steps(self, index: int, count: int) -> None:
        for _ in range(count):
            self._step(index)
            self.world.check()

    @rule(count=st.integers(5, 40))
    def advance(self, count: int) -> None:
        """The newest actor makes progress."""
        self.steps(0, count)

    @rule(count=st.integers(0, 25), after=st.integers(0, 4))
    def take_over(self, count: int, after: int) -> None:
        """Another driver takes over; the one before continues for `after` operations, and may not have noticed."""
        self.world.drive()
        self.steps(0, count)
        self.steps(1, after)

    @rule(drive=st.booleans(), before=st.integers(1, 8), between=st.integers(1, 20), after=st.integers(1, 20))
    def race(self, drive: bool, before: int, between: int, after: int) -> None:
        """An actor starts to read, and perhaps to take over; meanwhile another one makes progress."""
        self.world.drive() if drive else self.world.watch()
        self.steps(0, before)
        self.steps(1, between)
        self.steps(0, after)

    @rule(index=some, fault=st.sampled_from(FAULTS))
    def faulty_step(self, index: int, fault: str) -> None:
        self._step(index, fault)

    @rule(index=some)
    def crash(self, index: int) -> None:
        if self.world.actors:
            self.world.actors.pop(-1 - index % len(self.world.actors)).crash()

    @rule()
    def cut(self) -> None:
        self.world.files.cut_next = True

    @rule()
    def rot(self) -> None:
        self.world.rot()

    @invariant()
    def safe(self) -> None:
        self.world.check()


def check_histories(histories: int) -> None:
    """Play so many histories; the same ones each time."""
    run_state_machine_as_test(
        Histories,
        settings=settings(
            max_examples=histories,
            stateful_step_count=30,
            deadline=None,
            database=None,
            derandomize=True,
            phases=(Phase.generate,),
            suppress_health_check=list(HealthCheck),
        ),
    )


@pytest.mark.parametrize("histories", [HISTORIES // 4, pytest.param(HISTORIES, marks=ALL_HISTORIES)])
def test_no_history_loses_doubles_or_forks_what_was_acknowledged(histories: int) -> None:
    check_histories(histories)


# ---- mistakes


def _no_check_after_the_put() -> Any:
    return patch.object(Journal, "_check_rivals", lambda self: None)


def _check_before_the_put() -> Any:
    """The term is looked at first: it may be another one's when the batch is put."""
    real = Journal._put

    def put(self: Journal, records: Sequence[AnyRecord]) -> None:
        self._check_rivals()
        with patch.object(self, "_check_rivals", lambda: None):  # of this driver alone: others take turns with it
            real(self, records)

    return patch.object(Journal, "_put", put)


def _numbers_are_shared() -> Any:
    return patch.object(JournalLayout, "batch", lambda self, term, number: f"{self.path}/batch-0001-{number:08d}")


def _read_before_the_claim() -> Any:
    def mistaken(store: Store, layout: JournalLayout, who: DriverIdentity) -> tuple[Journal, JournalContents]:
        tail = Tail(store, layout)
        opened = tail.read_new()
        claim = product.take(store, layout, who, tail.highest, read_claim(store, layout, opened.term))
        return Journal(store, layout, claim, tail.position), opened

    return patch.object(Journal, "claim", mistaken)


def _delete_before_the_snapshot() -> Any:
    """What the new snapshot makes superfluous is deleted, and it is put after that."""
    real = Compaction.write

    def write(self: Compaction, records: Sequence[AnyRecord]) -> None:
        term = self._header.term
        if not self._store.exists(self._layout.term(term + 1)):
            self._store.delete_all([self._layout.batch(term, each + 1) for each in range(self._header.number)])
            real(self, records)

    return patch.object(Compaction, "write", write)


def _delete_with_the_snapshot() -> Any:
    """Only the newest snapshot is kept, and nothing for the case that it cannot be read."""

    def delete(self: Compaction) -> None:
        mine = self._layout.snapshot(self._header.term, self._header.number)
        for path in self._store.list(self._layout.path):
            if "term" not in path and path != mine:
                self._store.delete(path)

    return patch.object(Compaction, "_delete_superfluous", delete)


def _snapshot_of_what_came_beside() -> Any:
    """A snapshot claims to hold what was appended while it was made."""

    class Late(Compaction):
        def __init__(self, journal: Journal) -> None:
            header = journal._header(SNAPSHOT, journal._number)
            super().__init__(journal._store, journal._layout, header)
            self._journal = journal

        def write(self, records: Sequence[AnyRecord]) -> None:
            self._store.exists(self._layout.path)  # meanwhile the driver gets somewhere
            self._header = replace(self._header, number=self._journal._number)
            super().write(records)

    return patch.object(Journal, "compaction", lambda self: Late(self))


def _acknowledged_before_the_put() -> Any:
    """A put that fails is taken for one that will have worked."""
    real = Journal._put

    def put(self: Journal, records: Sequence[AnyRecord]) -> None:
        try:
            real(self, records)
        except OSError:
            self._number += 1
            self._unsettled = None

    return patch.object(Journal, "_put", put)


def _a_lost_answer_is_a_failure() -> Any:
    """A retried batch gets the next number."""
    real = Journal._put

    def put(self: Journal, records: Sequence[AnyRecord]) -> None:
        if self._unsettled is not None:
            self._number += self._store.exists(self._layout.batch(self.term, self._number + 1))
            self._unsettled = None
        real(self, records)

    return patch.object(Journal, "_put", put)


def _late_batches_count() -> Any:
    """Whatever lies there of the terms before is read."""

    def chain(self: Replay, terms: list[int]) -> tuple[Followed, ...]:
        return tuple(Followed(each, max(self._numbers[each])) for each in sorted(terms) if self._numbers[each])

    return patch.object(Replay, "_chain_to", chain)


def _a_cut_is_forgotten() -> Any:
    """The next driver does not record how much of a cut batch counts."""
    real = Journal._header

    def header(self: Journal, kind: str, number: int) -> Any:
        self._follows = tuple(Followed(each.term, each.number) for each in self._follows)
        return real(self, kind, number)

    return patch.object(Journal, "_header", header)


def _one_listing_is_believed() -> Any:
    real = reader.read_stable
    return patch.object(
        reader, "read_stable", lambda store, layout, position, listing: real(store, layout, position, listing, 0)
    )


def _a_cut_header_is_corrupt() -> Any:
    real = Replay.batch

    def batch(self: Replay, term: int, number: int) -> Content:
        content = real(self, term, number)
        if content.header is None and content.fault is not None:
            return Content(None, fault=replace(content.fault, cut=False))
        return content

    return patch.object(Replay, "batch", batch)


MUTANTS = {
    "no check after the put": (_no_check_after_the_put, "DEAF|FORKED"),
    "the check before the put": (_check_before_the_put, "FORKED|LOST"),
    "numbers are shared": (_numbers_are_shared, "BROKEN|UNREADABLE|LOST"),
    "read before the claim": (_read_before_the_claim, "LOST"),
    "delete before the snapshot": (_delete_before_the_snapshot, "UNREADABLE|LOST"),
    "delete with the snapshot": (_delete_with_the_snapshot, "UNREADABLE|LOST"),
    "what came beside the snapshot is in it": (_snapshot_of_what_came_beside, "LOST|REORDERED|CHANGED"),
    "acknowledged before the put": (_acknowledged_before_the_put, "LOST|UNREADABLE|FORKED"),
    "a lost answer is a failure": (_a_lost_answer_is_a_failure, "TWICE"),
    "late batches count": (_late_batches_count, "CHANGED|REORDERED|UNREADABLE"),
    "a cut is forgotten": (_a_cut_is_forgotten, "UNREADABLE"),
    "a cut header is corrupt": (_a_cut_header_is_corrupt, "UNREADABLE"),
    "one listing is believed": (_one_listing_is_believed, "UNREADABLE"),
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_the_histories_find_the_mistake(mutant: str) -> None:
    mistake, words = MUTANTS[mutant]
    with mistake(), pytest.raises(AssertionError, match=words):
        check_histories(4 * HISTORIES)  # the search ends at the first one that shows it
