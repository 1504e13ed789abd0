"""`sparktrain top` in a terminal: a pty that this test reads and types into."""

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from pathlib import Path

import pytest

from sparktrain.base.clock import SystemClock
from tests.unit.driver.stored import ScriptedRun, typical

WITHIN_S = 60.0


class Terminal:
    """The process, and what it has drawn since the newest key."""

    def __init__(self, directory: str, rows: int = 24, columns: int = 100) -> None:
        self._end, side = pty.openpty()
        fcntl.ioctl(side, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        line = [sys.executable, "-m", "sparktrain", "top", directory]
        # Rich believes the variables before the terminal.
        env = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
        env["TERM"] = "xterm-256color"
        self.process = subprocess.Popen(line, stdin=side, stdout=side, stderr=side, env=env, start_new_session=True)
        self.before = termios.tcgetattr(side)
        self._side = side
        self._drawn = ""

    def press(self, keys: str) -> None:
        """Type keys."""
        self._drawn = ""
        os.write(self._end, keys.encode())

    def wait_for(self, text: str) -> str:
        """Wait until `text` is drawn, and return what was drawn."""
        clock = SystemClock()
        deadline = clock.now() + WITHIN_S
        while text not in self._drawn:
            assert clock.now() < deadline, f"{text!r} is not drawn: {self._drawn[-3000:]!r}"
            if select.select([self._end], [], [], 0.1)[0]:
                self._drawn += os.read(self._end, 65536).decode(errors="replace")
        return self._drawn

    @property
    def mode(self) -> list[object]:
        """How the terminal treats input."""
        return termios.tcgetattr(self._side)[3:4]

    def close(self) -> None:
        """End everything."""
        self.process.kill()
        self.process.wait()
        os.close(self._end)
        os.close(self._side)


@pytest.fixture
def run(tmp_path: Path) -> ScriptedRun:
    return typical(tmp_path / "runs")


@pytest.fixture
def terminal(run: ScriptedRun) -> Iterator[Terminal]:
    opened = Terminal(run.directory)
    yield opened
    opened.close()


def test_a_run_on_the_full_screen(terminal: Terminal, run: ScriptedRun) -> None:
    drawn = terminal.wait_for("q quit")
    assert "its driver is gone" in drawn
    assert "best accuracy 0.9000 in trial 0" in drawn
    terminal.press("\x1b[B")
    terminal.wait_for("2/4 by trial")
    terminal.press("s")
    terminal.wait_for("by status")
    terminal.press("f")
    terminal.wait_for("queued alone")
    terminal.press("f")
    terminal.wait_for("1/1 by status, running alone")
    terminal.press("\r")
    assert "log of trial 2" in terminal.wait_for("second")
    terminal.press("q")
    terminal.wait_for("q quit")
    terminal.press("x")
    terminal.wait_for("nothing to stop")
    run.succeed(2, accuracy=0.95)
    terminal.wait_for("best accuracy 0.9500 in trial 2")
    terminal.press("q")
    assert terminal.process.wait(WITHIN_S) == 0
    assert terminal.mode == terminal.before[3:4]


def test_ctrl_c_gives_the_terminal_back(terminal: Terminal) -> None:
    terminal.wait_for("q quit")
    terminal.process.send_signal(signal.SIGINT)
    terminal.wait_for("\x1b[?1049l")
    assert terminal.process.wait(WITHIN_S) == 130
    assert terminal.mode == terminal.before[3:4]


def test_a_pipe_is_refused_with_what_to_use(run: ScriptedRun) -> None:
    line = [sys.executable, "-m", "sparktrain", "top", run.directory]
    done = subprocess.run(line, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert "use sparktrain status DIR --watch" in done.stderr
