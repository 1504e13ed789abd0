"""Calls of libraries that may never return: on threads that are left behind when they do not."""

import os
from collections.abc import Callable
from queue import Empty, SimpleQueue
from threading import Event, Thread
from typing import Any, TypeVar

T = TypeVar("T")

_IDLE_S = 30.0


class OverdueError(TimeoutError):
    """A call did not return in time; its thread is left behind, and it may take effect yet."""


class _Work:
    """A call on its way to a thread and back."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self._call = call
        self.result: Any = None
        self.error: BaseException | None = None
        self.done = Event()

    def run(self) -> None:
        try:
            self.result = self._call()
        except BaseException as error:  # a panic of a native library is no Exception
            self.error = error
        finally:
            self.done.set()


class SpareThreads:
    """Threads that wait for a call, so that bounding its time costs microseconds. Used by any thread.

    Daemons: a call that hangs delays neither the caller nor the end of the process. There are as many as calls at one
    time, and those that nothing asks for end after half a minute. A forked child begins with none.
    """

    def __init__(self) -> None:
        self._idle: list[SimpleQueue[_Work]] = []
        """Of each waiting thread its inbox. Only appended to, popped from and removed from: each is atomic."""
        self._pid = os.getpid()

    def run(self, call: Callable[[], T], timeout_s: float) -> T:
        """What `call` returns or raises; blocks for it. Raises OverdueError after `timeout_s` seconds."""
        work = self._give(call)
        if not work.done.wait(timeout_s):
            raise OverdueError(f"no answer within {timeout_s:.3g} s")
        if work.error is not None:
            try:
                raise work.error
            finally:
                del work  # or the error's traceback would hold this frame, and the frame the error
        result: T = work.result
        return result

    def start(self, call: Callable[[], None]) -> None:
        """Have `call` run, whatever becomes of it; returns at once."""
        self._give(call)

    def _give(self, call: Callable[[], Any]) -> _Work:
        if self._pid != os.getpid():
            self._idle, self._pid = [], os.getpid()
        work = _Work(call)
        try:
            inbox = self._idle.pop()
        except IndexError:
            inbox = SimpleQueue()
            Thread(target=_serve, args=(inbox, self._idle), name="sparktrain-request", daemon=True).start()
        inbox.put(work)
        return work


def _serve(inbox: "SimpleQueue[_Work]", idle: "list[SimpleQueue[_Work]]") -> None:
    while True:
        try:
            work = inbox.get(timeout=_IDLE_S)
        except Empty:
            try:
                idle.remove(inbox)
            except ValueError:
                continue  # somebody has just taken it, to give it work
            return
        work.run()
        del work  # it holds what the call has returned
        idle.append(inbox)


THREADS = SpareThreads()
"""Of this process."""
