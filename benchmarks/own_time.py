"""The time of an event loop that passes only while it works or waits: other load on the machine does not count.

Leases, ticks and heartbeats of a coordinator follow the clock. Where the benchmark gets a tenth of a core, ten times as
many of them would come in a second of its work, and agents would be dropped that it could not attend to.
"""

import asyncio
import selectors
import time
from collections.abc import Coroutine
from typing import Any

from sparktrain.base.clock import SystemClock


class _IdleSelector(selectors.DefaultSelector):
    """Counts the seconds in which the loop waits."""

    def __init__(self) -> None:
        super().__init__()
        self.idle_s = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        started = time.monotonic()
        events = super().select(timeout)
        waited_s = time.monotonic() - started
        # More than the timeout is the wait for a core.
        self.idle_s += waited_s if timeout is None else min(waited_s, max(0.0, timeout))
        return events


class OwnTime(SystemClock):
    """The clock of such a loop: CPU seconds of this process, and those in which its loop waits."""

    def __init__(self) -> None:
        self._selector = _IdleSelector()

    def now(self) -> float:
        """See base class."""
        return time.process_time() + self._selector.idle_s

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Run `work` on a loop of this time; returns its result."""
        loop = asyncio.SelectorEventLoop(self._selector)
        loop.time = self.now  # type: ignore[method-assign]
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            return runner.run(work)
