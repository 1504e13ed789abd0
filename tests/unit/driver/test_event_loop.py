"""One event loop for all coordinators of this process, whichever thread calls first."""

import asyncio
import os
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from unittest.mock import patch

import pytest

from sparktrain.driver import event_loop
from sparktrain.errors import PoolError

CALLERS = 16


async def own() -> tuple[asyncio.AbstractEventLoop, threading.Thread]:
    return asyncio.get_running_loop(), threading.current_thread()


def test_threads_that_call_first_at_the_same_time_have_one_loop() -> None:
    started = threading.Barrier(CALLERS)
    making = asyncio.new_event_loop

    def slowly() -> asyncio.AbstractEventLoop:
        made = making()
        waiting.wait(0.2)  # the others come meanwhile, for they are let go together
        return made

    def call(number: int) -> tuple[asyncio.AbstractEventLoop, threading.Thread]:
        started.wait(10)
        return event_loop.call(own(), 10)

    waiting = threading.Event()
    with (
        patch.object(event_loop, "_threads", []),
        patch.object(asyncio, "new_event_loop", slowly),
        ThreadPoolExecutor(CALLERS) as threads,
    ):
        found = set(threads.map(call, range(CALLERS)))
    for made, thread in found:
        made.call_soon_threadsafe(made.stop)
        thread.join(10)
        made.close()
    assert len(found) == 1


@pytest.fixture
def loop() -> Iterator[event_loop._LoopThread]:
    """A loop for one test, in place of that of all others."""
    with patch.object(event_loop, "_threads", []):
        made = event_loop._loop()
        yield made
    if made._thread.is_alive():
        made.loop.call_soon_threadsafe(made.loop.stop)
    made._thread.join(10)
    for task in asyncio.all_tasks(made.loop):
        task.cancel()
    made.loop.run_until_complete(asyncio.sleep(0))
    made.loop.close()


async def leaves(error: BaseException) -> None:
    raise error


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt()], ids=["exit", "interrupt"])
def test_what_a_task_raises_to_end_the_loop_does_not_end_it(
    loop: event_loop._LoopThread, error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(type(error)):
        event_loop.call(leaves(error), 10)
    assert event_loop.call(own(), 10)[0] is loop.loop
    assert f"the event loop was interrupted by {type(error).__name__}, and continues" in caplog.text


def test_who_waits_for_a_loop_that_has_ended_learns_it(loop: event_loop._LoopThread) -> None:
    never = event_loop.submit(asyncio.sleep(100))
    with patch.object(loop.loop, "run_forever", side_effect=OSError("its descriptors are closed")):
        loop.loop.call_soon_threadsafe(sys.exit)
        with pytest.raises(PoolError, match=r"has ended \(OSError: its descriptors are closed\).*sparktrain resume"):
            event_loop.wait(never)
    with pytest.raises(PoolError, match="has ended"):
        event_loop.call(own(), 10)


def test_an_error_of_what_nobody_waits_for_is_logged(
    loop: event_loop._LoopThread, caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> None:
        raise OSError("no way")

    event_loop.deliver(fail, "the stop of the run")
    event_loop.call(own(), 10)
    assert "the stop of the run has failed: OSError: no way" in caplog.text


def test_a_fork_of_a_driver_has_no_loop(loop: event_loop._LoopThread) -> None:
    with patch.object(os, "getpid", return_value=loop._process + 1), pytest.raises(PoolError, match="is a fork of"):
        event_loop.submit(own())
