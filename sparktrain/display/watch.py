"""Watches a run from outside: one picture in a terminal, otherwise a line or a JSON object for each change."""

from collections.abc import Callable
from typing import Any, TextIO

from rich.live import Live
from rich.text import Text

from sparktrain.base import formatting
from sparktrain.base.clock import Clock, pause
from sparktrain.display.shared_stream import SteadyConsole
from sparktrain.display.status_json import run_json
from sparktrain.display.status_view import StatusScreen, status_line
from sparktrain.runs.view import RunState, RunView


def watch(look: Callable[[], RunView], show: Callable[[RunView], None], every_s: float) -> RunView:
    """Look at a run every `every_s`, and show it until it has ended; the last view. Blocks. Raises as both do."""
    while True:
        view = look()
        show(view)
        if view.state is RunState.ENDED:
            return view
        pause(every_s)


def watch_live(look: Callable[[], RunView], stream: TextIO, clock: Clock, every_s: float) -> RunView:
    """Watch a run in a picture that changes in place in the terminal `stream` and is removed at the end."""
    console = SteadyConsole(file=stream, highlight=False, force_jupyter=False)
    with Live(
        Text(""), console=console, auto_refresh=False, transient=True, redirect_stdout=False, redirect_stderr=False
    ) as live:
        return watch(look, lambda view: live.update(StatusScreen(view, clock.wall()), refresh=True), every_s)


class Changes:
    """Prints a status line for each change of a run, and the URL of its TensorBoard."""

    def __init__(self, write: Callable[[str], None]) -> None:
        self._write = write
        self._last = ""
        self._board: str | None = None

    def show(self, view: RunView) -> None:
        """Show this view."""
        # The lines of a driver in a container are in that container's log: people see the URL here.
        if view.driver.board not in (None, self._board):
            self._board = view.driver.board
            self._write(f"{formatting.plain(view.name)}: TensorBoard: {formatting.plain(str(view.driver.board))}")
        line = status_line(view)
        if line != self._last:
            self._last = line
            self._write(line)


class Documents:
    """Prints a JSON object for each change of a run."""

    def __init__(self, write: Callable[[dict[str, Any]], None]) -> None:
        self._write = write
        self._last: dict[str, Any] = {}

    def show(self, view: RunView) -> None:
        """Show this view."""
        document = run_json(view)
        if document != self._last:
            self._last = document
            self._write(document)
