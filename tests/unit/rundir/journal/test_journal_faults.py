"""The driver dies, or its store fails, before and after each single operation; another driver resumes."""

from collections.abc import Callable
from typing import Any

import pytest

from sparktrain.errors import DeposedError
from sparktrain.rundir.journal.reader import read
from sparktrain.rundir.journal.writer import Journal
from sparktrain.store.base import Store
from tests.unit.rundir.journal.journal_histories import CuttingStore, patiently
from tests.unit.rundir.journal.journals import LAYOUT, WHO, claim, facts, numbers_of
from tests.unit.store.gated import Crash, FailAt, GatedStore, fault

BATCHES = ([1], [2, 3], [4], [5, 6], [7])
MOST_OPERATIONS = 60


def drive(store: Store, acknowledged: list[int], call: Callable[[Callable[[], object]], object]) -> None:
    """Take over, append, and compact after each second batch."""
    journal, opened = call(lambda: Journal.claim(store, LAYOUT, WHO))  # type: ignore[misc]
    history = numbers_of(opened.records)
    for count, batch in enumerate(BATCHES, 1):
        new = [each + 100 * journal.term for each in batch]
        call(lambda new=new: journal.append(facts(*new)))
        acknowledged += new
        history += new
        if count % 2 == 0:
            call(lambda so_far=tuple(history): journal.compact(facts(*so_far)))


def check_resumed(store: CuttingStore, acknowledged: list[int]) -> None:
    """Every reader, and the next driver, sees the acknowledged facts once, in order, and perhaps one batch more."""
    found = numbers_of(read(store, LAYOUT).records)
    assert found[: len(acknowledged)] == acknowledged
    assert len(found) == len(set(found))
    journal, opened = Journal.claim(store, LAYOUT, WHO)
    assert numbers_of(opened.records) == found
    journal.append(facts(1000))
    journal.compact(facts(*found, 1000))
    assert numbers_of(read(store, LAYOUT).records) == [*found, 1000]


class CutAt:
    """A gate: the process dies in its first put from operation `index` on, and leaves a partial file."""

    def __init__(self, store: CuttingStore, index: int) -> None:
        self.operations = 0
        self._store = store
        self._index = index

    def __call__(self, name: str, effect: Callable[[], Any]) -> Any:
        self._store.cut_next = self.operations >= self._index
        self.operations += 1
        return effect()


def operations(prepare: Callable[[CuttingStore], None]) -> int:
    """The number of operations of a drive."""
    store = CuttingStore()
    prepare(store)
    gate = CutAt(store, MOST_OPERATIONS)
    drive(GatedStore(store, gate), [], lambda call: call())
    return gate.operations


def nothing(store: CuttingStore) -> None:
    return


def a_run_before(store: CuttingStore) -> None:
    drive(store, [], lambda call: call())


@pytest.mark.parametrize("prepare", [nothing, a_run_before])
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("error", [fault(), Crash()], ids=["fault", "crash"])
def test_no_operation_loses_what_was_acknowledged(
    prepare: Callable[[CuttingStore], None], when: str, error: BaseException
) -> None:
    count = operations(prepare)
    assert 20 < count < MOST_OPERATIONS
    for index in range(count):
        store = CuttingStore()
        prepare(store)
        acknowledged = numbers_of(read(store, LAYOUT).records)
        gate = FailAt(index, when, error)
        try:
            drive(GatedStore(store, gate), acknowledged, patiently)
        except Crash:
            assert isinstance(error, Crash)
        assert gate.broke
        check_resumed(store, acknowledged)


@pytest.mark.parametrize("prepare", [nothing, a_run_before])
def test_a_file_that_was_cut_loses_nothing_that_was_acknowledged(prepare: Callable[[CuttingStore], None]) -> None:
    count = operations(prepare)
    for index in range(count):
        store = CuttingStore()
        prepare(store)
        acknowledged = numbers_of(read(store, LAYOUT).records)

        try:
            drive(GatedStore(store, CutAt(store, index)), acknowledged, lambda call: call())
        except Crash:
            assert store.corrupted
        store.cut_next = False
        check_resumed(store, acknowledged)


def test_a_zombie_that_was_stopped_before_its_check_acknowledges_nothing() -> None:
    store = CuttingStore()
    zombie = claim(store)
    zombie.append(facts(1))
    zombie._store = GatedStore(store, FailAt(1, "before", fault()))
    with pytest.raises(OSError, match="the store failed"):
        zombie.append(facts(2))
    _, opened = Journal.claim(store, LAYOUT, WHO)
    assert numbers_of(opened.records) == [1, 2]
    with pytest.raises(DeposedError):
        zombie.append(facts(2))
