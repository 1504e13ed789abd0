"""Journals that are truncated, corrupt, written to while they are read, or followed."""

from collections.abc import Callable
from typing import Any

import pytest

from sparktrain.errors import JournalCorruptError
from sparktrain.rundir.journal.reader import JournalContents, Tail, read
from sparktrain.rundir.journal.run_claim import RunClaim
from sparktrain.rundir.journal.writer import Journal
from sparktrain.rundir.layout import JournalLayout
from tests.unit.rundir.journal.journals import (
    FOLDER,
    LAYOUT,
    WHO,
    batch,
    claim,
    content,
    copied,
    facts,
    history,
    numbers_of,
    written,
    written_as,
)
from tests.unit.store.gated import FailAt, GatedStore, MemoryStore, fault


def without(store: MemoryStore, *names: str, **changed: bytes) -> MemoryStore:
    return copied(store, **dict.fromkeys(names), **changed)


# ---- cut


@pytest.mark.parametrize("at", ["header", "record"])
def test_a_truncation_is_reported_once(at: str) -> None:
    store = written([1], [2, 3, 4])
    whole = content(store, batch(2))
    length = 20 if at == "header" else len(whole) - 90
    store = copied(store, **{batch(2): whole[:length]})
    dropped = "all its records are dropped" if at == "header" else "the last 2 of its 3 records are dropped"
    journal, opened = Journal.claim(store, LAYOUT, WHO)
    assert opened.notes == (
        "journal file memory:/run/journal/batch-0001-00000002 was cut, as when its driver dies while it writes: "
        f"{dropped}; nothing that was written later shows that they counted",
    )
    journal.append(facts(9))
    assert read(store, LAYOUT).notes == ()


def test_truncated_first_batches_of_several_terms_do_not_count() -> None:
    store = written([1], [2, 3])
    store = copied(store, **{batch(2): content(store, batch(2))[:-1]})
    for term in (2, 3):
        claim(store).append(facts(100))
        store = copied(store, **{batch(1, term): b"ab"[: term - 1]})
    journal, opened = Journal.claim(store, LAYOUT, WHO)
    assert (journal.term, numbers_of(opened.records)) == (4, [1, 2])
    journal.append(facts(4))
    assert numbers_of(read(store, LAYOUT).records) == [1, 2, 4]


def test_a_truncated_batch_in_the_middle_is_corruption() -> None:
    store = written([1, 2], [3], [4])
    with pytest.raises(
        JournalCorruptError,
        match=r"^journal of memory:/run is corrupt: record 2 of memory:/run/journal/batch-0001-00000001 is missing: 4 "
        r"bytes were cut off; 1 of its records are lost, and 2 files after it cannot be followed; "
        r"`sparktrain fsck memory:/run` shows what can be kept$",
    ):
        read(copied(store, **{batch(1): content(store, batch(1))[:-4]}), LAYOUT)


# ---- corruption


@pytest.mark.parametrize(
    ("store", "problem"),
    [
        (
            without(written([1], [2], [3]), batch(2)),
            r"batch-0001-00000002 is missing; its records are lost, and 1 files",
        ),
        (without(written([1], [2]), batch(1)), r"batch-0001-00000001 is missing"),
        (copied(written([1, 2]), **{batch(1): b"x\n"}), r"batch-0001-00000001 has a header that does not match"),
        (
            copied(written([1], [2]), **{batch(2): content(written([1], [2]), batch(1))}),
            r"has the header of batch 1 of",
        ),
        (copied(written([1, 2]), **{batch(1): content(written([1, 2]), batch(1)) + b"\0"}), r"record 3 of .* is wrong"),
    ],
    ids=["missing", "first missing", "header", "other file", "longer"],
)
def test_corruption_is_reported_with_its_place(store: MemoryStore, problem: str) -> None:
    with pytest.raises(JournalCorruptError, match=problem):
        read(store, LAYOUT)


def test_a_missing_batch_before_others_is_corruption() -> None:
    store = written([1], [2])
    claim(store).append(facts(3))
    with pytest.raises(JournalCorruptError, match=r"batch-0001-00000002 is missing; .* and 1 files after it"):
        read(without(store, batch(2)), LAYOUT)


def test_without_any_snapshot_the_compacted_batches_are_missing() -> None:
    store, _ = history()
    gone = without(store, "snapshot_0003_00000001", "snapshot_0003_00000002")
    with pytest.raises(JournalCorruptError, match=r"batch-0001-00000001 is missing; .* and 5 files after it"):
        read(gone, LAYOUT)


def test_foreign_files_are_left_alone() -> None:
    store = written([1])
    for name in (
        "batch-1-1",
        "batch-0001-00000002.bak",
        "notes.txt",
        "term-0001/x",
        "snapshot-0001",
        "batch-0001-٠٠٠٠٠٠٠٢",
    ):
        store.files[f"{FOLDER}/{name}"] = b"foreign"
    assert read(store, LAYOUT) == JournalContents(facts(1), 1)


def test_an_error_of_the_store_is_not_corruption() -> None:
    store = written([1], [2])
    with pytest.raises(OSError, match="the store failed"):
        read(GatedStore(store, FailAt(1, "before", fault())), LAYOUT)


# ---- while a driver writes


def test_the_journal_is_listed_again_when_a_file_vanishes() -> None:
    store = MemoryStore()
    journal = claim(store)
    for number in (1, 2, 3):
        journal.append(facts(number))
    for index in range(3):  # after the listing, and after each batch except the last
        reader = Meddled(copied(store), index, compact)
        assert numbers_of(read(reader, LAYOUT).records) == [1, 2, 3, 4, 5]


class Meddled(GatedStore):
    """A store that runs a callback after the operation of a given number."""

    def __init__(self, store: MemoryStore, index: int, meddle: Callable[[MemoryStore], None]) -> None:
        self._left = index
        self._meddle = meddle
        self._files = store
        super().__init__(store, self._count)

    def _count(self, name: str, effect: Callable[[], Any]) -> Any:
        result = effect()
        self._left -= 1
        if self._left == -1:
            self._meddle(self._files)
        return result


def compact(store: MemoryStore) -> None:
    """Replace everything that a reader may know by a snapshot."""
    journal = claim(store)
    journal.append(facts(4))
    journal.compact(facts(1, 2, 3, 4))
    journal.append(facts(5))
    journal.compact(facts(1, 2, 3, 4, 5))


def test_a_file_that_stays_missing_is_an_error() -> None:
    store = written([1])
    store.list = lambda prefix="": [f"{FOLDER}/{name}" for name in ("batch-0001-00000001", "batch-0001-00000002")]  # type: ignore[method-assign]
    with pytest.raises(FileNotFoundError):
        read(store, LAYOUT)


# ---- following a journal


def test_a_tail_yields_new_records() -> None:
    operations: list[str] = []

    def count(name: str, effect: Callable[[], Any]) -> Any:
        operations.append(name)
        return effect()

    store = MemoryStore()
    journal = claim(store)
    journal.append(facts(1, 2))
    tail = Tail(GatedStore(store, count), LAYOUT)
    assert tail.read_new() == JournalContents(facts(1, 2), 1)
    operations.clear()
    assert tail.read_new() == JournalContents((), 1, afresh=False)
    assert operations == ["list"]
    operations.clear()
    journal.append(facts(3))
    journal.append(facts(4))
    assert tail.read_new() == JournalContents(facts(3, 4), 1, afresh=False)
    assert operations == ["list", "read", "read"]
    journal = claim(store)
    assert tail.read_new() == JournalContents((), 2, afresh=False)
    journal.append(facts(5))
    assert tail.read_new() == JournalContents(facts(5), 2, afresh=False)
    journal.compact(facts(1, 2, 3, 4, 5))
    assert tail.read_new() == JournalContents((), 2, afresh=False)


def test_a_tail_that_fell_behind_starts_over() -> None:
    store = MemoryStore()
    journal = claim(store)
    journal.append(facts(1))
    tail = Tail(store, LAYOUT)
    tail.read_new()
    for number in (2, 3):
        journal.append(facts(number))
        journal.compact(facts(*range(1, number + 1)))
    assert tail.read_new() == JournalContents(facts(1, 2, 3), 1)


def test_a_tail_that_has_read_a_fenced_batch_starts_over() -> None:
    store = written([1])
    journal = claim(store)
    first = Journal(store, LAYOUT, RunClaim(term=1, nonce="", who=WHO), ())
    store.files |= written_as(first, 2, 100).files
    tail = Tail(store, LAYOUT)
    assert numbers_of(tail.read_new().records) == [1, 100]
    journal.append(facts(2))
    assert tail.read_new() == JournalContents(facts(1, 2), 2)


def test_a_tail_raises_for_corruption_and_continues_after_a_repair() -> None:
    store = written([1], [2])
    tail = Tail(store, LAYOUT)
    tail.read_new()
    store.files |= {path: data for path, data in written([1], [2], [3], [4]).files.items() if path not in store.files}
    kept = store.files.pop(LAYOUT.batch(1, 3))
    with pytest.raises(JournalCorruptError):
        tail.read_new()
    store.files[LAYOUT.batch(1, 3)] = kept
    assert tail.read_new() == JournalContents(facts(3, 4), 1, afresh=False)


def test_numbers_may_exceed_the_padding_of_their_names() -> None:
    layout = JournalLayout("run/journal")
    store = MemoryStore()
    store.files[layout.term(12345)] = b""
    journal = claim(store)
    journal.append(facts(1))
    assert (journal.term, numbers_of(read(store, layout).records)) == (12346, [1])
