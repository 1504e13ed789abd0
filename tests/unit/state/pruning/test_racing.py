"""When a case cannot win, against brute force and SciPy."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import wilcoxon

from sparktrain.state.pruning.racing import cannot_win, chance
from sparktrain.state.pruning.rule import Aim

LOSS, ACCURACY = Aim("loss", False), Aim("accuracy", True)
small = st.integers(-4, 4).map(float)


def counted(differences: list[float]) -> float:
    """The same probability by all signs."""
    kept = [each for each in differences if each]
    sizes = sorted(abs(each) for each in kept)
    ranks = [(sizes.index(abs(each)) + len(sizes) - sizes[::-1].index(abs(each)) + 1) / 2 for each in kept]
    observed = sum(rank for rank, each in zip(ranks, kept, strict=True) if each > 0)
    sums = [
        sum(rank for rank, up in zip(ranks, signs, strict=True) if up) for signs in product((0, 1), repeat=len(kept))
    ]
    return sum(each >= observed - 1e-9 for each in sums) / len(sums)


@given(st.lists(small, max_size=9))
def test_the_chance_is_that_of_all_signs(differences: list[float]) -> None:
    assert chance(differences) == pytest.approx(counted(differences))


@given(st.lists(st.floats(-100, 100).filter(lambda each: abs(each) > 1e-6), min_size=1, max_size=25, unique_by=abs))
def test_the_chance_is_that_of_scipy(differences: list[float]) -> None:
    expected = wilcoxon(differences, alternative="greater", method="exact").pvalue
    assert chance(differences) == pytest.approx(float(expected))


@given(st.lists(st.floats(-100, 100).filter(lambda each: abs(each) > 1e-6), min_size=26, max_size=60, unique_by=abs))
def test_many_differences_are_nearly_normal(differences: list[float]) -> None:
    expected = wilcoxon(differences, alternative="greater", method="approx", correction=True).pvalue
    # SciPy corrects towards the middle, also where the sum is below it.
    if chance(differences) < 0.4:
        assert chance(differences) == pytest.approx(float(expected), rel=1e-6)


costs = st.integers(0, 6).map(float)


@given(st.lists(costs, min_size=1, max_size=4), st.lists(costs, min_size=4, max_size=4), st.data())
def test_with_few_pairs_no_case_is_stopped_that_could_win(
    mine: list[float], best: list[float], data: st.DataObject
) -> None:
    """Whatever its other trials come to, as long as none is better than the best one of all."""
    left = 4 - len(mine)
    lowest = data.draw(st.integers(0, int(min(*mine, *best))).map(float))
    why = cannot_win(dict(enumerate(mine)), dict(enumerate(best)), left, lowest, LOSS)
    worse = all(one > other for one, other in zip(mine, best, strict=False))
    rest = data.draw(st.lists(st.floats(lowest, 10), min_size=left, max_size=left))
    if why:
        assert left >= 1
        assert len(mine) >= 2
        assert worse
        assert sum(mine) + sum(rest) > sum(best)
    elif left >= 1 and len(mine) >= 2 and worse:
        assert sum(mine) + left * lowest <= sum(best), "it could still be as good"


@given(st.lists(costs, min_size=5, max_size=8), st.lists(costs, min_size=9, max_size=9))
def test_with_more_pairs_the_test_decides(mine: list[float], best: list[float]) -> None:
    pairs = [one - other for one, other in zip(mine, best, strict=False)]
    why = cannot_win(dict(enumerate(mine)), dict(enumerate(best)), 9 - len(mine), 0.0, LOSS)
    assert bool(why) == (sum(pairs) > 0 and counted(pairs) < 0.05)


def test_only_trials_of_the_same_place_are_compared() -> None:
    best = {0: 1.0, 1: 1.0, 2: 1.0, 3: 1.0}
    assert cannot_win({0: 9.0, 1: 9.0}, best, 2, 0.5, LOSS)
    assert not cannot_win({0: 9.0, 1: 9.0}, {2: 1.0, 3: 1.0}, 2, 0.5, LOSS)
    assert not cannot_win({0: 9.0, 1: 9.0}, {0: 1.0, 3: 1.0}, 2, 0.5, LOSS), "one pair decides nothing"
    assert not cannot_win({0: 9.0, 1: 9.0}, best, 0, 0.5, LOSS), "nothing is left to stop"


def test_what_is_said() -> None:
    why = cannot_win({0: -0.5, 1: -0.6}, {0: -0.9, 1: -0.8, 2: -0.9}, 1, -0.9, ACCURACY)
    assert why == "is below the best in all 2 pairs, and its mean could reach 0.6667 at best"
    five = {place: float(place + 2) for place in range(5)}
    assert cannot_win(five, dict.fromkeys(range(6), 1.0), 1, 1.0, LOSS) == "is above the best in 5 pairs (p = 0.031)"
