"""Local folders of agents, each locked by its process, so that folders of killed processes can be recognized."""

import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from sparktrain.executor.folders import remove

PREFIX = "sparktrain-agent-held-"
"""Prefix of folders that are locked while they are in use; versions without locks have another prefix."""

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_TIMES = 10


@contextmanager
def held(root: str | None) -> Iterator[Path]:
    """Create a folder below `root`, or below the system's temporary folder; remove it at the end. Raises OSError.

    The kernel holds the lock, and releases it at any end of this process.
    """
    folder, lock = _new(root)
    try:
        yield folder
    finally:
        remove(folder)
        os.close(lock)


def tidy(root: str | None) -> None:
    """Remove unlocked folders below `root`, which killed processes left. Blocks on local disk; raises nothing.

    It removes only folders of this user, and no symbolic links. Several processes may call it at once.
    """
    with suppress(OSError):
        for folder in Path(root or tempfile.gettempdir()).glob(f"{PREFIX}*"):
            with suppress(OSError):
                _remove_unheld(folder)


def _new(root: str | None) -> tuple[Path, int]:
    for _ in range(_TIMES):
        folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=root))
        try:
            lock = os.open(folder, _FOLDER)
        except FileNotFoundError:  # a `tidy` has removed it just before
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:  # a `tidy` has locked it just before
            os.close(lock)
            continue
        except OSError:
            return folder, lock  # a file system without locks: no other process gets one either
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
