"""Journals that tests write, and facts to look for in them."""

from collections.abc import Iterable, Sequence
from typing import Any

from sparktrain.base.ids import TrialId
from sparktrain.rundir.journal.driver_identity import DriverIdentity
from sparktrain.rundir.journal.writer import Journal
from sparktrain.rundir.layout import RunLayout
from sparktrain.state.records import AnyRecord, TrialConcluded
from sparktrain.state.trial import TrialStatus
from sparktrain.store.base import Store
from tests.unit.store.gated import MemoryStore

LAYOUT = RunLayout("run").journal
FOLDER = "run/journal"
WHO = DriverIdentity("host-1", 4711, 1.5, "0.1.0", "host-1:5000", "ab:cd")


def fact(number: int, **fields: Any) -> TrialConcluded:
    """A record that differs from all others."""
    return TrialConcluded(trial=TrialId(number), status=TrialStatus.SUCCEEDED, **fields)


def facts(*numbers: int) -> tuple[TrialConcluded, ...]:
    return tuple(fact(number) for number in numbers)


def numbers_of(records: Iterable[AnyRecord]) -> list[int]:
    """The numbers of those facts."""
    return [record.trial for record in records if isinstance(record, TrialConcluded)]


def claim(store: Store) -> Journal:
    return Journal.claim(store, LAYOUT, WHO)[0]


def written(*batches: Sequence[int]) -> MemoryStore:
    """The journal of one driver with these batches."""
    store = MemoryStore()
    journal = claim(store)
    for each in batches:
        journal.append(facts(*each))
    return store


def copied(store: MemoryStore, **changed: bytes | None) -> MemoryStore:
    """The same files with those of `changed` replaced, or deleted for None; names lack the folder and have _ for -."""
    copy = MemoryStore()
    replaced = {f"{FOLDER}/{name.replace('_', '-')}": content for name, content in changed.items()}
    copy.files = {path: content for path, content in (store.files | replaced).items() if content is not None}
    return copy


def batch(number: int, term: int = 1) -> str:
    return f"batch_{term:04}_{number:08}"


def content(store: MemoryStore, name: str) -> bytes:
    return store.files[f"{FOLDER}/{name.replace('_', '-')}"]


def history() -> tuple[MemoryStore, list[int]]:
    """Three drivers; one has left a late batch, the last one has compacted."""
    store = written([1, 2], [3])
    late = claim(store)
    late.append(facts(4))
    journal = claim(store)
    store.files |= written_as(late, 2, 100).files
    journal.append(facts(5, 6))
    journal.compact(facts(1, 2, 3, 4, 5, 6))
    journal.append(facts(7))
    journal.compact(facts(1, 2, 3, 4, 5, 6, 7))
    journal.append(facts(8, 9))
    return store, list(range(1, 10))


def written_as(journal: Journal, number: int, fact: int) -> MemoryStore:
    """What a driver puts that has not learned that it is deposed."""
    store, late = MemoryStore(), Journal(MemoryStore(), LAYOUT, journal._claim, journal._follows)
    late._store, late._number = store, number - 1
    late.append(facts(fact))
    return store
