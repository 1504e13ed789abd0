"""When an agent ends that has notice: once it is idle, cut off or out of time, and at once with a dead executor."""

import asyncio
import os
import signal
import subprocess
import sys

import pytest

from sparktrain.base.clock import SystemClock
from sparktrain.executor.departure import EXECUTOR_GRACE_S, IDLE_S, TERM_GRACE_S, Departure, LossNotice

NOTICE = LossNotice("SIGTERM", TERM_GRACE_S, signal.SIGTERM)


class QuickClock(SystemClock):
    """A clock that moves by each sleep."""

    def __init__(self) -> None:
        self.at = 0.0

    def now(self) -> float:
        return self.at

    async def sleep(self, seconds: float) -> None:
        self.at += seconds
        await asyncio.sleep(0)


@pytest.mark.parametrize(
    ("busy_until", "cut_at", "end"),
    [(0.0, 99.0, IDLE_S), (7.0, 99.0, 7.0 + IDLE_S), (99.0, 99.0, TERM_GRACE_S), (99.0, 3.0, 3.0), (99.0, 0.0, 0.0)],
    ids=["idle", "busy for a while", "out of time", "cut off", "never connected"],
)
async def test_an_agent_with_notice_ends(busy_until: float, cut_at: float, end: float) -> None:
    clock = QuickClock()
    departure = Departure(clock)
    departure.announce(NOTICE)
    departure.announce(LossNotice("another", 1.0, signal.SIGHUP))
    assert await departure.due(lambda: clock.at < cut_at, lambda: clock.at < busy_until) == signal.SIGTERM
    assert clock.at == pytest.approx(end, abs=0.25)


async def test_signals_are_notices() -> None:
    departure = Departure(SystemClock(), os.getpid())
    departure.listen()
    loop = asyncio.get_running_loop()
    try:
        os.kill(os.getpid(), signal.SIGHUP)
        await asyncio.wait_for(departure.announced.wait(), 10.0)
        assert departure.notice == LossNotice("SIGTERM to its executor", EXECUTOR_GRACE_S, signal.SIGHUP)
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.sleep(0)
        assert departure.notice.signum == signal.SIGHUP
    finally:
        loop.remove_signal_handler(signal.SIGTERM)
        loop.remove_signal_handler(signal.SIGHUP)


def test_the_hang_up_of_an_executor_that_was_killed_ends_the_process_at_once() -> None:
    program = (
        "import asyncio, os, signal, subprocess\n"
        "from sparktrain.base.clock import SystemClock\n"
        "from sparktrain.executor.departure import Departure\n"
        "async def main():\n"
        "    killed = subprocess.Popen(['sleep', '60'])\n"
        "    killed.kill()\n"
        "    Departure(SystemClock(), killed.pid).listen()\n"
        "    os.kill(os.getpid(), signal.SIGHUP)\n"
        "    await asyncio.sleep(60)\n"
        "asyncio.run(main())\n"
    )
    assert subprocess.run([sys.executable, "-c", program], timeout=30).returncode == -signal.SIGHUP
