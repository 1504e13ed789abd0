"""The sampler of lists."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from sparktrain.base.ids import TrialId
from sparktrain.errors import SpecError
from sparktrain.search.grid import MAX_TRIALS, SpaceSampler
from sparktrain.search.sampler import Observation, ObservedStatus, PastSuggestion
from sparktrain.search.space import Space, cases, grid
from tests.support.examples import examples


def drain(sampler: SpaceSampler, counts: list[int]) -> list[dict[str, Any]]:
    """All cases, suggested in portions; the last portion size repeats."""
    found: list[dict[str, Any]] = []
    for count in [*counts, *[counts[-1]] * 1000]:
        suggestion = sampler.suggest(count)
        assert len(suggestion.cases) <= count
        found += suggestion.cases
        if suggestion.exhausted:
            break
    return found


def restored(space: Space, limit: int | None = None, known: Sequence[dict[str, Any]] = ()) -> SpaceSampler:
    """The sampler of a driver that follows another one: samplers of that have proposed `known`."""
    sampler = SpaceSampler(space, limit)
    sampler.restore([PastSuggestion(TrialId(0), tuple(known), False)])
    return sampler


@examples(40)
@given(
    some.integers(1, 30), some.none() | some.integers(1, 40), some.lists(some.integers(1, 7), min_size=1, max_size=5)
)
def test_each_case_once_in_order_for_any_portions(size: int, limit: int | None, counts: list[int]) -> None:
    sampler = SpaceSampler(grid(a=range(size)), limit)
    expected = [{"a": value} for value in range(size)][:limit]
    assert drain(sampler, counts) == expected
    assert sampler.total == len(expected)
    after = sampler.suggest(3)
    assert after.cases == ()
    assert after.exhausted


def test_exhausted_comes_with_the_last_case() -> None:
    sampler = SpaceSampler(grid(a=[1, 2]))
    assert not sampler.suggest(1).exhausted
    assert sampler.suggest(1).exhausted


def test_results_change_nothing() -> None:
    sampler = SpaceSampler(grid(a=[1, 2]))
    sampler.observe(Observation(TrialId(0), {"a": 1}, ObservedStatus.FAILED, {}))
    assert sampler.suggest(2).cases == ({"a": 1}, {"a": 2})


def test_total_counts_what_conditions_leave() -> None:
    assert SpaceSampler(grid(a=range(10), where=lambda p: p["a"] % 2 == 0)).total == 5


def test_a_limit_allows_a_larger_space() -> None:
    space = grid(a=range(1000), b=range(1000))
    assert SpaceSampler(space, 7).total == 7
    assert SpaceSampler(space, MAX_TRIALS + 1).total is None
    assert SpaceSampler(grid(a=range(MAX_TRIALS))).total == MAX_TRIALS


def test_a_condition_that_raises_late_does_so_before_the_first_suggestion() -> None:
    space = grid(a=range(50, -1, -1), where=lambda p: 1 / p["a"])
    with pytest.raises(SpecError, match=r"ZeroDivisionError.*{'a': 0}"):
        SpaceSampler(space)


def test_cases_beyond_a_limit_are_not_evaluated() -> None:
    assert SpaceSampler(grid(a=range(50, -1, -1), where=lambda p: 1 / p["a"]), 10).total == 10


def test_equal_cases_are_run_as_often_as_listed() -> None:
    assert len(SpaceSampler(cases([{"a": 1}, {"a": 1}])).suggest(5).cases) == 2


def test_known_cases_count_and_are_not_proposed() -> None:
    sampler = restored(grid(a=[1, 2, 3], b=[4]), 5, known=[{"b": 4, "a": 2}, {"a": 9, "b": 9}])
    assert sampler.total == 4
    assert sampler.suggest(9).cases == ({"a": 1, "b": 4}, {"a": 3, "b": 4})
    assert restored(grid(a=[1, 2, 3]), 2, known=[{"a": 2}]).suggest(9).cases == ({"a": 1},)
    assert restored(grid(a=[1, 2, 3]), 1, known=[{"a": 2}]).suggest(9).exhausted


def test_of_equal_cases_only_the_known_number_is_left_out() -> None:
    rows = [{"a": 1}, {"a": 2}, {"a": 1}, {"a": 1}]
    assert restored(cases(rows), known=rows[:1]).suggest(9).cases == ({"a": 2}, {"a": 1}, {"a": 1})


def test_many_known_cases_are_found_quickly() -> None:
    known = [{"a": number} for number in range(20_000)]
    assert restored(grid(a=range(20_001)), known=known).suggest(9).cases == ({"a": 20_000},)
