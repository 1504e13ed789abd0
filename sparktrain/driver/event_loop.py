"""The event loop of all coordinators in this process, in a thread of its own.

One loop, because gRPC's asyncio server supports only one in a process; a thread, because the caller's is a notebook's
or a script's, which blocks in `sweep()`. A caller that waits for the loop learns within a second when it has ended.
"""

import asyncio
import logging
import os
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from functools import partial
from typing import Any, TypeVar

from sparktrain.base.boundary import message_of
from sparktrain.base.clock import SystemClock
from sparktrain.base.threads import spawn
from sparktrain.errors import PoolError

T = TypeVar("T")

WATCH_S = 1.0
"""Interval at which a thread that waits for the loop looks whether it still runs."""
MOST_BREAKS = 10
BREAKS_S = 5.0
"""An event loop that breaks more often than this within so many seconds does not continue: the cause stays."""

logger = logging.getLogger("sparktrain")


class _LoopThread:
    """An event loop and its thread. What ends the loop's turn, such as a SystemExit in a callback, is logged, and the
    loop continues: runs that have nothing to do with it need it."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._process = os.getpid()
        self._cause: BaseException | None = None
        self._thread = spawn(self._serve, "sparktrain-coordinator")

    def check(self) -> None:
        """Raises PoolError when nothing that waits for the loop will ever be done."""
        # A fork has a copy of this object and none of the threads: without this check its calls would wait forever.
        if os.getpid() != self._process:
            raise PoolError(
                f"process {os.getpid()} is a fork of process {self._process}, in which sparktrain was used already, "
                "and has none of its threads: call sparktrain in a process of its own, such as one of "
                "multiprocessing.get_context('spawn')"
            )
        if not self._thread.is_alive():
            cause = self._cause
            why = "it was stopped" if cause is None else f"{type(cause).__name__}: {message_of(cause)}"
            raise PoolError(
                f"the event loop of sparktrain in this process has ended ({why}), and no run continues: start the "
                "program again, and make the same call, or `sparktrain resume`, to continue the run"
            ) from cause

    def _serve(self) -> None:
        clock = SystemClock()
        breaks = deque[float](maxlen=MOST_BREAKS)
        while True:
            try:
                self.loop.run_forever()
                return
            except BaseException as error:
                # A SystemExit in one task once ended the loop of all coordinators, and their callers waited forever.
                self._cause = error
                kind = type(error).__name__
                logger.error("the event loop was interrupted by %s, and continues", kind, exc_info=error)
            breaks.append(clock.now())
            if len(breaks) == MOST_BREAKS and breaks[-1] < breaks[0] + BREAKS_S:
                return


_threads: list[_LoopThread] = []
_making = threading.Lock()
"""When two threads call first at the same time, one makes the loop, and both use it."""


def _loop() -> _LoopThread:
    with _making:
        if not _threads:
            _threads.append(_LoopThread())
        _threads[0].check()
        return _threads[0]


def submit(work: "Coroutine[Any, Any, T]") -> "Future[T]":
    """Run `work` in the coordinators' loop; returns at once. Raises PoolError when the loop has ended."""
    try:
        return asyncio.run_coroutine_threadsafe(work, _loop().loop)
    except BaseException:
        work.close()
        raise


def deliver(act: Callable[[], None], subject: str) -> None:
    """Call `act` in the coordinators' loop without waiting for it; an error of it, or of the loop, is logged."""

    async def work() -> None:
        act()

    try:
        submit(work()).add_done_callback(partial(_log, subject))
    except PoolError as error:
        logger.warning("%s was not done: %s", subject, error)


def wait(running: "Future[T]", timeout_s: float | None = None) -> T:
    """What was submitted, once it is done. Raises what it raises, TimeoutError after `timeout_s`, and PoolError when
    the loop has ended before it."""
    watched = _loop()
    clock = SystemClock()
    deadline = None if timeout_s is None else clock.now() + timeout_s
    while True:
        remaining_s = WATCH_S if deadline is None else min(WATCH_S, max(0.0, deadline - clock.now()))
        try:
            return running.result(remaining_s)
        except TimeoutError:
            # `TimeoutError` has two sources here: this wait, and the work, which raises the same class.
            if running.done():  # the work itself has raised it, or has just ended
                return running.result()
            if deadline is not None and clock.now() >= deadline:
                raise
            watched.check()


def call(work: "Coroutine[Any, Any, T]", timeout_s: float) -> T:
    """Run `work` in the coordinators' loop and wait. Raises as `wait`."""
    return wait(submit(work), timeout_s)


def _log(subject: str, done: "Future[None]") -> None:
    if not done.cancelled() and (error := done.exception()) is not None:
        logger.error("%s has failed: %s: %s", subject, type(error).__name__, message_of(error), exc_info=error)
