"""The newest step of a member, in a file of its local folder: its agent reads it when the process is gone.

A process that is killed sends nothing more, and its newest report may be older by many steps. A mapped file has what
the process wrote last, costs no system call, and is not written to by a descriptor: code of the user may close that
and get its number for a file of its own.
"""

import mmap
import struct
from contextlib import suppress
from pathlib import Path

_NAME = "newest-step"
_COUNT = struct.Struct("<q")
"""The finished steps and one; 0 before the first mark."""


class NewestStep:
    """The mark of one process that trains. For the thread that trains."""

    def __init__(self) -> None:
        self._map: mmap.mmap | None = None

    def keep_in(self, home: Path) -> None:
        """Marks go to the member's folder `home` from now on. A disk that is full leaves the agent with reports."""
        with suppress(OSError, ValueError), (home / _NAME).open("w+b", buffering=0) as file:
            # Not a hole of a sparse file: on a full disk the first mark in it would end the process by SIGBUS.
            file.write(bytes(_COUNT.size))
            self._map = mmap.mmap(file.fileno(), _COUNT.size)

    def mark(self, step: int) -> None:
        """This process has finished `step` steps, those before a restart included."""
        if self._map is not None:
            _COUNT.pack_into(self._map, 0, step + 1)


newest_step = NewestStep()
"""That of this process."""


def read_newest_step(home: Path) -> int | None:
    """The steps that the member with the folder `home` has finished; None before the first one. Raises nothing."""
    try:
        (count,) = _COUNT.unpack((home / _NAME).read_bytes())
    except (OSError, struct.error):
        return None
    return int(count) - 1 if count > 0 else None
