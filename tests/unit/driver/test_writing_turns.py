"""Data is written while no run trains, and none starts to train meanwhile; no wait lasts without an end."""

import threading
from collections.abc import Callable
from typing import Any

import pytest

from sparktrain.driver.slots.writing_turns import WritingTurns
from sparktrain.errors import PoolError
from tests.support.processes import wait_until
from tests.unit.clocks import InstantClock

SOON_S = 30.0


def in_thread(work: Callable[[], Any]) -> threading.Thread:
    thread = threading.Thread(target=work)
    thread.start()
    return thread


def test_a_writer_waits_for_those_who_train_and_reports_them() -> None:
    turns, lines, order = WritingTurns(), list[list[str]](), list[str]()

    def write() -> None:
        with turns.writing("writer", SOON_S, lines.append):
            order.append("writes")

    with turns.training("a", SOON_S), turns.training("b", SOON_S):
        thread = in_thread(write)
        wait_until(lambda: lines, SOON_S, "the writer waits")
        order.append("trained")
    thread.join(SOON_S)
    assert order == ["trained", "writes"]
    assert lines == [["a", "b"]], "once"


def test_those_who_come_while_data_is_written_start_after_it() -> None:
    turns, order = WritingTurns(), list[str]()
    waits = threading.Event()

    class Clock(InstantClock):
        def pause(self, seconds: float) -> None:
            waits.set()
            threading.Event().wait(seconds)

    turns = WritingTurns(Clock())

    def train() -> None:
        with turns.training("late", SOON_S):
            order.append("trains")

    with turns.writing("one", SOON_S, lambda others: None), turns.writing("two", SOON_S, lambda others: None):
        thread = in_thread(train)
        assert waits.wait(SOON_S)
        order.append("written")
    thread.join(SOON_S)
    assert order == ["written", "trains"]


def test_one_call_writes_its_data_and_then_trains() -> None:
    turns = WritingTurns(InstantClock())
    with turns.training("other", 1.0), turns.training("run", 1.0):
        pass
    with turns.writing("run", 1.0, lambda others: None):
        pass
    with turns.training("run", 1.0):
        pass


def test_each_wait_has_a_deadline_and_names_who_has_the_slots() -> None:
    turns = WritingTurns(clock := InstantClock())
    started = clock.now()
    with (
        turns.training("a", 1.0),
        pytest.raises(PoolError, match=r"run 'w' has waited 5 s for slots, while other calls train on all slots \(a\)"),
        turns.writing("w", 5.0, lambda others: None),
    ):
        pass
    assert 5.0 <= clock.now() - started < 6.0
    with (
        turns.writing("w", 1.0, lambda others: None),
        pytest.raises(
            PoolError, match=r"other calls write their data on its slots \(w\).*or wait longer with start_ti"
        ),
        turns.training("a", 5.0),
    ):
        pass
    with turns.writing("again", 1.0, lambda others: None):
        pass
