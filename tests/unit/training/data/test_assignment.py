"""Each example belongs to one member, in the order of one process with batches as large as a round."""

import re
from itertools import chain

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from sparktrain.errors import SpecError
from sparktrain.training.data.assignment import BatchShare, Uneven, order, share

sizes = {"rows": st.integers(1, 200), "batch": st.integers(1, 9), "size": st.integers(1, 6)}


def all_rows(rows: int, batch: int, size: int, uneven: Uneven) -> list[list[list[int]]]:
    """Each member's batches."""
    found = []
    for rank in range(size):
        matrix, last = BatchShare(rank, size, uneven).rows(np.arange(rows), batch)
        found.append([*matrix.tolist(), *([last.tolist()] if len(last) else [])])
    return found


def fills(rows: int, batch: int, size: int) -> bool:
    return -(-rows // batch) >= size


@given(**sizes, uneven=st.sampled_from(Uneven))
def test_all_members_have_the_same_batches_in_number_and_size(rows: int, batch: int, size: int, uneven: Uneven) -> None:
    assume(fills(rows, batch, size))
    members = all_rows(rows, batch, size, uneven)

    lengths = [[len(each) for each in batches] for batches in members]
    assert lengths == [lengths[0]] * size
    assert len(lengths[0]) == BatchShare(0, size, uneven).steps(-(-rows // batch))


@given(**sizes)
def test_drop_gives_every_example_once_but_for_less_than_a_round(rows: int, batch: int, size: int) -> None:
    assume(fills(rows, batch, size))
    rounds = zip(*all_rows(rows, batch, size, Uneven.DROP), strict=True)
    given_ = [list(chain.from_iterable(each)) for each in rounds]
    whole = [each for each in given_ if len(each) == batch * size]

    assert list(chain.from_iterable(whole)) == list(range(len(whole) * batch * size))
    assert rows - len(whole) * batch * size < batch * size
    assert len(given_) - len(whole) in (0, 1)
    flat = list(chain.from_iterable(given_))
    assert len(flat) == len(set(flat))


@given(**sizes, uneven=st.sampled_from([Uneven.PAD, Uneven.REPEAT]))
def test_a_filled_round_has_all_that_is_left(rows: int, batch: int, size: int, uneven: Uneven) -> None:
    assume(fills(rows, batch, size))
    members = all_rows(rows, batch, size, uneven)
    real = [BatchShare(rank, size, uneven).real(rows, batch) for rank in range(size)]
    kept = [[*batches[:-1], batches[-1][:count]] for batches, count in zip(members, real, strict=True)]

    flat = list(chain.from_iterable(chain.from_iterable(zip(*kept, strict=True))))
    assert flat == list(range(rows))


def test_fills_with_the_first_examples_of_the_same_member() -> None:
    assert [each[-1] for each in all_rows(43, 4, 4, Uneven.REPEAT)] == [
        [32, 33, 34, 35],
        [36, 37, 38, 39],
        [40, 41, 42, 8],
        [12, 13, 14, 15],
    ]


def test_cuts_the_last_round_to_its_smallest_batch() -> None:
    assert all_rows(11, 4, 3, Uneven.DROP) == [[[0, 1, 2]], [[4, 5, 6]], [[8, 9, 10]]]


def test_a_single_member_drops_nothing() -> None:
    for uneven in Uneven:
        assert all_rows(10, 4, 1, uneven) == [[[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]]
        assert BatchShare(0, 1, uneven).real(10, 4) == (4 if uneven is Uneven.DROP else 2)


def test_data_that_fills_no_round_is_an_error_with_the_numbers() -> None:
    with pytest.raises(SpecError, match=re.escape("3 batches for 4 members: each member needs at least one")):
        BatchShare(0, 4, Uneven.DROP).steps(3)
    with pytest.raises(SpecError, match="1 batch for 2 members"):
        BatchShare(0, 2, Uneven.PAD).steps(1)


def test_an_unknown_word_is_an_error_that_names_the_nearest() -> None:
    with pytest.raises(SpecError, match=r"uneven \('padd'\) must be one of drop, pad, repeat; did you mean 'pad'\?"):
        share(0, 2, "padd")


def test_an_order_depends_on_seed_and_pass_alone() -> None:
    assert order(50, 3, 7).tolist() == order(50, 3, 7).tolist()
    assert sorted(order(50, 3, 7)) == list(range(50))
    assert len({tuple(order(50, seed, number)) for seed in (0, 1, -1) for number in (0, 1)}) == 6
    assert order(5, None, 3).tolist() == [0, 1, 2, 3, 4]
