"""Time as a parameter: the only module that reads the clock or sleeps."""

import time
from typing import Protocol


class Clock(Protocol):
    """A source of time. Tests pass one that they advance, or with pauses that take no time."""

    def now(self) -> float:
        """Seconds on a monotonic clock that also counts while the machine is suspended."""
        ...

    def wall(self) -> float:
        """Seconds since 1970, for people to read; never compared between hosts."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait for `seconds` without blocking the thread."""
        ...

    def pause(self, seconds: float) -> None:
        """Block the calling thread for `seconds`."""
        ...


class SystemClock:
    """The machine's clock."""

    def now(self) -> float:
        """See base class."""
        return time.clock_gettime(time.CLOCK_BOOTTIME)

    def wall(self) -> float:
        """See base class."""
        return time.time()

    async def sleep(self, seconds: float) -> None:
        """See base class."""
        import asyncio  # not for commands that only read the clock: it is a tenth of their start

        await asyncio.sleep(seconds)

    def pause(self, seconds: float) -> None:
        """See base class."""
        pause(seconds)

    def stamp(self) -> str:
        """The local date and time, for names: `20260131-235959`."""
        return time.strftime("%Y%m%d-%H%M%S", time.localtime(self.wall()))


now_ns = time.monotonic_ns
"""Nanoseconds of a clock that never jumps, for what is noted in each step: without a call of Python around it."""

thread_ns = time.thread_time_ns
"""Nanoseconds that a processor has spent in this thread."""


def time_of_day(wall: float) -> str:
    """Format seconds since 1970 as `2026-01-31 23:59:59`, in local time."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(wall))


def pause(seconds: float) -> None:
    """Block the calling thread for `seconds`; for code that runs outside of an event loop."""
    time.sleep(seconds)


def thread_cpu_s() -> float:
    """Seconds of CPU that the calling thread has used."""
    return time.thread_time()
