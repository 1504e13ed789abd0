"""Displays, as threads that draw on a stream."""

import io
import os
import pty
import select
import threading
import time
from collections.abc import Callable, Iterator
from typing import TextIO

import pytest
from msgspec.structs import replace

from sparktrain.base.ids import TrialId
from sparktrain.config.gang_spec import Role
from sparktrain.display.live import LineDisplay, TerminalDisplay
from sparktrain.display.progress import Display, MemberLine, MemberState, NullDisplay, Progress, RunningTrial
from sparktrain.display.shared_stream import STREAMS
from sparktrain.runs.trial_result import TrialResult
from sparktrain.state.outcome import Failure, FailureKind, Restart
from sparktrain.state.trial import TrialStatus


def progress(seconds: float = 1.0, done: int = 0, note: str = "") -> Progress:
    return Progress(
        name="mnist", total=2, done=done, running=0, queued=2 - done, failed=0, lost=0,
        seconds=seconds, eta_s=5.0, metric="accuracy", note=note,
    )  # fmt: skip


def failed(number: int) -> TrialResult:
    error = Failure(FailureKind.EXCEPTION, "ValueError: units")
    return TrialResult(
        id=TrialId(number), status=TrialStatus.FAILED, params={}, error=error, seconds=1.0, generations=1
    )


def succeeded(number: int) -> TrialResult:
    metrics = {"accuracy": 0.5}
    return TrialResult(id=TrialId(number), status=TrialStatus.SUCCEEDED, params={}, metrics=metrics, seconds=1.0)


def lines_of(*updates: Progress) -> list[str]:
    """What a LineDisplay writes when it sees each of the updates; drawn by hand, so that none is passed over."""
    stream = io.StringIO()
    shown = LineDisplay(stream)
    for update in updates:
        shown._draw(update)
    return stream.getvalue().splitlines()


STATUS = "mnist: 0 of 2 trials done, 0 running, 2 queued; agents 0 of 0"


def test_the_lines_of_several_runs_have_their_names() -> None:
    stream = io.StringIO()
    first, second = LineDisplay(stream), LineDisplay(stream)
    first.start()
    first.update(progress(done=1))
    until(lambda: "mnist: 1 of 2" in stream.getvalue())
    first.trial_ended(succeeded(0))
    until(lambda: "trial 0" in stream.getvalue())
    second.start()
    second.update(replace(progress(), name="other"))
    until(lambda: "other: 0 of 2" in stream.getvalue())
    first.trial_ended(succeeded(1))
    second.trial_ended(succeeded(0))
    first.close()
    second.close()
    lines = stream.getvalue().splitlines()
    assert "[0:01] trial 0 succeeded in 1.0 s: accuracy 0.5000" in lines
    assert "[0:01] mnist: trial 1 succeeded in 1.0 s: accuracy 0.5000" in lines
    assert "[0:01] other: trial 0 succeeded in 1.0 s: accuracy 0.5000" in lines


def until(condition: Callable[[], bool]) -> None:
    """Wait for what a display's thread draws."""
    deadline = time.monotonic() + 10.0
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_the_runs_on_one_terminal_have_a_block_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    stream = Terminal()
    first, second = TerminalDisplay(stream), TerminalDisplay(stream)
    for shown, name in ((first, "mnist"), (second, "other")):
        shown.start()
        shown.update(replace(progress(), name=name))
    newest = lambda: stream.getvalue().rpartition("\x1b[2K")[2]  # noqa: E731
    until(lambda: "mnist" in newest() and "other" in newest())
    second.trial_ended(failed(0))
    until(lambda: "ValueError: units" in stream.getvalue())
    assert "other:" in stream.getvalue()
    first.close()
    until(lambda: "other" in newest())
    second.close()
    assert not STREAMS._terminals


class Terminal(io.StringIO):
    """A terminal."""

    def isatty(self) -> bool:
        return True


def test_lines() -> None:
    stream = io.StringIO()
    shown = LineDisplay(stream)
    shown.start()
    shown.print_line("mnist: metric accuracy, higher is better")
    shown.update(progress(seconds=1.0, done=2))
    shown.trial_ended(succeeded(0))
    shown.trial_ended(failed(1))
    shown.close()
    lines = stream.getvalue().splitlines()
    assert lines[0] == "mnist: metric accuracy, higher is better"
    assert "[0:01] trial 0 succeeded in 1.0 s: accuracy 0.5000" in lines
    assert "[0:01] trial 1 failed after 1.0 s: ValueError: units" in lines
    assert lines.count("[0:01] mnist: 2 of 2 trials done, 0 running, 0 queued; agents 0 of 0") == 1


def gang(seconds: float, *causes: Restart) -> Progress:
    members = tuple(
        MemberLine(rank=rank, host=f"gpu-{rank}", role=Role.WORKER, state=MemberState.TRAINING, step=int(seconds))
        for rank in range(2)
    )
    trial = RunningTrial(id=TrialId(0), params={}, seconds=seconds, members=members)
    return Progress(
        name="big", total=1, done=0, running=1, queued=0, failed=0, lost=0, seconds=seconds, eta_s=None,
        running_trials=(trial,), gang=2, causes=causes, restarts=len(causes),
    )  # fmt: skip


RESTARTS = [
    Restart(rank, "gpu-1", FailureKind.SIGNAL, "killed by SIGKILL", 1.2, steps_lost=40 + rank) for rank in range(2)
]


def test_lines_of_a_gang() -> None:
    lines = lines_of(gang(5.0), gang(20.0), gang(70.0, RESTARTS[0]), gang(304.0), gang(370.0, RESTARTS[0]))
    assert lines == [
        "[0:05] big: gang of 2, 2 training; step 5; agents 0 of 0",
        "    rank 0 on gpu-0 training: step 5",
        "    rank 1 on gpu-1 training: step 5",
        "[1:10] big: gang of 2, 2 training; step 70; agents 0 of 0, 1 restart",
        "[5:04] big: gang of 2, 2 training; step 304; agents 0 of 0",
        "[6:10] big: gang of 2, 2 training; step 370; agents 0 of 0, 1 restart",
        "    rank 0 on gpu-0 training: step 370",
        "    rank 1 on gpu-1 training: step 370",
    ]


def test_a_gang_in_which_nothing_happens_has_a_line_each_five_minutes() -> None:
    lines = lines_of(*(gang(float(second)) for second in range(900)))
    assert [line.split("]")[0] for line in lines if line.startswith("[")] == ["[0:00", "[5:00", "[10:00"]


def test_each_restart_is_shown_once_however_many_come_at_a_time() -> None:
    stream = io.StringIO()
    shown = LineDisplay(stream)
    for update in (gang(5.0), gang(6.0, *RESTARTS), gang(7.0, *RESTARTS)):
        shown.update(update)
        shown._show()
    restarts = [line for line in stream.getvalue().splitlines() if "restart " in line]
    assert restarts == [
        "[0:06] restart 1: rank 0 on gpu-1: killed by SIGKILL; 1.2 s, 40 steps repeated",
        "[0:06] restart 2: rank 1 on gpu-1: killed by SIGKILL; 1.2 s, 41 steps repeated",
    ]


def test_the_last_state_is_always_told() -> None:
    stream = io.StringIO()
    shown = LineDisplay(stream)
    shown.start()
    shown.update(progress(seconds=1.0))
    shown.update(progress(seconds=2.0, done=2))
    shown.close()
    assert "2 of 2 trials done" in stream.getvalue().splitlines()[-1]


def test_status_lines_keep_their_distance() -> None:
    lines = lines_of(*(progress(seconds=second, note=f"note {second}") for second in range(35)))
    assert [line.split("]")[0] for line in lines] == ["[0:00", "[0:10", "[0:20", "[0:30"]


def test_status_lines_that_say_the_same_keep_a_greater_distance() -> None:
    lines = lines_of(*(progress(seconds=second) for second in range(650)))
    assert lines == [f"[{time}] {STATUS}; about 0:05 left" for time in ("0:00", "5:00", "10:00")]


def test_lines_in_a_stream_that_knows_only_ascii() -> None:
    raw = io.BytesIO()
    shown = LineDisplay(io.TextIOWrapper(raw, encoding="ascii"))
    shown.start()
    shown.update(progress(note="größe"))
    shown.close()
    assert b"gr\\xf6\\xdfe" in raw.getvalue()


class Broken(io.StringIO):
    def __init__(self) -> None:
        super().__init__()
        self.writes = 0

    def write(self, text: str) -> int:
        self.writes += 1
        raise BrokenPipeError

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("kind", [LineDisplay, TerminalDisplay])
@pytest.mark.filterwarnings("error")
def test_a_broken_stream_hurts_nobody(
    kind: type[LineDisplay | TerminalDisplay], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    stream = Broken()
    shown = kind(stream)
    shown.start()
    for second in range(20):
        shown.update(progress(seconds=second * 20))
        shown.trial_ended(failed(second))
    shown.close()
    assert stream.writes > 0
    shown.close()


class Stuck(io.StringIO):
    def __init__(self) -> None:
        super().__init__()
        self.reached = threading.Event()
        self.released = threading.Event()

    def write(self, text: str) -> int:
        self.reached.set()
        self.released.wait(60)
        return super().write(text)


def test_close_does_not_wait_for_a_stuck_stream() -> None:
    stream = Stuck()
    shown = LineDisplay(stream, close_timeout_s=0.01)
    shown.start()
    shown.update(progress())
    assert stream.reached.wait(60)
    shown.update(progress(seconds=60.0, done=1))
    shown.trial_ended(succeeded(0))
    shown.close()
    assert stream.getvalue() == ""
    stream.released.set()
    assert shown._thread is not None
    shown._thread.join(60)


@pytest.fixture
def terminal() -> Iterator[tuple[io.TextIOWrapper, int]]:
    reading, writing = pty.openpty()
    with os.fdopen(writing, "w", encoding="utf-8") as stream:
        yield stream, reading
    os.close(reading)


def written_by(shown: TerminalDisplay, reading: int) -> str:
    """All that it has written: a terminal blocks until it is read, and a busy machine is slow to draw."""
    assert shown._thread is not None
    parts = []
    while shown._thread.is_alive() or select.select([reading], [], [], 0)[0]:
        if select.select([reading], [], [], 0.05)[0]:
            parts.append(os.read(reading, 1 << 16))
    return b"".join(parts).decode()


def test_a_terminal(terminal: tuple[io.TextIOWrapper, int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    stream, reading = terminal
    shown = TerminalDisplay(stream)
    shown.start()
    shown.update(progress())
    for number in range(9):
        shown.trial_ended(failed(number))
    shown.update(progress(seconds=83.0, done=2))
    shown.close()
    written = written_by(shown, reading)
    assert written.count("ValueError: units") == 3
    assert written.count("further trials with this cause are only counted") == 1
    assert "\x1b[?25l" in written
    assert written.rindex("\x1b[?25h") > written.rindex("\x1b[?25l")
    assert "2 of 2 trials done" in written.splitlines()[-1]
    assert "in 1:23" in written.splitlines()[-1]


def test_restarts_stay_above_the_picture_of_a_terminal(
    terminal: tuple[io.TextIOWrapper, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    stream, reading = terminal
    shown = TerminalDisplay(stream)
    shown.start()
    shown.update(gang(5.0, *RESTARTS))
    shown.close()
    written = written_by(shown, reading)
    for rank in range(2):
        assert written.count(f"restart {rank + 1}: rank {rank} on gpu-1: killed by SIGKILL; 1.2 s") == 1
    assert "gang of 2" in written.splitlines()[-1]


@pytest.mark.parametrize("make", [lambda stream: NullDisplay(), LineDisplay], ids=["null", "lines"])
def test_a_display_without_events_prints_nothing(
    make: Callable[[TextIO], Display], capfd: pytest.CaptureFixture[str]
) -> None:
    stream = io.StringIO()
    shown = make(stream)
    shown.start()
    shown.close()
    assert (stream.getvalue(), *capfd.readouterr()) == ("", "", "")
