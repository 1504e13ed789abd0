"""Processes that a test started: their pids, and whether they have ended."""

import os
import signal
from collections.abc import Callable, Iterable
from pathlib import Path

import psutil

from sparktrain.clock import SystemClock, pause

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
    """Processes identified by pid and start: a reused pid is another process."""

    def __init__(self, pids: Iterable[int]) -> None:
        self.processes = [psutil.Process(pid) for pid in pids]

    def alive(self) -> list[psutil.Process]:
        """Those that still run; a zombie does not."""
        return [each for each in self.processes if each.is_running() and each.status() != psutil.STATUS_ZOMBIE]

    def wait_gone(self, timeout_s: float) -> float:
        """Wait until none runs; how many seconds that took."""

        def gone() -> bool:
            try:
                return not self.alive()
            except psutil.NoSuchProcess:
                return False

        try:
            return wait_until(gone, timeout_s, "every process is gone")
        except AssertionError:
            left = [" ".join(each.cmdline())[:120] + f" (pid {each.pid})" for each in self.alive()]
            raise AssertionError(f"still running after {timeout_s:g} s: {left}") from None

    def kill(self) -> None:
        """End what is left, by id: for the clean-up of a failed test."""
        for each in self.processes:
            if each.is_running():
                each.kill()


def descendants(pid: int, words: str = "") -> list[psutil.Process]:
    """Processes below `pid` with `words` in their command line."""
    found = []
    for each in psutil.Process(pid).children(recursive=True):
        try:
            if words in " ".join(each.cmdline()):
                found.append(each)
        except psutil.NoSuchProcess:
            continue
    return found


def written_pids(folder: Path) -> list[int]:
    """The pids that training functions wrote as names of files into `folder`."""
    return [int(path.name) for path in folder.iterdir() if path.name.isdigit()]


def kill(pid: int) -> None:
    """SIGKILL to one process, by id."""
    os.kill(pid, signal.SIGKILL)
