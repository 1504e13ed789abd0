"""The axis of a metric: no terrible value flattens the others, and the better end is always on it."""

import math
import random

import pytest

from sparktrain.views.report.views.value_axis import ValueAxis, lines_axis, value_axis


@pytest.mark.parametrize(
    ("values", "mode", "low", "high", "outside"),
    [
        ([0.1, 0.2, 0.3, 1e6], "min", 0.1, 0.3, (0, 1)),
        ([0.9, 0.8, 0.7, -1e9], "max", 0.7, 0.9, (1, 0)),
        ([0.1, 0.2, 0.3, 0.4, -1e9], "min", -1e9, 0.4, (0, 0)),  # the best one, whatever it is
        ([1.0] * 12 + [0.9, 0.95, 0.99, -1e9], "max", 0.9, 1.0, (1, 0)),  # where most are the same
        ([0.5] * 19 + [1e6], "min", 0.5, 1e6, (0, 0)),  # there is nothing else to see
        ([0.1, 1e6], "min", 0.1, 1e6, (0, 0)),
        ([-1e6, 0.1, 0.2, 0.3, 0.4, 0.5, 1e7], None, 0.1, 0.5, (1, 1)),
        ([0.1 * number for number in range(1, 11)], "min", 0.1, 1.0, (0, 0)),
        ([0.17, 0.18, 0.19, 0.2, 0.22, 0.3, 0.44, 0.6, 0.74, 48213.7], "min", 0.17, 0.74, (0, 1)),  # close neighbours
        ([3.0, math.inf, math.nan, None, 4.0], "min", 3.0, 4.0, (0, 0)),
        ([1e308, -1e308, 0.0, 1.0, 2.0], "min", -1e308, 1e308, (0, 0)),
    ],
)
def test_values_far_from_most_lie_outside(
    values: list[float | None], mode: str | None, low: float, high: float, outside: tuple[int, int]
) -> None:
    axis = value_axis(values, mode)
    assert axis is not None
    assert (axis.low, axis.high, (axis.below, axis.above)) == (low, high, outside)


def test_a_third_of_terrible_values_flattens_nothing() -> None:
    chance = random.Random(1)
    good = [10 ** chance.uniform(-1, -0.3) for _ in range(20)]
    axis = value_axis([*good, *(10 ** chance.uniform(3, 8) for _ in range(9))], "min")
    assert axis == ValueAxis(min(good), max(good), above=9)


@pytest.mark.parametrize(
    ("spread", "mode", "log"), [((-6, 0), "min", True), ((-6, 0), "max", False), ((-1, 0), "min", False)]
)
def test_losses_over_powers_of_ten_have_a_logarithmic_axis(spread: tuple[int, int], mode: str, log: bool) -> None:
    chance = random.Random(2)
    axis = value_axis([10 ** chance.uniform(*spread) for _ in range(50)], mode)
    assert axis is not None
    assert axis.log is log


def test_normal_values_are_all_on_the_axis() -> None:
    chance = random.Random(3)
    for mode in ("min", "max", None):
        axis = value_axis([chance.gauss(0, 1) for _ in range(1000)], mode)
        assert axis is not None
        assert (axis.below, axis.above) == (0, 0)


def test_whole_numbers_have_whole_ticks() -> None:
    assert value_axis([1, 3, 2], "min") == ValueAxis(1.0, 3.0, integer=True)
    assert value_axis([1.5, 3, 2], "min") == ValueAxis(1.5, 3.0)
    assert value_axis([], "min") is None
    assert value_axis([math.nan, None], "min") is None


def test_the_first_steps_of_curves_are_shown_and_a_curve_that_diverged_is_cut() -> None:
    curves = [[(2.3 + number / 10) / step for step in range(1, 101)] for number in range(5)]
    axis = lines_axis(curves, "min")
    assert axis is not None
    assert (axis.low, axis.high, axis.above) == (0.023, pytest.approx(2.7), 0)
    axis = lines_axis([*curves, [2.3, 40.0, 1e9, None]], "min")
    assert axis is not None
    assert (axis.low, axis.high, axis.above) == (0.023, pytest.approx(2.7), 2)
    assert lines_axis([[None], []], "min") is None
