"""A folder of this user in a directory that others may write to, under a name that is known beforehand."""

import os
import stat
import tempfile
from contextlib import suppress
from pathlib import Path


def private_folder(root: Path, name: str) -> Path:
    """The folder `name` below `root` of this user, which no other user can read; made where it is missing.

    Where another user has that name, or it is no folder, it is `name` with a random suffix:
    the one of an earlier process, or a new one. Follows no symbolic link. Blocks on local disk. Raises OSError,
    FileNotFoundError where another process deletes the folder meanwhile.
    """
    path = root / name
    with suppress(FileExistsError):
        path.mkdir(mode=0o700, parents=True)
    if not _is_own(path):
        candidates = sorted(Path(entry.path) for entry in os.scandir(root) if entry.name.startswith(f"{name}-"))
        path = next(filter(_is_own, candidates), None) or Path(tempfile.mkdtemp(prefix=f"{name}-", dir=root))
    if stat.S_IMODE(path.lstat().st_mode) != 0o700:
        path.chmod(0o700)
    return path


def file_system_time(folder: Path) -> float:
    """Seconds since 1970 by the clock that gives the files in `folder`, one of this user, their times: that of another
    host where they are shared. Blocks on the disk. Raises OSError."""
    os.utime(folder)
    return folder.stat().st_mtime


def _is_own(path: Path) -> bool:
    status = path.lstat()
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid()
