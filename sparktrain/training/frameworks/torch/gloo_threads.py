"""The threads in which Gloo's operations run, and forks beside them.

Python before 3.12 forks a child that never runs where another thread makes its Python state at that moment: the child
waits for the lock of the list of those states (https://github.com/python/cpython/issues/112275). A thread of Gloo makes
one at the end of each operation, to release tensors. A loop that forks right after a collective, such as one that
starts the workers of a `DataLoader` for its next epoch, would then wait for its worker for ever, and the others for it.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from sparktrain.base.clock import SystemClock, pause

_TASKS = Path("/proc/self/task")
_NAME = "pt_gloo_runloop"
_FUTEX = ("202", "98")
"""The number of the system call on x86 and on ARM."""
_POLL_S = 0.001
FORK_TIMEOUT_S = 0.5
"""How long a fork waits at most, for operations that wait for other members meanwhile."""


def busy_threads() -> Iterator[int]:
    """Threads of Gloo that are within an operation: one without work waits without a deadline."""
    for task in _TASKS.iterdir():
        with suppress(OSError):  # a thread that has ended
            if (task / "comm").read_text().strip() != _NAME:
                continue
            call = (task / "syscall").read_text().split()
            if call[0] not in _FUTEX or int(call[4], 16):
                yield int(task.name)


def _wait_before_fork() -> None:
    clock = SystemClock()
    until = clock.now() + FORK_TIMEOUT_S
    while any(True for _ in busy_threads()) and clock.now() < until:
        pause(_POLL_S)


if sys.version_info < (3, 12):
    os.register_at_fork(before=_wait_before_fork)
