"""Runs blocking work beside an event loop, in threads that may be abandoned when they hang."""

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

T = TypeVar("T")

_NOT_OF_A_TASK = (SystemExit, KeyboardInterrupt, GeneratorExit, StopIteration)
"""With the cancellation of a task: what would end the event loop, or the task, that waits for the work."""


def spawn(work: Callable[[], None], name: str = "sparktrain-store") -> threading.Thread:
    """Start a daemon thread that runs `work`; returns the thread at once."""
    thread = threading.Thread(target=work, name=name, daemon=True)
    thread.start()
    return thread


async def aside(work: Callable[[], T], name: str = "sparktrain-store") -> T:
    """Run `work` in a thread. Like `asyncio.to_thread`, but neither the loop's end nor the exit waits for it.

    Where Python ends and starts no thread any more, runs it at once, and blocks the loop.
    Raises what `work` raises, and RuntimeError for what no task may raise, such as SystemExit.
    """
    import asyncio  # `spawn` serves commands that have no event loop, and start sooner without it

    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def settle(result: T | None, error: BaseException | None) -> None:
        if future.done():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)  # type: ignore[arg-type] # of T, for there is no error

    def run() -> None:
        result: T | None = None
        failed: Exception | None = None
        try:
            result = work()
        except (*_NOT_OF_A_TASK, asyncio.CancelledError) as error:
            failed = RuntimeError(f"{type(error).__name__} was raised in thread {name}: {error}")
            failed.__cause__ = error
        except Exception as error:
            failed = error
        with suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(settle, result, failed)

    try:
        spawn(run, name)
    except RuntimeError:
        if threading.main_thread().is_alive():
            raise
        run()  # at exit: Python 3.12 starts no thread from the end of the main one on
    return await future
