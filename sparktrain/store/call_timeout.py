"""Timeouts for library calls that may never return: they run on threads that are abandoned on timeout.

In comes a call with the seconds that it may last. An idle thread runs it, or a new one; the caller waits for the
result, or goes away with OverdueError at the deadline. The thread then stays with its call, which may still take
effect, and returns to the pool if it ever ends. What must hold: no caller waits longer than its deadline, and a
thread that hangs neither keeps the process from its exit nor changes the exit status. For that, `end` gives running
calls a second at exit, and halts the threads of those that hang where they block in the kernel.
"""

import atexit
import ctypes
import os
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Event, Thread
from typing import Any, TypeVar

from sparktrain.base.clock import SystemClock, pause

T = TypeVar("T")

_IDLE_S = 30.0
_GRACE_S = 1.0
"""How long the process waits at its end for calls that do not hang."""
_REST_S = 4.0
"""How long it then waits for threads of hanging calls to block in the kernel."""
_END_S = 60
"""How long the process may then take to exit, once threads are halted."""
_POLL_S = 0.01
_HALT = signal.SIGRTMAX - 2
"""Neither sparktrain nor Python uses this signal."""


class OverdueError(TimeoutError):
    """A call did not return in time; its thread is abandoned, and the call may still take effect."""


class _Work:
    """A call that is handed to a thread, and its result."""

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


class _Spare:
    """A thread that runs one call after the other."""

    def __init__(self, serve: "Callable[[_Spare], None]") -> None:
        self.inbox: SimpleQueue[_Work] = SimpleQueue()
        self.thread = Thread(target=serve, args=(self,), name="sparktrain-request", daemon=True)


class SpareThreads:
    """A pool of idle threads, so that a call with a timeout costs microseconds. Used by any thread.

    They are daemons: a call that hangs delays neither the caller nor the exit of the process. There are as many threads
    as concurrent calls; idle ones end after half a minute. A forked child starts with none.
    """

    def __init__(self) -> None:
        self._start()

    def _start(self) -> None:
        self._idle: list[_Spare] = []
        """Only appended to, popped from and removed from: each is atomic."""
        self._busy: set[_Spare] = set()
        """Threads that run a call or are about to. Only added to and removed from: each is atomic."""
        self._ended = False
        self._pid = os.getpid()

    def run(self, call: Callable[[], T], timeout_s: float) -> T:
        """Run `call` and return or raise its outcome. Blocks; raises OverdueError after `timeout_s` seconds."""
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
        """Run `call` in the background and ignore its outcome; returns at once."""
        self._give(call)

    def end(self) -> None:
        """Refuse further calls, wait a second for running ones, and halt the threads of those that hang.

        Only the main thread calls it, before the interpreter exits.

        Python ends a thread that returns from native code while the interpreter exits. A native library that does not
        expect that, such as one written in Rust, then aborts the process, and its exit status is lost (CPython issue
        87135; fixed in Python 3.14). The exit status is unknown until the interpreter has exited, so `end` cannot
        terminate the process with it.

        A running thread may hold a lock that the process needs to exit, such as the allocator's or the interpreter's:
        it may run until its call returns or blocks in the kernel, where it holds no short-lived lock. If it holds
        another lock, SIGALRM ends the process; a thread that never blocks is left alone.
        """
        if self._pid != os.getpid():
            return
        self._ended = True
        clock = SystemClock()
        until = clock.now() + _GRACE_S
        while self._busy and clock.now() < until:
            pause(_POLL_S)
        until = clock.now() + _REST_S
        rests: dict[Thread, str] = {}
        halted: set[Thread] = set()
        while (hung := {spare.thread for spare in list(self._busy)} - halted) and clock.now() < until:
            for thread in hung:
                state = _blocked_state(thread)
                if state and rests.get(thread) == state:
                    _halt(thread)
                    halted.add(thread)
                rests[thread] = state
            pause(_POLL_S)
        if halted:
            _end_within(_END_S)

    def _give(self, call: Callable[[], Any]) -> _Work:
        # A fork copies the lists of threads, but none of the threads.
        if self._pid != os.getpid():
            self._start()
        if self._ended:
            raise OverdueError("no call is accepted any more: this process is exiting")
        work = _Work(call)
        try:
            spare = self._idle.pop()
        except IndexError:
            spare = _Spare(self._serve)
            spare.thread.start()
        # Busy before the call is handed over: `end` must not miss a thread that is about to enter native code.
        self._busy.add(spare)
        spare.inbox.put(work)
        return work

    def _serve(self, spare: _Spare) -> None:
        while True:
            try:
                work = spare.inbox.get(timeout=_IDLE_S)
            except Empty:
                try:
                    self._idle.remove(spare)
                except ValueError:
                    continue  # another thread has just taken it, to hand it a call
                return
            work.run()
            del work  # it holds the result of the call
            self._busy.remove(spare)
            self._idle.append(spare)


def _blocked_state(thread: Thread) -> str:
    """The state of a thread that is blocked in the kernel, equal until it next runs; empty while it runs."""
    try:
        lines = Path(f"/proc/self/task/{thread.native_id}/status").read_text().splitlines()
    except OSError:
        return ""
    fields = [line for line in lines if line.startswith(("State:", "voluntary_ctxt", "nonvoluntary_ctxt"))]
    return "".join(fields) if any(line.startswith(("State:\tS", "State:\tD")) for line in fields) else ""


def _halt(thread: Thread) -> None:
    """Suspend a native thread for good where it is, without Python."""
    libc = ctypes.CDLL(None)
    libc.signal(_HALT, libc.pause)
    with suppress(ProcessLookupError):  # it has just ended
        signal.pthread_kill(thread.ident or 0, _HALT)


def _end_within(seconds: int) -> None:
    """Have SIGALRM end the process if it still runs after `seconds`, unless the program uses that signal itself."""
    if signal.getsignal(signal.SIGALRM) is signal.SIG_DFL and (before_s := signal.alarm(seconds)):
        signal.alarm(min(before_s, seconds))


THREADS = SpareThreads()
"""The pool of this process."""
atexit.register(THREADS.end)
