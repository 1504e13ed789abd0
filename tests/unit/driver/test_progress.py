"""The estimate of the time that is left, and the choice of a display."""

import io
import math
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparktrain.driver.display import LineDisplay, NotebookDisplay, TerminalDisplay, choose_display
from sparktrain.driver.progress import NullDisplay, eta


@pytest.mark.parametrize(
    ("mean", "running", "queued", "slots", "left"),
    [
        (10.0, [], 0, 2, 0.0),
        (10.0, [4.0], 0, 2, 6.0),
        (10.0, [4.0, 9.0], 0, 2, 6.0),
        (10.0, [4.0, 9.0], 1, 2, 11.0),
        (10.0, [4.0, 9.0], 2, 2, 16.0),
        (10.0, [4.0, 9.0], 20, 2, 106.0),
        (10.0, [12.0], 0, 1, 0.0),
        (10.0, [12.0], 3, 1, 30.0),
        (10.0, [], 3, 2, 20.0),
        (10.0, [0.0, 0.0, 0.0], 0, 2, 10.0),
        (None, [4.0], 3, 2, None),
        (10.0, [], 3, 0, None),
    ],
)
def test_eta(mean: float | None, running: list[float], queued: int, slots: int, left: float | None) -> None:
    assert eta(mean, running, queued, slots) == left


@given(st.floats(0.1, 1000), st.lists(st.floats(0, 2000), max_size=6), st.integers(0, 40), st.integers(1, 8))
def test_eta_is_when_the_last_trial_ends(mean: float, running: list[float], queued: int, slots: int) -> None:
    slots = max(slots, len(running))
    free = [max(0.0, mean - seconds) for seconds in running] + [0.0] * (slots - len(running))
    for _ in range(queued):
        first = free.index(min(free))
        free[first] += mean
    left = eta(mean, running, queued, slots)
    assert left is not None
    assert math.isclose(left, max(free), rel_tol=1e-9, abs_tol=1e-9)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_gets_a_picture_and_a_file_gets_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    assert isinstance(choose_display(stream=Terminal()), TerminalDisplay)
    assert isinstance(choose_display(stream=io.StringIO()), LineDisplay)


def test_a_terminal_that_cannot_move_its_cursor_gets_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    assert isinstance(choose_display(stream=Terminal()), LineDisplay)


def test_colours_that_are_forced_make_no_terminal_of_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert isinstance(choose_display(stream=io.StringIO()), LineDisplay)


def test_a_stream_that_is_closed_gets_lines_that_go_nowhere(tmp_path: Path) -> None:
    with open(tmp_path / "closed", "w") as stream:
        pass
    assert isinstance(choose_display(stream=stream), LineDisplay)


def test_whoever_wants_quiet_or_has_no_stderr_gets_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(choose_display(quiet=True), NullDisplay)
    monkeypatch.setattr(sys, "stderr", None)
    assert isinstance(choose_display(), NullDisplay)


def test_the_kernel_of_a_notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = SimpleNamespace(get_ipython=lambda: SimpleNamespace(kernel=object()))
    monkeypatch.setitem(sys.modules, "IPython", kernel)
    assert isinstance(choose_display(), NotebookDisplay)
    assert isinstance(choose_display(stream=io.StringIO()), LineDisplay)


def test_ipython_in_a_terminal_is_no_notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    shell = SimpleNamespace(get_ipython=lambda: SimpleNamespace())
    monkeypatch.setitem(sys.modules, "IPython", shell)
    assert not isinstance(choose_display(), NotebookDisplay)
