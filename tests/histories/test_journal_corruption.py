"""Journals with each byte changed, each file missing, and each truncation; and random sequences of their operations."""

from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparktrain.errors import JournalCorruptError
from sparktrain.rundir.journal import journal_file
from sparktrain.rundir.journal.reader import JournalContents, Tail, read
from sparktrain.rundir.journal.writer import Journal
from tests.unit.rundir.journal.journals import (
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
)
from tests.unit.store.gated import MemoryStore

FIFTY = [range(7), range(7, 20), range(20, 21), range(21, 38), range(38, 50)]


@pytest.mark.parametrize("last", range(1, 6))
def test_a_journal_truncated_at_any_byte_opens_with_its_start(last: int) -> None:
    store = written(*FIFTY[:last])
    whole = content(store, batch(last))
    before = [number for numbers in FIFTY[: last - 1] for number in numbers]
    for length in range(len(whole)):
        cut = copied(store, **{batch(last): whole[:length]})
        lines = max(0, whole[:length].count(b"\n") - 1)
        expected = [*before, *FIFTY[last - 1][:lines]]
        opened = read(cut, LAYOUT)
        assert numbers_of(opened.records) == expected
        assert len(opened.notes) == 1
        follower, opened = Journal.claim(cut, LAYOUT, WHO)
        follower.append(facts(100))
        assert numbers_of(opened.records) == expected
        assert read(cut, LAYOUT) == JournalContents((*opened.records, *facts(100)), 2)


def outcome(store: MemoryStore) -> list[int] | str:
    """The facts that are read, or the error."""
    try:
        return numbers_of(read(store, LAYOUT).records)
    except JournalCorruptError as error:
        return str(error)


def check_every_change(store: MemoryStore, expected: list[int]) -> None:
    """A changed byte in a file that matters is noticed, or the records that are read are correct all the same."""
    for path in [path for path in store.files if "term" not in path]:
        whole = store.files[path]
        for position in range(len(whole)):
            for bit in {0, position % 8}:  # the lowest bit makes another digit of a digit
                changed = whole[:position] + bytes([whole[position] ^ (1 << bit)]) + whole[position + 1 :]
                store.files[path] = changed
                found = outcome(store)
                assert found == expected or (isinstance(found, str) and path in found), (
                    f"byte {position} of {path}: {found}"
                )
        store.files[path] = whole


def test_every_changed_byte_is_noticed_or_does_not_matter() -> None:
    check_every_change(written([1, 2], [3]), [1, 2, 3])
    check_every_change(*history())


def test_the_change_is_not_noticed_without_the_checksum() -> None:
    with patch.object(journal_file, "_checked", lambda number, line: line[9:]), pytest.raises(AssertionError):
        check_every_change(written([1, 2], [3]), [1, 2, 3])


def test_every_missing_file_is_noticed_or_does_not_matter() -> None:
    store, expected = history()
    for path in [path for path in store.files if "term" not in path]:
        kept = store.files.pop(path)
        newest = path.endswith("batch-0003-00000003")
        assert numbers_of(read(store, LAYOUT).records) == (expected[:-2] if newest else expected)
        store.files[path] = kept


@given(st.lists(st.lists(st.integers(0, 99), min_size=1, max_size=4), max_size=8), st.data())
def test_tails_and_readers_agree(batches: list[list[int]], data: st.DataObject) -> None:
    store, so_far, seen = MemoryStore(), [], []
    journal, tail = claim(store), Tail(store, LAYOUT)
    for each in batches:
        journal.append(facts(*each))
        so_far += each
        match data.draw(st.sampled_from(["append", "look", "compact", "take over"])):
            case "look":
                opened = tail.read_new()
                seen = numbers_of(opened.records) if opened.afresh else [*seen, *numbers_of(opened.records)]
                assert seen == so_far
            case "compact":
                journal.compact(facts(*so_far))
            case "take over":
                journal = claim(store)
        assert numbers_of(read(store, LAYOUT).records) == so_far
