"""Processor time of tests, with all processes that they start."""

from contextlib import suppress

import psutil


class CpuTime:
    """The processor time of this process and of those below it. An orphan counts as long as it has a parent here."""

    def __init__(self) -> None:
        self._until_now = _total_s()

    def lap(self) -> float:
        """The seconds of a core since the last call."""
        before = self._until_now
        self._until_now = _total_s()
        return self._until_now - before


def _total_s() -> float:
    process = psutil.Process()
    seconds = 0.0
    for member in (process, *process.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):  # then its parent counts it
            times = member.cpu_times()
            seconds += times.user + times.system + times.children_user + times.children_system
    return seconds
