"""The choice of a display."""

import io
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from sparktrain.display.live import LineDisplay, NotebookDisplay, TerminalDisplay, choose_display
from sparktrain.display.progress import NullDisplay


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
