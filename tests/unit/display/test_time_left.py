"""The estimate of the time that a run still takes."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparktrain.display.time_left import TrialTimes, time_left


def times_of(durations: Sequence[float]) -> TrialTimes:
    times = TrialTimes()
    for seconds in durations:
        times.add(seconds)
    return times


@pytest.mark.parametrize(
    ("durations", "elapsed", "to_come", "slots", "least", "most"),
    [
        pytest.param([9.2, 8.8], [0.3, 0.1], 0, 2, 8.5, 9.5, id="README: after 45 s, 33 s of them for the start"),
        pytest.param([24.0, 26.0], [1.0, 1.0], 26, 2, 320, 375, id="cars: 6 minutes for 28 of 30 trials"),
        pytest.param([10.0, 10.0], [9.0, 1.0], 1, 2, 10.5, 11.5, id="the trial to come takes the slot that ends first"),
        pytest.param([10.0, 10.0], [5.0], 1, 2, 9.9, 10.1, id="a slot is free"),
        pytest.param([10.0] * 4, [10.5, 1.0], 0, 2, 8.9, 9.1, id="one takes longer than all before it"),
        pytest.param([10.0] * 4, [30.0], 0, 1, 4.9, 5.1, id="nothing is known of one that takes longer than all"),
        pytest.param([2.0] * 9 + [30.0], [5.0], 0, 1, 24, 26, id="one that outlasts short ones is a long one"),
        pytest.param([0.05] * 50, [0.0] * 4, 9946, 4, 120, 130, id="many short ones"),
        pytest.param([10.0] * 8, [0.0] * 8, 8, 8, 19.9, 20.1, id="eight slots in parallel"),
        pytest.param([10.0], [], 3, 2, 19.9, 20.1, id="the first of a resumed run has not started yet"),
    ],
)
def test_the_time_left_is_that_of_trials_in_their_slots(
    durations: list[float], elapsed: list[float], to_come: int, slots: int, least: float, most: float
) -> None:
    left = time_left(times_of(durations), elapsed, to_come, slots)
    assert left is not None
    assert least <= left <= most


@pytest.mark.parametrize(
    ("durations", "elapsed", "to_come", "slots", "left"),
    [
        ([], [], 0, 2, 0.0),
        ([], [3.0], 0, 1, None),
        ([1.0], [3.0, 3.0], 5, 2, None),
        ([1.0, 1.0], [], 5, 0, None),
        ([], [], 5, 2, None),
    ],
    ids=["all have ended", "none has ended", "the first to end are no measure", "no slot", "nothing has run"],
)
def test_there_is_no_estimate_from_nothing(
    durations: list[float], elapsed: list[float], to_come: int, slots: int, left: float | None
) -> None:
    assert time_left(times_of(durations), elapsed, to_come, slots) == left


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=50), st.floats(0, 1e6), st.randoms(use_true_random=False))
def test_times_depend_on_no_order_and_are_never_negative(
    durations: list[float], elapsed: float, random: object
) -> None:
    shuffled = sorted(durations, key=lambda _: random.random())  # type: ignore[attr-defined]
    one, other = times_of(durations), times_of(shuffled)
    assert one.mean_s == other.mean_s
    assert one.left_s(elapsed) == other.left_s(elapsed) >= 0
    assert one.mean_s == pytest.approx(sum(durations) / len(durations), abs=1e-3)
