"""Events on their way to one callback."""

import asyncio
import logging
import os
import threading
from typing import Any

import pytest

from sparktrain.driver.tracking.callback import Callback, TrackedReport, TrackedTrial
from sparktrain.driver.tracking.delivery import Delivery

LIMIT_S = 20.0


def trial(number: int) -> TrackedTrial:
    return TrackedTrial(id=f"r-{number}", number=number, params={}, generation=1)


def report(step: int) -> TrackedReport:
    return TrackedReport(generation=1, step=step, time=float(step), metrics={"y": 1.0})


class Recorder(Callback):
    """Notes what it gets; holds its thread until `let`."""

    def __init__(self, held: bool = False, gather_s: float = 0.0) -> None:
        self.seen: list[Any] = []
        self.gather_s = gather_s
        self.entered, self.let = threading.Event(), threading.Event()
        if not held:
            self.let.set()

    def run_started(self, run: Any) -> None:
        self.entered.set()
        assert self.let.wait(LIMIT_S)
        self.seen.append(run)

    def reported(self, trial: TrackedTrial, reports: Any) -> None:
        self.seen.append((trial.number, [each.step for each in reports]))

    def trial_ended(self, trial: Any) -> None:
        self.seen.append(trial)

    def flush(self, timeout_s: float) -> None:
        assert 0 < timeout_s <= LIMIT_S
        self.seen.append("flushed")


def test_events_keep_their_order_and_reports_between_them_come_by_trial() -> None:
    recorder = Recorder(held=True)
    delivery = Delivery(recorder)
    delivery.add("run_started", "start")
    one, two = trial(1), trial(2)
    delivery.report(one, (report(0),))
    delivery.report(two, (report(0),))
    delivery.report(one, (report(1), report(2)))
    delivery.add("trial_ended", "end of 1")
    delivery.report(two, (report(1),))
    recorder.let.set()
    assert delivery.close(LIMIT_S)
    assert recorder.seen == ["start", (1, [0, 1, 2]), (2, [0]), "end of 1", (2, [1]), "flushed"]


def test_reports_are_gathered_only_as_long_as_nothing_else_comes() -> None:
    recorder = Recorder(gather_s=600.0)
    delivery = Delivery(recorder)
    for step in range(5):
        delivery.report(one := trial(1), (report(step),))
        delivery.report(one, ())
    delivery.add("trial_ended", "end")
    assert delivery.close(LIMIT_S)
    assert [step for each in recorder.seen[:-2] for step in each[1]] == list(range(5))
    assert recorder.seen[-2:] == ["end", "flushed"]


def test_the_oldest_reports_make_room_and_events_never_do(caplog: pytest.LogCaptureFixture) -> None:
    recorder = Recorder(held=True)
    delivery = Delivery(recorder, most_reports=3)
    delivery.add("run_started", "start")
    assert recorder.entered.wait(LIMIT_S)
    one = trial(1)
    for step in range(10):
        delivery.report(one, (report(step),))
        delivery.add("trial_ended", step)
    recorder.let.set()
    assert delivery.close(LIMIT_S)
    assert [each for each in recorder.seen if isinstance(each, int)] == list(range(10))
    assert [each[1] for each in recorder.seen if isinstance(each, tuple)] == [[7], [8], [9]]
    assert [each.message for each in caplog.records] == [
        "callback Recorder is slow: 7 reports were dropped, the oldest first"
    ]


def test_a_callback_that_raises_is_logged_once_with_its_traceback(caplog: pytest.LogCaptureFixture) -> None:
    class Wrong(Callback):
        def trial_ended(self, trial: Any) -> None:
            raise ValueError(f"no room for {trial}")

    delivery = Delivery(Wrong())
    for number in range(3):
        delivery.add("trial_ended", number)
    assert delivery.close(LIMIT_S)
    first, last = caplog.records
    assert first.message.startswith("callback Wrong has raised ValueError in trial_ended; the run continues")
    assert first.exc_info is not None
    assert str(first.exc_info[1]) == "no room for 0"
    assert last.message == "callback Wrong has raised 3 errors in all"


class MuteError(Exception):
    """Its message raises."""

    def __str__(self) -> str:
        raise SystemExit(2)


@pytest.mark.parametrize(
    "error", [SystemExit(5), KeyboardInterrupt(), GeneratorExit(), asyncio.CancelledError(), MuteError()], ids=repr
)
def test_whatever_a_callback_raises_it_gets_its_later_events(
    error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    class Wrong(Callback):
        def __init__(self) -> None:
            self.seen: list[Any] = []

        def trial_ended(self, trial: Any) -> None:
            self.seen.append(trial)
            raise error

        @property
        def reported(self) -> Any:
            raise error

        def flush(self, timeout_s: float) -> None:
            self.seen.append("flush")

    wrong = Wrong()
    delivery = Delivery(wrong)
    delivery.add("trial_ended", 0)
    delivery.add("reported", "a report")
    delivery.add("trial_ended", 1)
    assert delivery.close(LIMIT_S)
    assert wrong.seen == [0, 1, "flush"]
    first, last = caplog.records
    assert first.message.startswith(f"callback Wrong has raised {type(error).__name__} in trial_ended; the run")
    assert last.message == "callback Wrong has raised 3 errors in all"
    shown = logging.Formatter().format(first)
    assert "tracking/delivery.py" not in shown, "no frame of ours is before the user's"
    assert "test_delivery.py" in shown


def test_a_fork_in_a_callback_does_not_go_on_as_a_driver() -> None:
    read, write = os.pipe()

    class Forks(Callback):
        def trial_ended(self, trial: Any) -> None:
            if (child := os.fork()) != 0:
                os.write(write, f"{os.waitpid(child, 0)[1]}\n".encode())

        def run_ended(self, result: Any) -> None:
            os.write(write, f"ended in {os.getpid()}\n".encode())

    delivery = Delivery(Forks())
    delivery.add("trial_ended", 0)
    delivery.add("run_ended", "result")
    assert delivery.close(LIMIT_S)
    os.close(write)
    with open(read) as said:
        assert said.read() == f"0\nended in {os.getpid()}\n"


def test_after_an_interrupt_nobody_waits_for_a_callback_that_is_stuck(caplog: pytest.LogCaptureFixture) -> None:
    recorder = Recorder(held=True)
    delivery = Delivery(recorder)
    delivery.add("run_started", "start")
    delivery.add("trial_ended", "end")
    assert recorder.entered.wait(LIMIT_S)
    assert not delivery.close(LIMIT_S, stuck_s=0.01)
    assert "it is in run_started for 0." in caplog.text
    assert "1 later events and 0 reports are left out, and no other callback misses any" in caplog.text
    recorder.let.set()


def test_a_callback_that_blocks_forever_delays_the_end_by_its_limit_alone(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    recorder = Recorder(held=True)
    delivery = Delivery(recorder)
    delivery.add("run_started", "start")
    delivery.add("trial_ended", "end")
    assert recorder.entered.wait(LIMIT_S)
    assert not delivery.close(0.05)
    assert "Recorder has not handled its last events in time: it is in run_started for 0." in caplog.text
    recorder.let.set()


def test_an_object_needs_only_the_methods_that_it_wants() -> None:
    class Ends:
        def __init__(self) -> None:
            self.seen: list[Any] = []

        def run_ended(self, result: Any) -> None:
            self.seen.append(result)

    ends = Ends()
    delivery = Delivery(ends)
    delivery.report(trial(1), (report(0),))
    delivery.add("trial_ended", "end")
    delivery.add("run_ended", "over")
    assert delivery.close(LIMIT_S)
    assert ends.seen == ["over"]
