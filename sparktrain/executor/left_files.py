"""Finds the files that training functions leave, and opens them without blocking, whatever their kind."""

import os
import stat
from pathlib import Path
from typing import BinaryIO

from msgspec import Struct

_OPEN = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_KINDS = {
    stat.S_IFDIR: "folder",
    stat.S_IFLNK: "symbolic link",
    stat.S_IFIFO: "named pipe",
    stat.S_IFSOCK: "socket",
    stat.S_IFCHR: "device",
    stat.S_IFBLK: "device",
}


class FolderListing(Struct, frozen=True):
    """The content of a folder, at any depth."""

    files: tuple[Path, ...]
    """Regular files, sorted."""
    problems: tuple[str, ...]
    """Entries that cannot be uploaded, with reasons. Without symbolic links: their targets may belong to others."""


def open_regular(path: Path, flags: int = os.O_RDONLY) -> BinaryIO:
    """Open the file `path`, unbuffered. Never waits for another process, as opening a named pipe would.

    Raises FileNotFoundError, and OSError for anything but a regular file.
    """
    fd = os.open(path, flags | _OPEN)
    try:
        mode = os.fstat(fd).st_mode
        if not stat.S_ISREG(mode):
            raise OSError(f"{path.name} is no file but a {_kind(mode)}")
        return os.fdopen(fd, "r+b" if flags & os.O_RDWR else "rb", buffering=0)
    except BaseException:
        os.close(fd)
        raise


def find(folder: Path) -> FolderListing:
    """All regular files below `folder`, which may be missing. Blocks on local disk; raises nothing."""
    files: list[Path] = []
    problems: list[str] = []
    pending = [folder]
    while pending:
        at = pending.pop()
        try:
            if at.is_symlink():
                continue
            with os.scandir(at) as entries:
                for entry in entries:
                    _sort(entry, pending, files, problems, folder)
        except FileNotFoundError:
            continue  # the function has removed it
        except OSError as error:
            problems.append(f"{_name(at, folder)}: {error.strerror or error}")
    return FolderListing(tuple(sorted(files)), tuple(sorted(problems)))


def _sort(entry: "os.DirEntry[str]", folders: list[Path], files: list[Path], problems: list[str], top: Path) -> None:
    path = Path(entry.path)
    if not _is_text(entry.name):
        problems.append(f"{_name(path, top)}: its name is not UTF-8")
    elif entry.is_dir(follow_symlinks=False):
        folders.append(path)
    elif entry.is_file(follow_symlinks=False):
        files.append(path)
    elif not entry.is_symlink():
        mode = entry.stat(follow_symlinks=False).st_mode
        problems.append(f"{_name(path, top)}: is no file but a {_kind(mode)}")


def _name(path: Path, top: Path) -> str:
    """The path in a form for messages and people."""
    name = path.relative_to(top.parent).as_posix().encode(errors="surrogateescape").decode(errors="backslashreplace")
    return name if len(name) <= 200 else f"{name[:100]}...{name[-97:]}"


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _kind(mode: int) -> str:
    return _KINDS.get(stat.S_IFMT(mode), "special file")
