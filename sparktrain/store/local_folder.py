"""A folder of a local store with a part that belongs to a run: what that is, and the deletion of that part alone.

Folders are opened by their descriptors, each below the one before, and never through a symbolic link. A mount point
below the folder is not crossed. So a link or a mount that appears during a deletion leads nowhere either.
"""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from sparktrain.store import folder_removal
from sparktrain.store.base import UNPUBLISHED_NAME, OwnsPath

_LINK = (errno.ELOOP, errno.ENOTDIR)
"""What the kernel answers when a link, or a file, is opened as a folder."""
_OCCUPIED = (errno.ENOTEMPTY, errno.EEXIST, errno.EBUSY)
"""A folder that is not empty, or on which something is mounted."""
_UNSTEADY = ("fuse", "9p", "cifs", "smb")
"""The starts of the names of file systems where the same folder may have another number at each mount."""


class OwnFile(NamedTuple):
    """A file of the caller."""

    path: str
    """In the store."""
    size: int
    modified: float
    """Seconds since 1970."""

    @property
    def published(self) -> bool:
        """Whether it is complete."""
        return UNPUBLISHED_NAME.fullmatch(self.path.rpartition("/")[2]) is None


class OwnPart(NamedTuple):
    """The caller's part of a folder, as it was when it was looked at."""

    folders: list[str]
    """Each before those in it."""
    files: list[OwnFile]
    strays: list[str]
    """All else: see `FolderSurvey.strays`."""


def keeps_numbers(device: int) -> bool:
    """Whether a folder of this device has the same number at each mount, on each host."""
    try:
        mounts = Path("/proc/self/mountinfo").read_text(errors="replace").splitlines()
    except OSError:  # not on Linux
        return True
    name = f"{os.major(device)}:{os.minor(device)}"
    kinds = (mount.partition(" - ")[2] for mount in mounts if mount.split(" ", 3)[2] == name)
    return not any(kind.startswith(_UNSTEADY) for kind in kinds)


def own_part(root: Path, top: str, owns: OwnsPath) -> OwnPart:
    """The caller's part of the folder `top` of the store at `root`. Blocks on the disk. Raises OSError."""
    part = OwnPart([], [], [])
    pending = [top] if top else []
    while pending:
        folder = pending.pop()
        try:
            with _opened(root, top, folder) as descriptor:
                part.folders.append(folder)
                pending += _scan(descriptor, folder, owns, part)
        except FileNotFoundError:
            continue
        except OSError as error:
            if error.errno not in (*_LINK, errno.EXDEV):
                raise
            part.strays.append(folder + "/" * (error.errno == errno.EXDEV))
    return part


def delete_files(root: Path, top: str, folder: str, names: list[str]) -> None:
    """Delete the files `names` of `folder`, which is `top` or beneath it, and then the folder if it is empty.

    Blocks on the disk. Raises OSError. What is gone already, or was replaced by a link, is not followed.
    """
    try:
        with _opened(root, top, folder) as descriptor:
            for name in names:
                try:
                    os.unlink(name, dir_fd=descriptor)
                except (FileNotFoundError, IsADirectoryError):
                    continue
                except OSError as error:
                    if error.errno != errno.EBUSY:  # something is mounted on it
                        raise
        above, _, name = folder.rpartition("/")
        with _opened(root, top, above) as descriptor:
            os.rmdir(name, dir_fd=descriptor)
    except FileNotFoundError:
        return
    except OSError as error:
        if error.errno not in (*_LINK, *_OCCUPIED, errno.EXDEV):
            raise


def way_out(root: Path, path: str, folder: str) -> str | None:
    """See `Store.way_out`. A store may have runs in a mounted folder directly beneath its root. Raises OSError."""
    place = folder
    parts = path[len(folder) :].strip("/").split("/")
    for part in parts:
        place = f"{place}/{part}" if place else part
        try:
            # With O_PATH a link in the last part is opened itself; with other flags O_NOFOLLOW makes that an error.
            descriptor = os.open(root / place, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
        except (FileNotFoundError, NotADirectoryError):
            return None
        try:
            mode = os.fstat(descriptor).st_mode
            if stat.S_ISLNK(mode) or (folder and stat.S_ISDIR(mode) and folder_removal.is_mounted(descriptor)):
                return place
        finally:
            os.close(descriptor)
    return None


def _scan(descriptor: int, folder: str, owns: OwnsPath, part: OwnPart) -> list[str]:
    """Sort the entries of an open folder into `part`; returns the folders to look into."""
    below = []
    with os.scandir(descriptor) as entries:
        for entry in entries:
            path = f"{folder}/{entry.name}"
            if entry.is_dir(follow_symlinks=False):
                below.append(path) if owns(f"{path}/") else part.strays.append(f"{path}/")
                continue
            with suppress(FileNotFoundError):  # deleted meanwhile
                file_stat = entry.stat(follow_symlinks=False)
                accepted = owns(f"{folder}/") if UNPUBLISHED_NAME.fullmatch(entry.name) else owns(path)
                if accepted and stat.S_ISREG(file_stat.st_mode):
                    part.files.append(OwnFile(path, file_stat.st_size, file_stat.st_mtime))
                else:
                    part.strays.append(path)
    return below


@contextmanager
def _opened(root: Path, top: str, folder: str) -> Iterator[int]:
    """Open a folder of the store. Raises OSError: ENOTDIR for a link in the way, EXDEV for a mount below `top`."""
    descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        mount = None
        below_top = top.count("/") + 1
        for number, part in enumerate(folder.split("/") if folder else (), 1):
            inner = os.open(part, folder_removal.FOLDER, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = inner
            if number == below_top:
                mount = folder_removal.mount_of(descriptor)
            elif number > below_top and folder_removal.mount_of(descriptor) != mount:
                raise OSError(errno.EXDEV, "another file system is mounted there", os.fspath(root / folder))
        yield descriptor
    finally:
        os.close(descriptor)
