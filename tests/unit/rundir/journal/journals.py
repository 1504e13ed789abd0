"""Journals that tests write, and facts to look for in them."""

from collections.abc import Iterable, Sequence
from typing import Any

from sparktrain.ids import TrialId
from sparktrain.rundir.journal.writer import DriverIdentity, Journal
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
