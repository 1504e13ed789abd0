"""The notes of a member about its steps and collectives, by a clock that tests set."""

import numpy as np
import pytest

from sparktrain.training.collectives.step_notes import CALLS, STEPS, StepNotes, waits


class Clock:
    def __init__(self) -> None:
        self.ns = 1

    def __call__(self) -> int:
        return self.ns


def train(notes: StepNotes, clock: Clock, steps: int, *, wait_ns: int = 20, data_ns: int = 10) -> None:
    """Steps of 100 ns."""
    for number in range(steps):
        notes.feed(data_ns)
        clock.ns += 100
        notes.call(clock.ns - wait_ns)
        notes.step(number + 1)


def test_a_step_is_divided_into_compute_wait_and_data() -> None:
    clock = Clock()
    notes = StepNotes(clock)
    assert notes.times() is None
    train(notes, clock, 2 * STEPS)
    times = notes.times()
    assert times is not None
    parts = times.compute_s, times.wait_s, times.data_s
    assert parts == pytest.approx((70e-9, 20e-9, 10e-9))
    assert times.steps == 20
    assert times.work_s == pytest.approx(80e-9)


def test_validation_and_pauses_do_not_count() -> None:
    clock = Clock()
    notes = StepNotes(clock)
    train(notes, clock, 10)
    clock.ns += 10_000
    train(notes, clock, 11)
    times = notes.times()
    assert times is not None
    assert times.compute_s == pytest.approx(70e-9)


def test_a_step_of_several_batches_is_divided_by_them() -> None:
    clock = Clock()
    notes = StepNotes(clock)
    for number in (4, 8, 12):
        clock.ns += 400
        notes.call(clock.ns - 40)
        notes.step(number)
    times = notes.times()
    assert times is not None
    assert (times.compute_s, times.wait_s) == pytest.approx((90e-9, 10e-9))


def test_the_buffers_keep_the_newest_in_order() -> None:
    clock = Clock()
    notes = StepNotes(clock)
    train(notes, clock, CALLS + 7)
    assert notes.steps()[:, 0].tolist() == list(range(CALLS + 8 - STEPS, CALLS + 8))
    calls = notes.calls()
    assert len(calls) == CALLS
    assert (np.diff(calls[:, 0]) == 100).all()


def test_calls_of_traced_functions_join_those_of_the_program() -> None:
    clock = Clock()
    notes = StepNotes(clock)
    notes.traced = lambda: np.array([[150, 190], [40, 60]], np.int64)
    clock.ns = 100
    notes.call(80)
    assert notes.calls().tolist() == [[40, 60], [80, 100], [150, 190]]


def test_collectives_at_the_same_time_are_one_wait() -> None:
    calls = np.array([[10, 50], [20, 40], [45, 60], [90, 130]], np.int64)
    assert waits(calls, np.array([0, 100, 200], np.int64)).tolist() == [60, 30]
    assert waits(calls[:0], np.array([0, 100], np.int64)).tolist() == [0]
