"""Temporary folders, each locked by its process, so that those of killed processes can be recognized and removed.

A process that is killed removes nothing. So each folder has a file that names it, its inode and its process: a folder
with a similar name, a copy, or a folder of another program has no such file, and stays. The kernel
holds the lock, and releases it at any end of the process.
"""

import fcntl
import os
import re
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from sparktrain.base.decoding import from_json
from sparktrain.store.folder_removal import FOLDER, is_mounted, remove

OWNER = ".sparktrain-owner"
"""The file in each of these folders that names its owner."""

_NAME = re.compile(r"sparktrain-[a-z]+(?:-[a-z]+)*-[a-z0-9_]{8}")
_MOST_BYTES = 4096
_TIMES = 10


class _Owner(msgspec.Struct, frozen=True):
    """The content of the file."""

    folder: str
    """The name of the folder that it was written for."""
    inode: int
    host: str
    pid: int


class HeldFolder:
    """A folder of this process, until `close`. Any thread may use it."""

    def __init__(self, path: Path, lock: int) -> None:
        """Use `hold`."""
        self.path = path
        self._lock: int | None = lock
        self._pid = os.getpid()

    def close(self) -> None:
        """Remove the folder. Blocks on local disk; raises nothing. A second call, or one in a fork, does nothing."""
        lock = self._lock
        self._lock = None
        if lock is not None and os.getpid() == self._pid:
            remove(self.path, last=OWNER)
            os.close(lock)


def hold(kind: str, root: str | None = None) -> HeldFolder:
    """Create a folder `sparktrain-KIND-...` below `root`, or below the system's temporary folder. Raises OSError.

    `kind` is one or more words of lowercase letters, with hyphens between. Only this user can read the folder.
    """
    for _ in range(_TIMES):
        folder = Path(tempfile.mkdtemp(prefix=f"sparktrain-{kind}-", dir=root))
        try:
            lock = os.open(folder, FOLDER)
        except FileNotFoundError:  # a `tidy` has removed it just before
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:  # a `tidy` has locked it just before
            os.close(lock)
            continue
        except OSError:
            pass  # a file system without locks: no other process gets one either
        if _is_at(lock, folder):
            _sign(lock, folder.name)
            return HeldFolder(folder, lock)
        os.close(lock)
    raise OSError(f"no folder could be kept below {root or tempfile.gettempdir()}: {_TIMES} were removed at once")


@contextmanager
def held(kind: str, root: str | None = None) -> Iterator[Path]:
    """The path of a folder as `hold` creates it; it is removed at the end of the block. Raises OSError."""
    folder = hold(kind, root)
    try:
        yield folder.path
    finally:
        folder.close()


def tidy(root: str | None = None) -> None:
    """Remove unlocked folders of `hold` below `root`, which killed processes left. Raises nothing.

    It removes only folders of this user that `hold` has made, and follows no symbolic link. Blocks on local disk.
    Several processes may call it at once.
    """
    with suppress(OSError):
        for name in os.listdir(root or tempfile.gettempdir()):
            if _NAME.fullmatch(name):
                with suppress(OSError):
                    _remove_unheld(Path(root or tempfile.gettempdir(), name))


def _sign(folder: int, name: str) -> None:
    owner = _Owner(name, os.fstat(folder).st_ino, socket.gethostname(), os.getpid())
    descriptor = os.open(OWNER, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=folder)
    with open(descriptor, "wb") as file:
        file.write(msgspec.json.encode(owner))


def _is_signed(folder: int, name: str) -> bool:
    """Whether `hold` has made this folder, under this name. Raises OSError."""
    descriptor = os.open(OWNER, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    with open(descriptor, "rb") as file:
        content = file.read(_MOST_BYTES)
    try:
        owner = from_json(content, _Owner)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return False
    # A copy of such a folder has the file too, but not its inode.
    return (owner.folder, owner.inode) == (name, os.fstat(folder).st_ino)


def _remove_unheld(folder: Path) -> None:
    lock = os.open(folder, FOLDER)
    try:
        if os.fstat(lock).st_uid == os.geteuid() and _is_signed(lock, folder.name) and not is_mounted(lock):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            remove(folder, last=OWNER)
    finally:
        os.close(lock)


def _is_at(lock: int, folder: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(lock), os.lstat(folder))
    except FileNotFoundError:
        return False
