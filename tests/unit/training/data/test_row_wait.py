"""A member reports long waits for rows, and their ends, and nothing of short ones."""

import pytest

from sparktrain.training.data.stream.epoch_reader import AWAIT_S, RowWait
from tests.unit.clocks import HandClock


def test_only_a_long_wait_is_reported_once_with_its_end() -> None:
    clock, told = HandClock(), list[bool]()
    wait = RowWait(told.append, clock)
    with wait.waiting():
        clock.at += AWAIT_S - 0.1
        wait.look()
    wait.look()
    assert told == []
    with wait.waiting():
        wait.look()
        clock.at += AWAIT_S
        wait.look()
        wait.look()
        assert told == [True]
    wait.look()
    assert told == [True, False]


def test_a_wait_that_fails_ends_too() -> None:
    clock, told = HandClock(), list[bool]()
    wait = RowWait(told.append, clock)

    def broken() -> None:
        with wait.waiting():
            clock.at += AWAIT_S
            wait.look()
            raise OSError("the agent is gone")

    with pytest.raises(OSError, match="gone"):
        broken()
    assert told == [True, False]
