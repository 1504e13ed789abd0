"""Every row of a dataset comes once in a pass, over all members of any gang, in an order that never changes."""

import hashlib
import re
from itertools import chain

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from sparktrain.errors import SpecError
from sparktrain.training.data import row_order
from sparktrain.training.data.assignment import BatchShare, Uneven
from sparktrain.training.data.row_order import RowOrder, RowShare, contiguous

groups = st.lists(st.integers(1, 30), min_size=1, max_size=12)
seeds = st.one_of(st.none(), st.integers(-(2**70), 2**70))
gangs = {"rows": st.integers(1, 150), "batch": st.integers(1, 9), "size": st.integers(1, 6)}


@pytest.fixture(autouse=True)
def small_windows(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows of 40 rows or 400 bytes: several in each order of these tests."""
    if "large" not in request.node.name:
        monkeypatch.setattr(row_order, "WINDOW_ROWS", 40)
        monkeypatch.setattr(row_order, "WINDOW_BYTES", 400)


def order_of(rows: list[int], seed: int | None, number: int) -> list[int]:
    made = RowOrder(rows, [8 * each for each in rows], seed, number)
    return made.at(np.arange(made.length, dtype=np.int64)).tolist()


# ---- the order of a pass


@given(groups, seeds, st.integers(0, 5))
def test_each_row_comes_once(rows: list[int], seed: int | None, number: int) -> None:
    found = order_of(rows, seed, number)

    assert sorted(found) == list(range(sum(rows)))
    assert seed is not None or found == list(range(sum(rows)))


@given(groups, st.integers(0, 9), st.lists(st.integers(0, 10**6), max_size=20))
def test_a_row_depends_on_groups_seed_pass_and_position_alone(rows: list[int], seed: int, asked: list[int]) -> None:
    whole = order_of(rows, seed, 3)
    places = np.array([each % sum(rows) for each in asked], np.int64)
    fresh = RowOrder(rows, [8 * each for each in rows], seed, 3)

    assert fresh.at(places).tolist() == [whole[each] for each in places]
    assert fresh.at(places[::-1]).tolist() == [whole[each] for each in places[::-1]]


@given(groups, st.integers(0, 9))
def test_windows_hold_whole_groups_and_are_shuffled_by_themselves(rows: list[int], seed: int) -> None:
    order, starts = RowOrder(rows, [8 * each for each in rows], seed, 0), np.cumsum([0, *rows])
    found = order.at(np.arange(order.length, dtype=np.int64))
    windows = order.windows_of(np.arange(order.length, dtype=np.int64))
    seen: list[int] = []
    position = window_number = 0
    while position < order.length:
        here = order.groups_from(window_number, 1)
        held = sum(rows[each] for each in here)
        window = list(chain.from_iterable(range(starts[each], starts[each + 1]) for each in here))
        assert sorted(found[position : position + held]) == sorted(window)
        assert set(windows[position : position + held].tolist()) == {window_number}
        assert len(here) == 1 or sum(rows[each] for each in here[:-1]) < 40
        assert order.groups_from(window_number, 2)[: len(here)] == here
        seen, position, window_number = [*seen, *here], position + held, window_number + 1
    assert sorted(seen) == list(range(len(rows)))
    assert order.groups_from(window_number, 1) == []


def test_orders_differ_by_seed_pass_and_window() -> None:
    keys = [(seed, number) for seed in (0, 1, -1, 2**32, 2**64 - 2) for number in (0, 1, 2)]
    single = [1] * 60  # groups of one row: two windows

    assert len({tuple(order_of([50], *key)) for key in keys}) == len(keys)
    assert len({tuple(order_of(single, *key)) for key in keys}) == len(keys)
    twins = RowOrder([40, 40], [1, 1], 5, 0)
    first, second = twins.at(np.arange(40)) % 40, twins.at(np.arange(40, 80)) % 40
    assert first.tolist() != second.tolist()


@pytest.mark.long
def test_a_row_may_take_any_place() -> None:
    ends = np.array([[order_of([1] * 8, seed, 0).index(row) for seed in range(400)] for row in range(8)])

    counts = np.array([np.bincount(each, minlength=8) for each in ends])
    assert counts.min() > 20  # 50 are expected; a place with fewer than 21 has a chance of one in a million
    assert counts.max() < 90


def test_an_order_is_the_same_with_every_numpy_and_in_every_release() -> None:
    assert order_of([5, 3, 4], 7, 2) == [4, 2, 9, 7, 6, 10, 5, 3, 11, 8, 1, 0]
    assert order_of([5, 3, 4], -7, 2) == [1, 3, 11, 8, 4, 0, 10, 2, 9, 5, 6, 7]


def test_a_large_order_is_the_same_with_every_numpy_and_in_every_release() -> None:
    order = RowOrder([65_536] * 9 + [1_000], [2**24] * 10, 11, 4)
    found = order.at(np.arange(order.length, dtype=np.int64))

    assert hashlib.sha256(found.astype("<i8").tobytes()).hexdigest()[:16] == "66fd7ed7ea4f5f96"
    assert [len(order.groups_from(window, 1)) for window in (0, 1, 2)] == [4, 5, 1]


# ---- the shares of members


def members(rows: int, batch: int, size: int, uneven: Uneven, taken: int = 0) -> list[RowShare]:
    return [RowShare(BatchShare(rank, size, uneven), rows, batch, taken) for rank in range(size)]


def batches_of(share: RowShare) -> list[list[int]]:
    """The positions of each step."""
    return [share.positions(step, step + 1).tolist() for step in range(share.steps)]


def real_rows(gang: list[RowShare], steps: int | None = None) -> list[int]:
    """The positions that a gang trains on in its first steps, without filling, in the order of steps and ranks."""
    return [
        row
        for step in range(gang[0].steps if steps is None else steps)
        for share in gang
        for row in share.positions(step, step + 1)[: share.real(step)].tolist()
    ]


def fills(rows: int, batch: int, size: int) -> bool:
    return rows >= size and -(-rows // batch) >= size


@given(**gangs, uneven=st.sampled_from(Uneven), at=st.integers(0, 150))
def test_members_have_equal_steps_and_equal_batches_at_any_position(
    rows: int, batch: int, size: int, uneven: Uneven, at: int
) -> None:
    assume(fills(rows, batch, size))
    gang = [batches_of(share) for share in members(rows, batch, size, uneven, min(at, rows))]

    lengths = [[len(each) for each in batches] for batches in gang]
    assert lengths == [lengths[0]] * size
    assert all(0 < each <= batch for each in lengths[0])
    assert all(each == batch for each in lengths[0][:-1])
    assert all(0 <= row < rows for row in chain.from_iterable(chain.from_iterable(gang)))


@given(**gangs)
def test_a_gang_that_drops_trains_on_each_row_once_but_for_less_than_a_step(rows: int, batch: int, size: int) -> None:
    assume(fills(rows, batch, size))
    gang = members(rows, batch, size, Uneven.DROP)
    found = real_rows(gang)

    assert len(found) == len(set(found)) > rows - batch * size
    whole = rows // (batch * size) * batch * size
    assert sorted(found)[:whole] == list(range(whole))
    assert size > 1 or sorted(found) == list(range(rows))


@given(**gangs, uneven=st.sampled_from([Uneven.PAD, Uneven.REPEAT]))
def test_a_gang_that_fills_trains_on_each_row_once(rows: int, batch: int, size: int, uneven: Uneven) -> None:
    assume(fills(rows, batch, size))

    assert sorted(real_rows(members(rows, batch, size, uneven))) == list(range(rows))


@given(**gangs, uneven=st.sampled_from(Uneven), first=st.integers(0, 20), last=st.integers(0, 20))
def test_several_steps_at_a_time_have_the_rows_of_each(
    rows: int, batch: int, size: int, uneven: Uneven, first: int, last: int
) -> None:
    assume(fills(rows, batch, size))
    for share in members(rows, batch, size, uneven):
        found = batches_of(share)
        start, end = sorted((min(first, share.steps), min(last, share.steps)))
        assert start == end or share.positions(start, end).tolist() == list(chain.from_iterable(found[start:end]))


@given(
    rows=st.integers(6, 150),
    lives=st.lists(st.tuples(st.integers(1, 6), st.integers(1, 9), st.integers(0, 9)), min_size=1, max_size=4),
    uneven=st.sampled_from(Uneven),
)
def test_gangs_of_any_sizes_take_a_pass_over_from_each_other(
    rows: int, lives: list[tuple[int, int, int]], uneven: Uneven
) -> None:
    """Each life is a gang's size, its batch, and the steps until it ends; the last one has no end."""
    taken, found = 0, []
    for number, (size, batch, steps) in enumerate(lives):
        if not taken and not fills(rows, batch, size):
            continue
        gang = members(rows, batch, size, uneven, taken)
        done = gang[0].steps if number == len(lives) - 1 else min(steps, gang[0].steps)
        found += real_rows(gang, done)
        taken = gang[0].taken_after(done)
        assert {share.taken_after(done) for share in gang} == {taken}
        if done == gang[0].steps:
            break
    else:
        return

    assert len(found) == len(set(found))
    assert len(found) > rows - batch * size
    assert uneven is Uneven.DROP or sorted(found) == list(range(rows))


def test_fillers_are_the_first_rows_of_the_same_member() -> None:
    assert [batches_of(share)[-1] for share in members(43, 4, 4, Uneven.REPEAT)] == [
        [32, 33, 34, 35],
        [36, 37, 38, 39],
        [40, 41, 42, 8],
        [12, 13, 14, 15],
    ]
    assert [share.real(2) for share in members(43, 4, 4, Uneven.PAD)] == [4, 4, 3, 0]


@pytest.mark.parametrize("uneven", Uneven)
def test_too_few_rows_are_an_error_with_both_numbers(uneven: Uneven) -> None:
    with pytest.raises(SpecError, match=re.escape("3 rows for 4 members: each member needs at least one batch")):
        _ = RowShare(BatchShare(0, 4, uneven), 3, 1).steps
    with pytest.raises(SpecError, match="1 row for 2 members"):
        _ = RowShare(BatchShare(0, 2, uneven), 1, 8).steps
    with pytest.raises(SpecError, match="2 batches for 4 members"):
        _ = RowShare(BatchShare(0, 4, uneven), 8, 4).steps


@given(st.integers(0, 1000), st.integers(1, 9))
def test_shares_in_one_piece_hold_every_row_once(rows: int, size: int) -> None:
    shares = [contiguous(rows, rank, size) for rank in range(size)]

    assert [each[0] for each in shares[1:]] == [each[1] for each in shares[:-1]]
    assert (shares[0][0], shares[-1][1]) == (0, rows)
    lengths = [last - first for first, last in shares]
    assert max(lengths) - min(lengths) <= 1
