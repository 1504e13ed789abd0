"""[any] Linux process trees: which processes die together, and which process inherits orphans."""

import ctypes
import functools
import os
import signal
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from sparktrain.base import control_groups

_PR_SET_PDEATHSIG = 1
_PR_SET_NAME = 15
_PR_SET_CHILD_SUBREAPER = 36
_M_ARENA_MAX = -8
_VMSTAT = Path("/proc/vmstat")

_LIBC = ctypes.CDLL(None, use_errno=True)


def inherit_orphans(inherit: bool = True) -> None:
    """Become, or cease to be, the subreaper: the parent of descendants when their own parent dies. Raises OSError."""
    _prctl(_PR_SET_CHILD_SUBREAPER, int(inherit))


def limit_arenas(count: int) -> None:
    """Have glibc allocate from at most `count` arenas, as with MALLOC_ARENA_MAX at the start of this process."""
    with suppress(AttributeError):  # another libc
        _LIBC.mallopt(_M_ARENA_MAX, count)


def die_with_parent(signum: int, parent: int) -> None:
    """Get `signum` when the parent's thread that started this process ends; end now if `parent` is gone already.

    0 ends that. Raises OSError.
    """
    _prctl(_PR_SET_PDEATHSIG, signum)
    if os.getppid() != parent:
        os._exit(0)


def name_process(name: str) -> None:
    """Give this process a name, of at most 15 bytes, that `ps -o comm` shows."""
    _prctl(_PR_SET_NAME, ctypes.c_char_p(name.encode()[:15]))


def process_state(pid: int) -> str:
    """One letter, as `ps` shows it: `T` for a process stopped by a signal; empty when there is no such process."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[0]
    return ""


def parent_of(pid: int) -> int | None:
    """The parent of a process; None when there is no such process."""
    with suppress(OSError):
        return int(Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[1])
    return None


def children() -> set[int]:
    """Children of this process, own or inherited, running or dead and not yet waited for."""
    if not os.path.exists(f"/proc/self/task/{os.getpid()}/children"):
        import psutil  # for kernels built without CONFIG_PROC_CHILDREN; it reads all of /proc

        return {child.pid for child in psutil.Process().children()}
    return _listed("self") | _listed("self")  # one reading may skip a child while its neighbour exits


def descendants() -> set[int]:
    """Children of this process and all their descendants, including those with a parent that is slow to die."""
    pids: set[int] = set()
    newest = children()
    while newest:
        pids |= newest
        newest = {child for pid in newest for child in _listed(str(pid))} - pids
    return pids


def memory_kills() -> int | None:
    """How many processes of this process's control group the kernel has ended for lack of memory, or of its host where
    it counts only these; None where it does not count them."""
    for line in control_groups.content(_memory_kills_file()).splitlines():
        name, _, count = line.partition(" ")
        if name == "oom_kill":
            return int(count)
    return None


@functools.cache
def _memory_kills_file() -> Path:
    # The host's count includes those of other containers.
    return control_groups.memory_kills_file() or _VMSTAT


def memory_kills_since(earlier: int | None) -> int | None:
    """How much `memory_kills` has grown since it returned `earlier`."""
    now = memory_kills()
    return None if earlier is None or now is None else now - earlier


def cull(pids: Iterable[int]) -> int:
    """Send SIGKILL to these processes, and reap dead children. Does not block; returns the number of reaped ones."""
    reaped_count = 0
    for pid in pids:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
        with suppress(ChildProcessError):
            reaped_count += os.waitpid(pid, os.WNOHANG)[0] == pid
    return reaped_count


def flush_native() -> None:
    """Flush the output of native code; os._exit() would drop it, and a forked child would print it twice."""
    _LIBC.fflush(None)


def _listed(pid: str) -> set[int]:
    pids: set[int] = set()
    with suppress(FileNotFoundError, ProcessLookupError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            children = f"/proc/{pid}/task/{thread}/children"
            with suppress(FileNotFoundError, ProcessLookupError), open(children, "rb", buffering=0) as file:
                pids.update(map(int, file.read().split()))
    return pids


def _prctl(option: int, value: int | ctypes.c_char_p) -> None:
    argument = value if isinstance(value, ctypes.c_char_p) else ctypes.c_ulong(value)
    unused = ctypes.c_ulong(0)
    if _LIBC.prctl(option, argument, unused, unused, unused) != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"prctl({option}): {os.strerror(code)}")
