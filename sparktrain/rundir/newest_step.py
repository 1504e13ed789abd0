"""The newest step of a member, in a file of its local folder: its agent reads it when the process is gone.

A process that is killed sends nothing more, and its newest report may be older by many steps. A mapped file has what
the process wrote last, costs no system call, and is not written to by a descriptor: code of the user may close that
and get its number for a file of its own.
"""

import mmap
import struct
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

_NAME = "newest-step"
_COUNTS = struct.Struct("<qq")
"""What `StepMarks` has, and one; 0 before the first mark."""


class StepMarks(NamedTuple):
    """How far a member has come."""

    step: int | None
    """The steps that it has finished; None before the first one."""
    called: int | None
    """The steps after which all its callbacks have been called; None where nothing marks that."""


class NewestStep:
    """The mark of one process that trains. For the thread that trains."""

    def __init__(self) -> None:
        self._map: mmap.mmap | None = None

    def keep_in(self, home: Path) -> None:
        """Marks go to the member's folder `home` from now on. A disk that is full leaves the agent with reports."""
        with suppress(OSError, ValueError), (home / _NAME).open("w+b", buffering=0) as file:
            # Not a hole of a sparse file: on a full disk the first mark in it would end the process by SIGBUS.
            file.write(bytes(_COUNTS.size))
            self._map = mmap.mmap(file.fileno(), _COUNTS.size)

    def mark(self, step: int) -> None:
        """This process has finished `step` steps, those before a restart included."""
        self._pack(step, 0)

    def mark_called(self, step: int) -> None:
        """All callbacks of this process have been called after `step` steps."""
        self._pack(step, _COUNTS.size // 2)

    def _pack(self, step: int, offset: int) -> None:
        if self._map is not None:
            struct.pack_into("<q", self._map, offset, step + 1)


newest_step = NewestStep()
"""That of this process."""


def read_newest_step(home: Path) -> StepMarks:
    """How far the member with the folder `home` has come. Raises nothing."""
    try:
        counts = _COUNTS.unpack((home / _NAME).read_bytes())
    except (OSError, struct.error):
        return StepMarks(None, None)
    return StepMarks(*(count - 1 if count > 0 else None for count in counts))
