"""The zygote: imports what members need, forks them, and owns every process below it. One thread; it never runs an op.

A child hangs that is forked after a TensorFlow op, or after the start of a gRPC server or a native HDFS client: none
of them may happen here, and the zygote preloads only modules from the driver's list of safe ones.

Requests come over one socket pair: import modules, fork a child, kill one. A signal of a dead child wakes the same
select. A fork returns twice: in the child as the end of its own pipe to the agent, in the zygote as the message
`Forked` with the agent's end. The invariant: no process outlives what started it. The zygote is the subreaper of its
members, so what a member leaves becomes its child, and is killed before `Exited` is sent; members get SIGKILL when
the zygote dies, and the zygote gets SIGTERM when its agent dies. At its end descendants have 0.3 s from SIGTERM to
SIGKILL, and 1.2 s to be gone.
"""

import faulthandler
import mmap
import os
import select
import signal
import socket
import sys
import traceback
import warnings
from contextlib import suppress
from types import FrameType
from typing import NoReturn

from sparktrain.base import deferred_wrappers, process_tree
from sparktrain.base.clock import Clock, pause
from sparktrain.base.spans import span
from sparktrain.protocol import codec
from sparktrain.protocol import pipe_messages as m
from sparktrain.protocol.frames import BlockingPipe
from sparktrain.training import forkable

WAITING = "member-waiting"
"""Name of a member's process until it has its assignment. For people only: a process may take any name."""
TERM_GRACE_S = 0.3
"""At the zygote's own end: the time between SIGTERM and SIGKILL for its members."""
KILL_TIMEOUT_S = 1.2
"""How long the zygote waits for processes that survive SIGKILL because they hang in the kernel."""

_HANDLED = (signal.SIGCHLD, signal.SIGTERM, signal.SIGHUP)
_POLL_S = 0.002
_NEVER = float("inf")


class Zygote:
    """Parent of members. All methods belong to the main thread."""

    def __init__(self, control: BlockingPipe[m.ToZygote], clock: Clock) -> None:
        self._control = control
        self._clock = clock
        self._kill_at: dict[int, float] = {}
        """For each member, the moment of its SIGKILL."""
        self._assigned: dict[int, mmap.mmap] = {}
        """For each member, one byte that it shares with this process: whether it has its assignment."""
        self._memory_kills: dict[int, int | None] = {}
        """For each member, the count of the host when it started."""
        self._mine: mmap.mmap | None = None
        self._wakeup: tuple[int, int] = (-1, -1)

    def start(self, agent_pid: int) -> None:
        """Tie this process to the agent's, and its descendants to itself. Raises OSError."""
        faulthandler.enable()
        codec.prepare(m.ToMember)  # once here, in place of once in each member
        deferred_wrappers.defer()
        self._wakeup = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._handle_signals()
        process_tree.inherit_orphans()
        process_tree.die_with_parent(signal.SIGTERM, agent_pid)

    def serve(self) -> BlockingPipe[m.ToMember] | None:
        """Serve the agent's requests. Returns only in a forked member: its pipe to the agent. The zygote exits here."""
        try:
            while not self._control.ended:
                self._wait()
                while (message := self._control.poll()) is not None:
                    if (child := self._handle(message)) is not None:
                        return child
                self._reap()
                self._kill_overdue()
        except ConnectionError:
            pass  # the agent died before it got an answer
        except Exception:
            traceback.print_exc()
            self._end(status=1)
        self._end()

    def mark_assigned(self) -> None:
        """Note, in a forked member, that it has its assignment and may start processes."""
        assert self._mine is not None
        self._mine[0] = 1

    # ---- requests of the agent

    def _handle(self, message: m.ToZygote) -> BlockingPipe[m.ToMember] | None:
        match message:
            case m.SetPaths(sys_path=sys_path, pythonpath=pythonpath):
                sys.path[:] = sys_path
                os.environ.pop("PYTHONPATH", None)
                if pythonpath is not None:
                    os.environ["PYTHONPATH"] = pythonpath
            case m.Preload(modules=modules):
                self._control.send(m.Preloaded(self._preload(modules)))
            case m.Kill(pid=pid, grace_s=grace_s) if pid in self._kill_at:
                self._kill(pid, grace_s)
            case m.Fork():
                return self._fork()
        return None

    def _preload(self, modules: tuple[str, ...]) -> dict[str, str]:
        if not self._kill_at:  # without members SIGTERM may end even an import that takes minutes
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        failed = forkable.preload(modules)
        self._handle_signals()  # a module may have set handlers of its own
        return failed

    def _fork(self) -> BlockingPipe[m.ToMember] | None:
        agent_end, member_end = socket.socketpair()
        assigned = mmap.mmap(-1, 1)
        sys.stdout.flush()
        sys.stderr.flush()
        # A child would write what the buffers hold once more.
        process_tree.flush_native()
        zygote_pid = os.getpid()
        signal.pthread_sigmask(signal.SIG_BLOCK, _HANDLED)  # Python loses a signal that arrives within fork()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of Python 3.12: numpy's idle threads are no hazard
            with span("fork"):
                pid = os.fork()
        if pid == 0:
            process_tree.die_with_parent(signal.SIGKILL, zygote_pid)
            os.setpgid(0, 0)
            agent_end.close()
            self._forget()
            self._mine = assigned
            process_tree.name_process(WAITING)
            return BlockingPipe(member_end, m.ToMember)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _HANDLED)
        member_end.close()
        with suppress(ProcessLookupError):
            os.setpgid(pid, pid)  # in both processes: either may signal the group at once
        self._kill_at[pid] = _NEVER
        self._assigned[pid] = assigned
        self._memory_kills[pid] = process_tree.memory_kills()
        with agent_end:
            self._control.send(m.Forked(pid), fds=(agent_end.fileno(),))
        return None

    def _forget(self) -> None:
        """In a forked member: release what belongs to the zygote."""
        signal.set_wakeup_fd(-1)
        for signum in _HANDLED:
            signal.signal(signum, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _HANDLED)
        for fd in self._wakeup:
            os.close(fd)
        self._control.close()
        self._kill_at.clear()
        self._memory_kills.clear()
        while self._assigned:
            self._assigned.popitem()[1].close()

    # ---- children

    def _kill(self, pid: int, grace_s: float) -> None:
        if grace_s > 0:
            _signal_group(pid, signal.SIGTERM)
        self._kill_at[pid] = min(self._kill_at[pid], self._clock.now() + grace_s)

    def _kill_overdue(self) -> None:
        for pid, moment in self._kill_at.items():
            if moment <= self._clock.now():
                _signal_group(pid, signal.SIGKILL)
                self._kill_at[pid] = _NEVER

    def _reap(self) -> None:
        """Reap each dead child; the agent gets a report of a member, and none of an orphan."""
        with suppress(ChildProcessError):
            # WNOWAIT only looks: the call that takes a member's status must be `wait4`, which alone has its use of
            # memory.
            while (dead := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) is not None:
                if dead.si_pid in self._kill_at:
                    with span("reap"):
                        self._conclude(dead.si_pid)
                else:
                    os.waitpid(dead.si_pid, 0)

    def _conclude(self, pid: int) -> None:
        # A member without an assignment started nothing: any orphans belong to a member that still runs.
        with self._assigned.pop(pid) as assigned:
            childless = not assigned[0]
        _, status, usage = os.wait4(pid, 0)
        del self._kill_at[pid]
        memory_kills = process_tree.memory_kills_since(self._memory_kills.pop(pid))
        orphans = 0 if childless else self._end_orphans()
        exit_code = os.waitstatus_to_exitcode(status)
        self._control.send(m.Exited(pid, exit_code, usage.ru_maxrss * 1024, orphans, memory_kills))

    def _end_orphans(self) -> int:
        """Kill what the dead member has left: the zygote inherits its children now, and theirs as they die."""
        deadline = self._clock.now() + KILL_TIMEOUT_S
        ended = 0
        while orphans := process_tree.children() - self._kill_at.keys():
            ended += process_tree.cull(orphans)
            if self._clock.now() > deadline:
                print(f"[sparktrain] processes {sorted(orphans)} do not die of SIGKILL", file=sys.stderr, flush=True)
                break
            pause(_POLL_S)
        return ended

    # ---- signals and the end

    def _handle_signals(self) -> None:
        signal.set_wakeup_fd(self._wakeup[1], warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda signum, frame: None)  # the wake-up needs a handler
        signal.signal(signal.SIGTERM, self._on_term)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_SETMASK, [])

    def _on_term(self, signum: int, frame: FrameType | None) -> None:
        self._end()

    def _wait(self) -> None:
        """Wait for a message, the end of a child, or the moment of the next SIGKILL."""
        moment = min(self._kill_at.values(), default=_NEVER)
        timeout_s = None if moment == _NEVER else max(0.0, moment - self._clock.now())
        select.select([self._control.fileno(), self._wakeup[0]], [], [], timeout_s)
        with suppress(BlockingIOError):
            os.read(self._wakeup[0], 4096)

    def _end(self, status: int = 0) -> NoReturn:
        """End every descendant, then this process: SIGTERM first, SIGKILL soon after."""
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        now = self._clock.now()
        term_until = now + TERM_GRACE_S
        kill_until = now + TERM_GRACE_S + KILL_TIMEOUT_S
        for pid in process_tree.children():
            _signal_group(pid, signal.SIGTERM)
        while (alive := process_tree.children()) and self._clock.now() < kill_until:
            if self._clock.now() < term_until:
                for pid in alive:
                    os.waitpid(pid, os.WNOHANG)
            else:
                # All of them: a process with much memory dies slowly, and its children become visible only then.
                process_tree.cull(process_tree.descendants())
            pause(_POLL_S)
        os._exit(status)


def _signal_group(pid: int, signum: signal.Signals) -> None:
    """Signal the process group that child `pid` leads, or `pid` alone where it leads none."""
    try:
        os.killpg(pid, signum)
    except (ProcessLookupError, PermissionError):
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signum)
