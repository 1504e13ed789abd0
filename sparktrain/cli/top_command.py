"""`sparktrain top DIR`: a run on the full screen, with keys."""

import os
import select
import signal
import sys
import termios
import threading
import tty
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from sparktrain.cli import common
from sparktrain.cli.common import Output
from sparktrain.cli.flags import Debug, Directory, with_help
from sparktrain.errors import SpecError

if TYPE_CHECKING:
    from sparktrain.display.top_screen import TopKey
    from sparktrain.runs.locate import RunLocation
    from sparktrain.runs.watcher import Observer

EXAMPLES = """\
A run that trains, or has ended, in any store:
  sparktrain top hdfs:///runs/mnist
"""
EVERY_S = 2.0
"""Time between two looks at the run."""
_DRAW_S = 0.5
"""Time between two pictures while no key is pressed."""
_LOG_LINES = 200
# Terminals send cursor keys as ESC O in place of ESC [ while they are in application mode.
_SEQUENCES = {
    b"\x1b[A": "UP", b"\x1bOA": "UP", b"k": "UP", b"\x1b[B": "DOWN", b"\x1bOB": "DOWN", b"j": "DOWN",
    b"\x1b[5~": "PAGE_UP", b"\x1b[6~": "PAGE_DOWN", b" ": "PAGE_DOWN",
    b"\x1b[H": "HOME", b"\x1b[1~": "HOME", b"g": "HOME", b"\x1b[F": "END", b"\x1b[4~": "END", b"G": "END",
    b"s": "SORT", b"f": "FILTER", b"l": "LOG", b"\r": "LOG", b"\n": "LOG", b"x": "STOP", b"y": "YES",
    b"q": "QUIT", b"\x1b": "QUIT",
}  # fmt: skip


@with_help(EXAMPLES)
def top(directory: Directory, debug: Debug = False) -> int:
    """Show a run on the full screen: sort and filter its trials, follow their logs, stop it. Writes nothing."""
    return common.look(lambda out: show_top(out, directory), as_json=False, debug=debug)


def show_top(out: Output, directory: str) -> int:
    """Show the run until a key ends it. Blocks. Raises SpecError where there is no terminal."""
    from sparktrain.base.clock import SystemClock
    from sparktrain.runs.locate import LOOK_TIMEOUT_S, run_in
    from sparktrain.runs.watcher import Observer

    if not (out.terminal and sys.stdin.isatty()):
        raise SpecError(
            "sparktrain top needs a terminal for its screen and its keys: use sparktrain status DIR --watch"
        )
    place = run_in(directory, LOOK_TIMEOUT_S)
    _Top(place, Observer(place, SystemClock())).run()
    return 0


class _Top:
    """The screen in the calling thread, and looks at the store in another one: a slow store delays no key."""

    def __init__(self, place: "RunLocation", observer: "Observer") -> None:
        from sparktrain.base.clock import SystemClock
        from sparktrain.display.top_screen import TopScreen

        self._clock = SystemClock()
        self._place = place
        self._observer = observer
        self._view = observer.look()
        self._screen: TopScreen = TopScreen(self._view, self._clock.wall())
        self._logs: tuple[int, str] | None = None
        self._problem = ""
        self._over = threading.Event()
        self._look_requested = threading.Event()

    def run(self) -> None:
        """Draw, and answer keys, until one ends it. Blocks."""
        from rich.live import Live

        from sparktrain.base.threads import spawn
        from sparktrain.display.shared_stream import SteadyConsole

        console = SteadyConsole(file=sys.stdout, highlight=False, force_jupyter=False)
        live = Live(
            self._screen, console=console, screen=True, auto_refresh=False, redirect_stdout=False, redirect_stderr=False
        )
        with _keys():
            try:
                live.start()
                spawn(self._look, "sparktrain-top")
                while not self._answer():
                    self._refresh()
                    live.refresh()
            finally:  # also where Ctrl-C comes while it starts
                self._over.set()
                self._look_requested.set()
                live.stop()

    def _answer(self) -> bool:
        """Wait for a key until the next picture, and answer all that were pressed; whether one ends the screen."""
        from sparktrain.display.top_screen import TopAction

        if not select.select([sys.stdin.fileno()], [], [], _DRAW_S)[0]:
            return False
        for key in keys_in(os.read(sys.stdin.fileno(), 1024)):
            match self._screen.press(key):
                case TopAction.QUIT:
                    return True
                case TopAction.STOP:
                    self._stop()
        self._look_requested.set()
        return False

    def _refresh(self) -> None:
        self._screen.update(self._view, self._clock.wall())
        if self._logs is not None and self._logs[0] == self._screen.log:
            self._screen.log_text = self._logs[1]
        if self._problem:
            self._screen.show_message(self._problem)

    def _look(self) -> None:
        """Look at the run, and read the log that is shown, until the screen ends."""
        while not self._over.is_set():
            try:
                self._view = self._observer.look()
                if (trial := self._screen.log) is not None:
                    self._logs = trial, _log(self._place, trial)
                self._problem = ""
            except (OSError, SpecError) as error:
                self._problem = f"{error}"
            self._look_requested.wait(EVERY_S)
            self._look_requested.clear()

    def _stop(self) -> None:
        """Interrupt the driver, which runs on this host."""
        driver = self._view.driver.identity
        assert driver is not None
        try:
            os.kill(driver.pid, signal.SIGINT)
            self._screen.show_message("the driver was interrupted: it stops the run")
        except OSError as error:
            self._screen.show_message(f"process {driver.pid} cannot be interrupted: {error.strerror}")


def keys_in(pressed: bytes) -> "Iterator[TopKey]":
    """The keys in what a terminal has sent."""
    from sparktrain.display.top_screen import TopKey

    while pressed:
        sequence = max((code for code in _SEQUENCES if pressed.startswith(code)), key=len, default=pressed[:1])
        pressed = pressed[len(sequence) :]
        yield TopKey[_SEQUENCES.get(sequence, "OTHER")]


@contextmanager
def _keys() -> Iterator[None]:
    """The terminal gives each key at once, and shows none. Ctrl-C still interrupts."""
    descriptor = sys.stdin.fileno()
    attributes = termios.tcgetattr(descriptor)
    try:
        tty.setcbreak(descriptor)
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, attributes)


def _log(place: "RunLocation", trial: int) -> str:
    """The last lines of the chief's newest log."""
    from sparktrain.base.ids import TrialId
    from sparktrain.runs.logs import LogSelection, TerminalSanitizer, chosen, content, logs_in

    logs = chosen(logs_in(place, TrialId(trial)), LogSelection(TrialId(trial)))
    if not logs:
        return "there is no log yet"
    clean = TerminalSanitizer()
    return b"".join(map(clean, content(place.store, logs[-1], _LOG_LINES))).decode()
