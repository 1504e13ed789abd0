"""The owner of a run: takes over, appends, compacts, and learns when another driver has taken over."""

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from sparktrain.errors import BugError, DeposedError, JournalCorruptError, RunDirectoryError
from sparktrain.rundir.journal.driver_identity import DriverIdentity
from sparktrain.rundir.journal.reader import JournalContents, read
from sparktrain.rundir.journal.removal import MarkedRemoval, ownership
from sparktrain.rundir.journal.writer import Journal, newest_driver
from sparktrain.store.localfs import LocalStore
from tests.unit.rundir.journal.journals import FOLDER, LAYOUT, WHO, claim, copied, facts, numbers_of, written
from tests.unit.store.gated import FailAt, GatedStore, MemoryStore, fault


class Counted(GatedStore):
    """A store that lists each operation."""

    def __init__(self, store: MemoryStore) -> None:
        self.operations: list[str] = []
        super().__init__(store, self._count)

    def _count(self, name: str, effect: Callable[[], Any]) -> Any:
        self.operations.append(name)
        return effect()


def names(store: MemoryStore) -> list[str]:
    return [path.removeprefix(f"{FOLDER}/") for path in store.list(FOLDER)]


def test_a_new_journal_is_empty(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    assert read(store, LAYOUT) == JournalContents((), 0)
    assert newest_driver(store, LAYOUT) is None
    journal, opened = Journal.claim(store, LAYOUT, WHO)
    assert (journal.term, opened) == (1, JournalContents((), 1))
    assert read(store, LAYOUT) == JournalContents((), 1)


def test_the_next_driver_reads_what_was_appended(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    first = claim(store)
    first.append(facts(1, 2))
    first.append(facts(3))
    second, opened = Journal.claim(store, LAYOUT, WHO)
    assert opened == JournalContents(facts(1, 2, 3), 2)
    second.append(facts(4))
    assert read(store, LAYOUT) == JournalContents(facts(1, 2, 3, 4), 2)
    assert store.list() == [
        f"{FOLDER}/{name}"
        for name in ("batch-0001-00000001", "batch-0001-00000002", "batch-0002-00000001", "term-0001", "term-0002")
    ]


def test_an_append_costs_two_operations_and_so_does_a_check() -> None:
    store = Counted(MemoryStore())
    journal = claim(store)
    assert store.operations == ["list", "list", "put", "list", "list"]
    for number in range(3):
        store.operations.clear()
        journal.append(facts(number))
        assert store.operations == ["put", "exists"]
    store.operations.clear()
    journal.append(())
    assert store.operations == []
    journal.check()
    assert store.operations == ["exists", "exists"]


def test_a_driver_that_resumes_reads_each_batch_once() -> None:
    store = Counted(written([1], [2], [3]))
    claim(store)
    # The batches, the file of the previous driver, and after the take-over the newest batch again.
    assert store.operations == ["list", "read", "read", "read", "list", "read", "put", "list", "read"]


def test_the_owner_is_named() -> None:
    store = MemoryStore()
    claim(store)
    other = DriverIdentity("host-2", 12, 99.5, "0.2.0")
    Journal.claim(store, LAYOUT, other)
    assert newest_driver(store, LAYOUT) == other
    owner = json.loads(store.files[LAYOUT.term(1)])
    assert len(owner.pop("nonce")) == 32
    assert owner.pop("run").startswith("run-")
    assert owner == {
        "version": 1,
        "term": 1,
        "who": {
            "host": "host-1",
            "pid": 4711,
            "started": 1.5,
            "sparktrain": "0.1.0",
            "address": "host-1:5000",
            "fingerprint": "ab:cd",
            "purpose": "",
            "application": "",
            "attempt": 0,
            "user": "",
        },
        "at": {"url": "memory:/run", "folder": ""},
    }


@pytest.mark.parametrize("content", [b"", b'{"version":1,"epo', b"\xff", b'{"version":1,"who":{}}'])
def test_an_unreadable_term_file_does_not_stop_the_next_driver(content: bytes) -> None:
    store = copied(written([1]), term_0001=content)
    assert newest_driver(store, LAYOUT) is None
    journal, opened = Journal.claim(store, LAYOUT, WHO)
    assert (journal.term, numbers_of(opened.records)) == (2, [1])


def test_a_journal_of_a_later_sparktrain_is_refused_before_its_driver_is_deposed() -> None:
    store = copied(written([1]), term_0002=b'{"version":2,"who":{"sparktrain":"3.1.0"},"more":[]}')
    before = dict(store.files)
    for call in (claim, lambda store: newest_driver(store, LAYOUT)):
        with pytest.raises(RunDirectoryError, match=r"term-0002 was written by sparktrain 3.1.0 \(format 2;"):
            call(store)
    assert store.files == before


def test_a_corrupt_journal_is_refused_before_its_driver_is_deposed() -> None:
    store = copied(written([1], [2]), batch_0001_00000001=b"garbage\n")
    before = dict(store.files)
    with pytest.raises(JournalCorruptError):
        claim(store)
    assert store.files == before


def test_a_deposed_driver_learns_it_at_its_next_append() -> None:
    store = Counted(MemoryStore())
    old, new = claim(store), claim(store)
    with pytest.raises(
        DeposedError,
        match=re.escape(
            "another driver (process 4711 on host-1) has taken over memory:/run: this one (term 1, process 4711 on "
            "host-1) ends; its records that were not confirmed as durable do not count"
        ),
    ):
        old.append(facts(1))
    new.append(facts(2))
    store.operations.clear()
    for call in (lambda: old.append(facts(3)), old.check, lambda: old.append(facts(1))):
        with pytest.raises(DeposedError):
            call()
    assert store.operations == []
    assert numbers_of(read(store, LAYOUT).records) == [2]


def test_a_driver_learns_that_it_is_deposed_without_its_successors_name() -> None:
    store = MemoryStore()
    old = claim(store)
    claim(store)
    for index in (0, 1):
        old._store = GatedStore(store, FailAt(index + 1, "before", fault()))
        old._deposed = None
        with pytest.raises(DeposedError, match=r"another driver \(unknown\) has taken over"):
            old.check()


def test_a_driver_that_loses_the_race_for_a_term_takes_the_next() -> None:
    store = MemoryStore()
    real, rivals = store.put_if_absent, []

    def put(path: str, data: bytes) -> bool:
        if not rivals:
            rivals.append(real(path, b"a rival"))
        return real(path, data)

    store.put_if_absent = put  # type: ignore[method-assign]
    assert claim(store).term == 2


def test_an_append_may_be_repeated_but_not_with_other_records() -> None:
    store = MemoryStore()
    journal = claim(store)
    journal._store = GatedStore(store, FailAt(0, "after", fault()))
    with pytest.raises(OSError, match="the store failed"):
        journal.append(facts(1, 2))
    with pytest.raises(BugError, match="batch 1 of term 1 was tried with other records before"):
        journal.append(facts(1, 2, 3))
    journal.append(facts(1, 2))
    journal.append(facts(3))
    assert numbers_of(read(store, LAYOUT).records) == [1, 2, 3]


def test_a_store_that_keeps_a_part_of_a_batch_is_refused() -> None:
    store = MemoryStore()
    journal = claim(store)
    store.files[LAYOUT.batch(1, 1)] = b""
    with pytest.raises(RunDirectoryError, match=r"batch-0001-00000001 has 0 of the \d+ bytes .* in a store that does"):
        journal.append(facts(1))


def test_another_file_under_the_name_of_a_batch_is_a_bug() -> None:
    store = MemoryStore()
    journal = claim(store)
    store.files[LAYOUT.batch(1, 1)] = b"something else"
    with pytest.raises(BugError, match=r"batch-0001-00000001 was written by another driver in term 1"):
        journal.append(facts(1))


# ---- compaction


def compacting(*numbers: int) -> tuple[MemoryStore, Journal, list[int]]:
    """A journal that was compacted after each of these batches."""
    store, so_far = MemoryStore(), []
    journal = claim(store)
    for number in numbers:
        journal.append(facts(number))
        so_far.append(number)
        journal.compact(facts(*so_far))
    return store, journal, so_far


def test_the_newest_two_snapshots_stay_and_the_batches_after_the_older() -> None:
    store, journal, so_far = compacting(1, 2)
    assert names(store) == ["batch-0001-00000002", "snapshot-0001-00000001", "snapshot-0001-00000002", "term-0001"]
    journal.append(facts(3))
    assert numbers_of(read(store, LAYOUT).records) == [1, 2, 3]
    journal.append(facts(4))
    journal.compact(facts(*so_far, 3, 4))
    assert names(store) == [
        "batch-0001-00000003",
        "batch-0001-00000004",
        "snapshot-0001-00000002",
        "snapshot-0001-00000004",
        "term-0001",
    ]


class InBulk(MemoryStore):
    """A store that deletes many files by one request."""

    def __init__(self) -> None:
        super().__init__()
        self.requests: list[list[str]] = []

    def delete(self, path: str) -> None:
        raise AssertionError("one by one")

    def delete_all(self, paths: Sequence[str]) -> None:
        self.requests.append([path.removeprefix(f"{FOLDER}/") for path in paths])
        for path in paths:
            super().delete(path)


def test_superfluous_files_are_deleted_in_bulk_snapshots_first() -> None:
    store = InBulk()
    journal = claim(store)
    for number in range(1, 7):
        journal.append(facts(number))
        if number % 2 == 0:
            journal.compact(facts(*range(1, number + 1)))
    batches = [f"batch-0001-{number:08d}" for number in range(1, 5)]
    assert store.requests[-2:] == [["snapshot-0001-00000002"], batches[2:]]
    assert [name for request in store.requests for name in request if "batch" in name] == batches


def test_records_appended_during_a_compaction_stay() -> None:
    store = MemoryStore()
    journal = claim(store)
    for number in (1, 2):
        journal.append(facts(number))
        journal.compact(facts(*range(1, number + 1)))
    journal.append(facts(3))
    compaction = journal.compaction()
    journal.append(facts(4))
    compaction.write(facts(1, 2, 3))
    assert numbers_of(read(store, LAYOUT).records) == [1, 2, 3, 4]
    assert names(store) == [
        "batch-0001-00000003",
        "batch-0001-00000004",
        "snapshot-0001-00000002",
        "snapshot-0001-00000003",
        "term-0001",
    ]


def test_a_snapshot_is_shorter_than_its_batches() -> None:
    store, journal, _ = compacting(1, 2)
    journal.append(facts(3))
    journal.compact(facts(3))
    journal.append(facts(4))
    second, opened = Journal.claim(store, LAYOUT, WHO)
    assert numbers_of(opened.records) == [3, 4]
    second.append(facts(5))
    second.compact(facts(5))
    assert numbers_of(read(store, LAYOUT).records) == [5]
    assert names(store) == [
        "batch-0001-00000004",
        "batch-0002-00000001",
        "snapshot-0001-00000003",
        "snapshot-0002-00000001",
        "term-0001",
        "term-0002",
    ]


@pytest.mark.parametrize("name", ["snapshot_0001_00000002", "snapshot_0001_00000001"])
def test_of_two_snapshots_a_corrupt_one_is_left_out(name: str) -> None:
    store, journal, _ = compacting(1, 2)
    journal.append(facts(3))
    corrupt = copied(store, **{name: store.files[f"{FOLDER}/{name.replace('_', '-')}"][:-1]})
    opened = read(corrupt, LAYOUT)
    assert numbers_of(opened.records) == [1, 2, 3]
    notes = [
        "snapshot memory:/run/journal/snapshot-0001-00000002 is corrupt, and was left out: record 2 is missing: "
        "1 bytes were cut off"
    ]
    assert list(opened.notes) == (notes if name.endswith("2") else [])


def test_nothing_is_deleted_for_a_snapshot_that_cannot_be_read() -> None:
    store, journal, _ = compacting(1, 2)
    store.files[f"{FOLDER}/snapshot-0001-00000002"] = b""
    journal.append(facts(3))
    journal.compact(facts(1, 2, 3))
    assert names(store)[-4:-1] == ["snapshot-0001-00000001", "snapshot-0001-00000002", "snapshot-0001-00000003"]
    store.files[f"{FOLDER}/snapshot-0001-00000003"] = b""
    assert numbers_of(read(store, LAYOUT).records) == [1, 2, 3]


def test_a_snapshot_that_was_not_written_deletes_nothing() -> None:
    store, journal, _ = compacting(1, 2)
    journal.append(facts(3))
    store.files[f"{FOLDER}/snapshot-0001-00000003"] = b""
    before = names(store)
    journal.compact(facts(1, 2, 3))
    assert names(store) == before


def test_a_journal_is_compacted_only_after_an_append() -> None:
    store = written([1])
    journal = claim(store)
    with pytest.raises(BugError, match="compacted only after an append"):
        journal.compact(facts(1))
    journal._store = GatedStore(store, FailAt(1, "before", fault()))
    with pytest.raises(OSError, match="the store failed"):
        journal.append(facts(2))
    with pytest.raises(BugError, match="compacted only after an append"):
        journal.compact(facts(1, 2))


def test_a_deposed_driver_deletes_nothing() -> None:
    store, journal, _ = compacting(1, 2)
    journal.append(facts(3))
    claim(store)
    before = names(store)
    with pytest.raises(DeposedError):
        journal.compact(facts(1, 2, 3))
    assert names(store) == sorted([*before, "snapshot-0001-00000003"])


def test_an_empty_batch_settles_what_was_read() -> None:
    store = MemoryStore()
    old = claim(store)
    old.append(facts(1))
    claim(store).settle()
    with pytest.raises(DeposedError):
        old.append(facts(2))
    assert f"{FOLDER}/batch-0001-00000002" in store.files
    assert numbers_of(read(store, LAYOUT).records) == [1]


# ---- speed


def test_a_driver_learns_that_its_journal_was_deleted(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    journal = claim(store)
    journal.append(facts(1))
    journal.check()
    store.delete_folder(FOLDER, lambda path: True)
    journal.append(facts(2))  # as fast as before: the next check finds it
    for _ in range(2):
        with pytest.raises(DeposedError, match="was deleted, or moved, while this driver ran"):
            journal.check()
    with pytest.raises(DeposedError):
        journal.append(facts(3))


def test_no_driver_takes_over_what_is_being_deleted(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    claim(store).append(facts(1))
    MarkedRemoval.start(store, LAYOUT, WHO, ownership(store, LAYOUT))
    terms = store.list()
    with pytest.raises(RunDirectoryError, match=r"being deleted by process .*finish what an interrupted one has left"):
        claim(store)
    assert store.list() == terms
