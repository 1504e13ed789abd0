"""Who of the calls on a pool has its slots: the agents that train, or Spark's tasks that write the data of a call.

An agent is a Spark task that lasts, and tasks that write data need slots, too. Beside agents on all slots Spark would
let these tasks wait for the end of every call, without a deadline. So data is written on slots that no pool has, if
there are any; else the call waits until no other one trains, and those that come meanwhile start once the data is
there. Any number of calls may write at the same time.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from sparktrain.base.clock import Clock, SystemClock
from sparktrain.errors import PoolError

POLL_S = 0.05


class WritingTurns:
    """The turns of one pool. Its methods may be called in any thread; those that block do so in steps of `POLL_S`, so
    that Ctrl-C and SIGTERM reach the main thread."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._training: set[str] = set()
        self._writing: set[str] = set()

    @contextmanager
    def training(self, run: str, timeout_s: float) -> Iterator[None]:
        """Agents may train `run` until the context ends. Blocks while others write their data.

        Raises PoolError when they do for longer than `timeout_s`.
        """
        self._wait(run, self._writing, self._training, timeout_s, lambda others: None, "write their data on its slots")
        try:
            yield
        finally:
            with self._lock:
                self._training.discard(run)

    @contextmanager
    def writing(self, run: str, timeout_s: float, report: Callable[[list[str]], None]) -> Iterator[None]:
        """Spark's tasks may write the data of `run` on all slots until the context ends. Blocks while others train, and
        calls `report` once with their names.

        Raises PoolError when they do for longer than `timeout_s`.
        """
        self._wait(run, self._training, self._writing, timeout_s, report, "train on all slots")
        try:
            yield
        finally:
            with self._lock:
                self._writing.discard(run)

    def _wait(
        self,
        run: str,
        rivals: set[str],
        equals: set[str],
        timeout_s: float,
        report: Callable[[list[str]], None],
        what_they_do: str,
    ) -> None:
        """Wait until there are no `rivals`, then put `run` among its `equals`."""
        until = self._clock.now() + timeout_s
        has_reported = False
        while active_rivals := self._entered(run, rivals, equals):
            if not has_reported:
                has_reported = True
                report(active_rivals)
            if self._clock.now() >= until:
                names = ", ".join(active_rivals)
                raise PoolError(
                    f"run {run!r} has waited {timeout_s:g} s for slots, while other calls {what_they_do} ({names}): "
                    "wait for their end, write the data before them, open the pool with fewer agents than the session "
                    "has slots, or wait longer with start_timeout"
                )
            self._clock.pause(POLL_S)

    def _entered(self, run: str, rivals: set[str], equals: set[str]) -> list[str]:
        """The rivals; where there are none, `run` is one of its `equals` from now on."""
        with self._lock:
            active_rivals = sorted(rivals - {run})
            if not active_rivals:
                equals.add(run)
            return active_rivals
