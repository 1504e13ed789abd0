"""Processes that a test started: their pids, and whether they have ended."""

import os
import signal
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

import psutil

from sparktrain.base.clock import SystemClock, pause

POLL_S = 0.02


def wait_until(condition: Callable[[], object], timeout_s: float, what: str) -> float:
    """Poll `condition` until it holds; returns the seconds that took. AssertionError, with `what`, when it does not."""
    clock = SystemClock()
    started_at = clock.now()
    while not condition():
        waited = clock.now() - started_at
        assert waited < timeout_s, f"{what}: not within {timeout_s:g} s"
        pause(POLL_S)
    return clock.now() - started_at


class Sighted:
    """Processes identified by pid and start: a reused pid is another process.

    One that ended between its listing and this sight is gone already, and is not among `processes`.
    """

    def __init__(self, pids: Iterable[int]) -> None:
        self.processes: list[psutil.Process] = []
        for pid in pids:
            with suppress(psutil.NoSuchProcess):
                self.processes.append(psutil.Process(pid))

    def alive(self) -> list[psutil.Process]:
        """Those that still run; a zombie does not."""
        return [each for each in self.processes if _runs(each)]

    def wait_gone(self, timeout_s: float) -> float:
        """Wait until none runs; how many seconds that took."""
        try:
            return wait_until(lambda: not self.alive(), timeout_s, "every process is gone")
        except AssertionError:
            left = [f"{_command(each)} (pid {each.pid})" for each in self.alive()]
            raise AssertionError(f"still running after {timeout_s:g} s: {left}") from None

    def kill(self) -> None:
        """End what is left, by id: for the clean-up of a failed test."""
        for each in self.processes:
            with suppress(psutil.NoSuchProcess):
                each.kill()


def _runs(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:  # it ended between the two questions
        return False


def _command(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())[:120]
    except psutil.NoSuchProcess:
        return "a process that has just ended"


def descendants(pid: int, words: str = "") -> list[psutil.Process]:
    """Processes below `pid` with `words` in their command line; none when `pid` has ended."""
    found = []
    with suppress(psutil.NoSuchProcess):
        for each in psutil.Process(pid).children(recursive=True):
            with suppress(psutil.NoSuchProcess):
                if words in " ".join(each.cmdline()):
                    found.append(each)
    return found


def written_pids(folder: Path) -> list[int]:
    """The pids that training functions wrote as names of files into `folder`."""
    return [int(path.name) for path in folder.iterdir() if path.name.isdigit()]


def kill(pid: int) -> None:
    """SIGKILL to one process, by id."""
    os.kill(pid, signal.SIGKILL)
