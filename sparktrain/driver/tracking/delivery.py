"""Passes events to one callback, in a thread of its own."""

import logging
import os
import threading
from collections import deque
from collections.abc import Callable
from itertools import count
from typing import Any

from sparktrain.base import formatting
from sparktrain.base.boundary import users_error
from sparktrain.base.clock import SystemClock
from sparktrain.base.threads import spawn
from sparktrain.driver.tracking.callback import TrackedReport, TrackedTrial

MOST_REPORTS = 100_000
"""How many reports wait for a callback that is slow."""

LOOK_S = 0.2
"""Interval at which the end of a run looks whether a callback is stuck."""

logger = logging.getLogger("sparktrain")

_Call = tuple[str, tuple[Any, ...]]


class Delivery:
    """The events that wait for one callback, and the thread that calls it. Any thread may call its methods.

    `close` alone blocks.
    """

    def __init__(self, callback: Any, most_reports: int = MOST_REPORTS) -> None:
        self._callback = callback
        self._most = most_reports
        self._gather_s = float(getattr(callback, "gather_s", 0.0))
        self._wake = threading.Condition()
        self._numbers = count()
        self._events: deque[tuple[int, _Call]] = deque()
        # Apart from the events, which are never dropped. The numbers keep the order of both.
        self._reports: deque[tuple[int, TrackedTrial, TrackedReport]] = deque()
        self._dropped = self._named = 0
        self._errors = 0
        self._deadline: float | None = None
        """When `close` stops waiting, by the clock; None before."""
        self._current: tuple[str, float] | None = None
        """The method that it is in, and since when."""
        self._process = os.getpid()
        self._flushed = threading.Event()
        spawn(self._work, f"sparktrain-callback-{self.name}")

    @property
    def name(self) -> str:
        """The class of the callback, for messages."""
        return type(self._callback).__name__

    def add(self, method: str, event: Any) -> None:
        """Have `method` called with `event`, which is never dropped."""
        with self._wake:
            self._events.append((next(self._numbers), (method, (event,))))
            self._wake.notify()

    def report(self, trial: TrackedTrial, reports: tuple[TrackedReport, ...]) -> None:
        """Have `reported` called; the oldest reports make room."""
        with self._wake:
            self._reports.extend((next(self._numbers), trial, tracked_report) for tracked_report in reports)
            while len(self._reports) > self._most:
                self._reports.popleft()
                self._dropped += 1
            self._wake.notify()

    def expect_end(self, timeout_s: float) -> None:
        """No more events come, and what waits has this time. Does not block."""
        with self._wake:
            if self._deadline is None:
                self._deadline = SystemClock().now() + timeout_s
            self._wake.notify()

    def close(self, timeout_s: float, stuck_s: float | None = None) -> bool:
        """Let the callback handle what waits, and flush; returns whether it did so in time. Blocks for that time, and
        not for a callback that is in one method for more than `stuck_s` seconds."""
        self.expect_end(timeout_s)
        clock = SystemClock()
        deadline = clock.now() + timeout_s
        while not self._flushed.wait(min(LOOK_S, max(0.0, deadline - clock.now()))):
            current = self._current
            stuck = stuck_s is not None and current is not None and clock.now() > current[1] + stuck_s
            if stuck or clock.now() >= deadline:
                self._name_left(clock.now())
                return False
        self._name_dropped()
        return True

    def _name_left(self, now: float) -> None:
        """Name what the callback did not handle, and where it is."""
        current = self._current
        where = f": it is in {current[0]} for {formatting.duration(now - current[1])}" if current is not None else ""
        logger.warning(
            "callback %s has not handled its last events in time%s; %d later events and %d reports are left out, and "
            "no other callback misses any",
            self.name, where, len(self._events), len(self._reports),
        )  # fmt: skip
        self._name_dropped()

    def _work(self) -> None:
        while calls := self._next():
            self._name_dropped()
            for method, arguments in calls:
                self._call(method, *arguments)
        deadline = self._deadline or 0.0
        self._call("flush", max(0.0, deadline - SystemClock().now()))
        if self._errors > 1:
            logger.warning("callback %s has raised %d errors in all", self.name, self._errors)
        self._flushed.set()

    def _next(self) -> list[_Call]:
        """The next calls; none when all is done. Blocks until there are some."""
        with self._wake:
            self._wake.wait_for(lambda: self._events or self._reports or self._deadline is not None)
            if self._reports and self._gather_s and not self._events:
                self._wake.wait_for(lambda: self._events or self._deadline is not None, self._gather_s)
            first = self._events[0][0] if self._events else None
            if not self._reports or (first is not None and first < self._reports[0][0]):
                return [self._events.popleft()[1]] if self._events else []
            together: dict[int, tuple[TrackedTrial, list[TrackedReport]]] = {}
            while self._reports and (first is None or self._reports[0][0] < first):
                _, trial, report = self._reports.popleft()
                together.setdefault(id(trial), (trial, []))[1].append(report)
            return [("reported", (trial, tuple(reports))) for trial, reports in together.values()]

    def _call(self, method: str, *arguments: Any) -> None:
        """Call a method of the user. Whatever it raises is its own: sys.exit() would end the thread of its events."""
        self._current = method, SystemClock().now()
        try:
            called: Callable[..., object] | None = getattr(self._callback, method, None)
            if called is not None:
                called(*arguments)
        except BaseException as error:
            self._raised(method, error)
        finally:
            self._current = None
            if os.getpid() != self._process:  # a fork of the driver must not continue as one
                os._exit(0)

    def _raised(self, method: str, error: BaseException) -> None:
        self._errors += 1
        if self._errors == 1 and os.getpid() == self._process:
            logger.warning(
                "callback %s has raised %s in %s; the run continues, and further errors of it are only counted",
                self.name, type(error).__name__, method, exc_info=users_error(error),
            )  # fmt: skip

    def _name_dropped(self) -> None:
        with self._wake:
            drop_count = self._dropped - self._named
            self._named = self._dropped
        if drop_count:
            logger.warning("callback %s is slow: %d reports were dropped, the oldest first", self.name, drop_count)
