"""Local folders of agents: each is locked by the process that it belongs to, so what a killed one left can be told."""

import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from sparktrain.executor.folders import remove

PREFIX = "sparktrain-agent-held-"
"""Of folders that are locked for as long as they are used; those of versions that lock nothing have another one."""

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_TIMES = 10


@contextmanager
def held(root: str | None) -> Iterator[Path]:
    """A new folder below `root`, or below the system's for temporary files; it is removed at the end. Raises OSError.

    The lock is the kernel's: it ends with this process, however that ends.
    """
    folder, lock = _new(root)
    try:
        yield folder
    finally:
        remove(folder)
        os.close(lock)


def tidy(root: str | None) -> None:
    """Remove folders below `root` that nobody holds: their processes were killed. Blocks on local disk; raises nothing.

    Only those of this user, and no symbolic links. Any number of processes may do so at once.
    """
    with suppress(OSError):
        for folder in Path(root or tempfile.gettempdir()).glob(f"{PREFIX}*"):
            with suppress(OSError):
                _remove_unheld(folder)


def _new(root: str | None) -> tuple[Path, int]:
    for _ in range(_TIMES):
        folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=root))
        lock = os.open(folder, _FOLDER)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:  # somebody took it for what a killed process left, in the moment before it was locked
            os.close(lock)
            continue
        except OSError:
            return folder, lock  # a file system without locks: then nobody else gets one either
        if _is_at(lock, folder):
            return folder, lock
        os.close(lock)
    raise OSError(f"no folder could be kept below {root or tempfile.gettempdir()}: {_TIMES} were removed at once")


def _remove_unheld(folder: Path) -> None:
    lock = os.open(folder, _FOLDER)
    try:
        if os.fstat(lock).st_uid == os.geteuid():
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            remove(folder)
    finally:
        os.close(lock)


def _is_at(lock: int, folder: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(lock), os.lstat(folder))
    except FileNotFoundError:
        return False
