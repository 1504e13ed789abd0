"""The departure of an agent: what announces that its process will be gone, and when it ends at the latest.

A cluster manager sends SIGTERM before SIGKILL. To the agent's process itself it is a notice: the agent reports it,
its member moves or finishes meanwhile, and the process ends by that signal, so that Spark starts another agent. An
executor that gets SIGTERM ends its Python processes within 20 ms, by SIGHUP from their daemon, and lives for half a
second longer. The same SIGHUP comes 0.2 s after the executor was killed; then there is nothing to wait for, because
the executor's loss has not been announced.
"""

import asyncio
import os
import signal
import threading
from collections.abc import Callable

from msgspec import Struct

from sparktrain.base import process_tree
from sparktrain.base.clock import Clock

TERM_GRACE_S = 30.0
"""How long an agent stays after SIGTERM: as long as Kubernetes waits before SIGKILL by default."""
EXECUTOR_GRACE_S = 5.0
"""How long an agent stays when its executor ends: it uses memory and GPUs that the cluster may give to others."""
UNLIMITED_S = float("inf")
"""For how long the agent of an executor that Spark decommissions stays: Spark waits for its tasks."""
IDLE_S = 1.0
"""An agent that leaves and has had no member for so long ends: an assignment may have been on its way."""
CRASH_LOOK_S = 0.1
"""After SIGHUP, the time until an executor that was killed is gone."""
_POLL_S = 0.1


class LossNotice(Struct, frozen=True):
    """The announcement that an agent will be lost."""

    text: str
    """What announced it, in a few words."""
    grace_s: float
    signum: int | None = None
    """The signal by which the process ends at last; None where it stays until the host is lost: the next agent would
    find the same notice there."""


class Departure:
    """Receives the notices of one agent's process. All methods belong to its event loop, in the main thread."""

    def __init__(self, clock: Clock, executor: int | None = None) -> None:
        """`executor` is Spark's executor, which this process does not outlive for long; None without one."""
        self._clock = clock
        self._executor = executor
        self._looks: set[asyncio.Task[None]] = set()
        self.notice: LossNotice | None = None
        self.announced = asyncio.Event()
        """Set once there is a notice."""
        self._ends = asyncio.Event()
        """Set once there is one by which the process ends."""

    def listen(self) -> None:
        """Receive the signals of this process in place of their default action.

        Without effect in a thread of a process that does other work: its signals are not for the agent.
        """
        if threading.current_thread() is not threading.main_thread():
            return
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self.announce, LossNotice("SIGTERM", TERM_GRACE_S, signal.SIGTERM))
        if self._executor is not None:
            loop.add_signal_handler(signal.SIGHUP, self._hang_up)

    def announce(self, notice: LossNotice) -> None:
        """Something has announced the end of this process; only the first notice that ends it counts."""
        if not self._ends.is_set():
            self.notice = notice
            self.announced.set()
            if notice.signum is not None:
                self._ends.set()

    async def due(self, is_connected: Callable[[], bool], is_busy: Callable[[], bool]) -> int:
        """Wait for a notice, and until the process has to end; returns the signal by which it does.

        It ends when the agent is not connected to its driver, has had nothing to do for some time, or is out of time.
        """
        await self._ends.wait()
        assert self.notice is not None
        assert self.notice.signum is not None
        until = self._clock.now() + self.notice.grace_s
        busy_at = self._clock.now()
        while is_connected() and self._clock.now() < min(until, busy_at + IDLE_S):
            await self._clock.sleep(_POLL_S)
            if is_busy():
                busy_at = self._clock.now()
        return self.notice.signum

    def _hang_up(self) -> None:
        if not self._ends.is_set() and not self._looks:
            look = asyncio.get_running_loop().create_task(self._look())
            self._looks.add(look)

    async def _look(self) -> None:
        """Distinguish an executor that ends in good order from one that was killed."""
        assert self._executor is not None
        if not _is_gone(self._executor):
            await self._clock.sleep(CRASH_LOOK_S)
        if _is_gone(self._executor):
            end_by(signal.SIGHUP)
        self.announce(LossNotice("SIGTERM to its executor", EXECUTOR_GRACE_S, signal.SIGHUP))


def end_by(signum: int) -> None:
    """End this process by a signal, as if nothing had received it: Spark then starts another agent."""
    signal.signal(signum, signal.SIG_DFL)
    os.kill(os.getpid(), signum)


def _is_gone(pid: int) -> bool:
    return process_tree.process_state(pid) in ("", "X", "Z")
