"""One event loop for all coordinators of this process, whichever thread calls first."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from unittest.mock import patch

from sparktrain.driver import event_loop

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
        patch.object(event_loop, "_made", []),
        patch.object(asyncio, "new_event_loop", slowly),
        ThreadPoolExecutor(CALLERS) as threads,
    ):
        found = set(threads.map(call, range(CALLERS)))
    for made, thread in found:
        made.call_soon_threadsafe(made.stop)
        thread.join(10)
        made.close()
    assert len(found) == 1
