"""The event loop of all coordinators in this process, in a thread of its own.

One loop, because gRPC's asyncio server supports only one in a process; a thread, because the caller's is a notebook's
or a script's, which blocks in `sweep()`.
"""

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

from sparktrain.threads import spawn

T = TypeVar("T")

_made: list[asyncio.AbstractEventLoop] = []
_making = threading.Lock()
"""When two threads call first at the same time, one makes the loop, and both use it."""


def _loop() -> asyncio.AbstractEventLoop:
    with _making:
        if not _made:
            loop = asyncio.new_event_loop()
            spawn(loop.run_forever, "sparktrain-coordinator")
            _made.append(loop)
        return _made[0]


def submit(work: "Coroutine[Any, Any, T]") -> "Future[T]":
    """Run `work` in the coordinators' loop; returns at once."""
    return asyncio.run_coroutine_threadsafe(work, _loop())


def call(work: "Coroutine[Any, Any, T]", timeout_s: float) -> T:
    """Run `work` in the coordinators' loop and wait. Raises TimeoutError, and whatever `work` raises."""
    return submit(work).result(timeout_s)
