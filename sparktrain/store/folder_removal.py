"""Removes local folders that are ours with all their content, whatever a training function has put into them.

No symbolic link is followed: folders are opened by their descriptors, one below the other. No mount point is crossed:
what is mounted into such a folder is not ours, and a bind mount has the same device, so that the number
of the mount decides.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import uuid4

FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
"""Flags with which a folder is opened, and a symbolic link to one is not."""
_TIMES = 3
"""How many passes over a tree: another process may add to it meanwhile."""


def discard(folder: Path) -> None:
    """Free the name of `folder` at once, then remove its content. Blocks on local disk; raises nothing.

    Files that it cannot remove stay, under another name.
    """
    # A rename first: the removal of many files lasts, and the name may be needed at once.
    trash = folder.with_name(f"gone-{uuid4().hex}")
    with suppress(OSError):  # it is gone already
        folder.rename(trash)
        remove(trash)


def remove(folder: Path, last: str = "") -> None:
    """Remove `folder` and its content as far as possible. Blocks on local disk; raises nothing.

    A symbolic link in its place is removed, and not followed; what is mounted on it or in it stays. The file `last`
    directly in it goes when nothing else is left, so that a removal that is interrupted can be continued.

    It moves each folder to the top level first: so no tree is too deep, and no path too long.
    """
    for _ in range(_TIMES):
        with suppress(OSError), _opened(str(folder)) as top:
            if not is_mounted(top):
                _remove_content(top, last)
        with suppress(OSError):
            os.unlink(folder) if folder.is_symlink() else os.rmdir(folder)
            return


def mount_of(descriptor: int) -> tuple[int, int]:
    """The device of an open file, and the number of its mount; 0 on a system without such numbers."""
    with suppress(OSError, ValueError), open(f"/proc/self/fdinfo/{descriptor}", encoding="ascii") as lines:
        for line in lines:
            name, _, value = line.partition(":")
            if name == "mnt_id":
                return os.fstat(descriptor).st_dev, int(value)
    return os.fstat(descriptor).st_dev, 0


def is_mounted(folder: int) -> bool:
    """Whether the open folder is a mount point. Raises OSError."""
    above = os.open("..", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=folder)
    try:
        return mount_of(above) != mount_of(folder)
    finally:
        os.close(above)


def _remove_content(top: int, last: str) -> None:
    mount = mount_of(top)
    pending = _emptied(top, top, last)
    while pending:
        name = pending.pop()
        with suppress(OSError):
            with _opened(name, top) as folder:
                if mount_of(folder) == mount:
                    pending += _emptied(folder, top)
            os.rmdir(name, dir_fd=top)
    if last and os.listdir(top) == [last]:
        os.unlink(last, dir_fd=top)


def _emptied(folder: int, top: int, excluded_name: str = "") -> list[str]:
    """Remove the files of a folder except `excluded_name`; returns the names of its folders, which are in `top` now."""
    folders = []
    with os.scandir(folder) as entries:
        children = [entry for entry in entries if entry.name != excluded_name]
    for entry in children:
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
        folder = os.open(name, FOLDER, dir_fd=within)
    except PermissionError:
        os.chmod(name, 0o700, dir_fd=within)
        folder = os.open(name, FOLDER, dir_fd=within)
    try:
        with suppress(PermissionError):
            os.fchmod(folder, 0o700)
        yield folder
    finally:
        os.close(folder)
