"""Removes folders from an executor's disk, whatever a training function has put into them."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import uuid4

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_TIMES = 3
"""How many passes over a tree: another process may add to it meanwhile."""


def discard(folder: Path) -> None:
    """Free the name of `folder` at once, then remove its content. Blocks on local disk; raises nothing.

    Files that it cannot remove stay, under another name.
    """
    gone = folder.with_name(f"gone-{uuid4().hex}")
    with suppress(OSError):  # it is gone already
        folder.rename(gone)
        remove(gone)


def remove(folder: Path) -> None:
    """Remove `folder` and its content as far as possible. Blocks on local disk; raises nothing.

    It moves each folder to the top level first: so no tree is too deep, and no path too long.
    """
    for _ in range(_TIMES):
        with suppress(OSError), _opened(str(folder)) as top:
            pending = _emptied(top, top)
            while pending:
                name = pending.pop()
                with suppress(OSError):
                    with _opened(name, top) as each:
                        pending += _emptied(each, top)
                    os.rmdir(name, dir_fd=top)
        with suppress(OSError):
            os.unlink(folder) if folder.is_symlink() else os.rmdir(folder)
            return


def _emptied(folder: int, top: int) -> list[str]:
    """Remove the files of a folder; returns the names of its folders, which are in `top` now."""
    folders = []
    with os.scandir(folder) as entries:
        found = list(entries)
    for entry in found:
        with suppress(OSError):
            if not entry.is_dir(follow_symlinks=False):
                os.unlink(entry.name, dir_fd=folder)
            elif folder == top:
                folders.append(entry.name)
            else:
                name = uuid4().hex
                _moved(entry.name, folder, name, top)
                folders.append(name)
    return folders


def _moved(name: str, folder: int, new: str, top: int) -> None:
    try:
        os.rename(name, new, src_dir_fd=folder, dst_dir_fd=top)
    except PermissionError:  # a read-only folder cannot get another parent
        os.chmod(name, 0o700, dir_fd=folder)
        os.rename(name, new, src_dir_fd=folder, dst_dir_fd=top)


@contextmanager
def _opened(name: str, within: int | None = None) -> Iterator[int]:
    """Open a folder for reading and changing; not through a symbolic link."""
    try:
        folder = os.open(name, _FOLDER, dir_fd=within)
    except PermissionError:
        os.chmod(name, 0o700, dir_fd=within)
        folder = os.open(name, _FOLDER, dir_fd=within)
    try:
        with suppress(PermissionError):
            os.fchmod(folder, 0o700)
        yield folder
    finally:
        os.close(folder)
