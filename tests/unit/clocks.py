"""Clocks for tests: none of them waits."""

import asyncio
import math

from sparktrain.base.clock import Clock


class InstantClock(Clock):
    """A clock with pauses that take no time, for code that blocks its thread."""

    def __init__(self) -> None:
        self.at = 100.0
        self.pauses: list[float] = []

    def now(self) -> float:
        return self.at

    def pause(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.at += seconds


class HandClock(Clock):
    """A clock for code on an event loop, that only `advance` moves."""

    def __init__(self) -> None:
        self.at = 0.0
        self._sleepers: list[tuple[float, asyncio.Future[None]]] = []

    def now(self) -> float:
        return self.at

    def wall(self) -> float:
        return self.at

    async def sleep(self, seconds: float) -> None:
        woken = asyncio.get_running_loop().create_future()
        self._sleepers.append((self.at + seconds, woken))
        await woken

    async def advance(self, seconds: float) -> None:
        """Let time pass, second by second, and run everything that becomes due; seconds without that are skipped."""
        until, step = self.at + seconds, 1.0
        while self.at < until:
            self.at = min(until, self.at + step)
            self._sleepers, due = [], self._sleepers
            for at, woken in due:
                if at > self.at:
                    self._sleepers.append((at, woken))
                elif not woken.done():
                    woken.set_result(None)
            await settle()
            next_at = min((at for at, _ in self._sleepers), default=until)
            step = max(1.0, math.ceil(next_at - self.at))


async def settle() -> None:
    for _ in range(50):
        await asyncio.sleep(0)
