"""Calls of libraries that may never return: on threads that are left behind when they do not."""

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

from sparktrain.clock import SystemClock, pause

T = TypeVar("T")

_IDLE_S = 30.0
_GRACE_S = 1.0
"""At the end of the process, for calls that do not hang."""
_REST_S = 4.0
"""After that, for the threads of those that hang to come to rest."""
_END_S = 60
"""From then on for the process to end, once threads are halted."""
_POLL_S = 0.01
_HALT = signal.SIGRTMAX - 2
"""No program of the product uses it, nor does Python."""


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


class _Spare:
    """A thread that makes one call after the other."""

    def __init__(self, serve: "Callable[[_Spare], None]") -> None:
        self.inbox: SimpleQueue[_Work] = SimpleQueue()
        self.thread = Thread(target=serve, args=(self,), name="sparktrain-request", daemon=True)


class SpareThreads:
    """Threads that wait for a call, so that bounding its time costs microseconds. Used by any thread.

    Daemons: a call that hangs delays neither the caller nor the end of the process. There are as many as calls at one
    time, and those that nothing asks for end after half a minute. A forked child begins with none.
    """

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self._idle: list[_Spare] = []
        """Only appended to, popped from and removed from: each is atomic."""
        self._busy: set[_Spare] = set()
        """Those that make a call, or are given one. Only added to and removed from: each is atomic."""
        self._ended = False
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

    def end(self) -> None:
        """Before the interpreter ends: refuse further calls, wait a second for those under way, and halt the threads of
        those that hang. Only the main thread calls it.

        One that came back while the interpreter ends would be ended by it, and a native library that is not made for
        that, such as one written in Rust, then aborts the process, whose exit status is lost (CPython issue 87135;
        mended in Python 3.14). What status the process means nobody knows before the interpreter has ended, so the
        process cannot be ended here with it.

        A thread that runs may hold a lock that the process needs to end, of the allocator or of the interpreter: it is
        let run until its call ends, or waits in the kernel. There it holds none that is only held for a moment. Should
        it hold another one, the process is ended by SIGALRM; one that runs on and on is left alone.
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
        while (hung := {each.thread for each in list(self._busy)} - halted) and clock.now() < until:
            for each in hung:
                rest = _rest(each)
                if rest and rests.get(each) == rest:
                    _halt(each)
                    halted.add(each)
                rests[each] = rest
            pause(_POLL_S)
        if halted:
            _end_within(_END_S)

    def _give(self, call: Callable[[], Any]) -> _Work:
        if self._pid != os.getpid():
            self._begin()
        if self._ended:
            raise OverdueError("no call is made any more: this process ends")
        work = _Work(call)
        try:
            spare = self._idle.pop()
        except IndexError:
            spare = _Spare(self._serve)
            spare.thread.start()
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
                    continue  # somebody has just taken it, to give it work
                return
            work.run()
            del work  # it holds what the call has returned
            self._busy.remove(spare)
            self._idle.append(spare)


def _rest(thread: Thread) -> str:
    """The state of a thread that waits in the kernel: the same for as long as it has not run; empty while it runs."""
    try:
        lines = Path(f"/proc/self/task/{thread.native_id}/status").read_text().splitlines()
    except OSError:
        return ""
    told = [line for line in lines if line.startswith(("State:", "voluntary_ctxt", "nonvoluntary_ctxt"))]
    return "".join(told) if any(line.startswith(("State:\tS", "State:\tD")) for line in told) else ""


def _halt(thread: Thread) -> None:
    """Have a native thread wait for ever where it is, without Python."""
    libc = ctypes.CDLL(None)
    libc.signal(_HALT, libc.pause)
    with suppress(ProcessLookupError):  # it has just ended
        signal.pthread_kill(thread.ident or 0, _HALT)


def _end_within(seconds: int) -> None:
    """End the process by SIGALRM when it is still there, unless the program uses that signal itself."""
    if signal.getsignal(signal.SIGALRM) is signal.SIG_DFL and (before_s := signal.alarm(seconds)):
        signal.alarm(min(before_s, seconds))


THREADS = SpareThreads()
"""Of this process."""
atexit.register(THREADS.end)
