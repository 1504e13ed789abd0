"""Runs kept in a directory of a local or network file system."""

import errno
import hashlib
import os
import pwd
import stat
from collections.abc import Iterator, Sequence
from contextlib import suppress
from io import FileIO
from pathlib import Path
from uuid import uuid4

from sparktrain.clock import SystemClock
from sparktrain.errors import BugError, RunDirectoryError
from sparktrain.spec.store import StoreAddress
from sparktrain.store.base import (
    PIECE_BYTES,
    UNPUBLISHED,
    FileInfo,
    Leftover,
    NewFile,
    Store,
    WriteStream,
    Written,
    check_path,
)

_NO_FILE = (FileNotFoundError, NotADirectoryError, IsADirectoryError)
_NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS)

_CAUSES = {
    errno.EACCES: ("permission denied for {file}", "choose another directory, or let this user write there"),
    errno.EPERM: ("permission denied for {file}", "choose another directory, or let this user write there"),
    errno.EROFS: ("the file system is mounted read-only", "choose a directory elsewhere"),
    errno.ENOSPC: ("the disk is full", "free some space, or choose a directory on another disk"),
    errno.EDQUOT: ("the disk quota is used up", "free some space, or choose a directory on another disk"),
    errno.EEXIST: ("{file} is a file, not a directory", "choose another directory, or move that file away"),
    errno.ENAMETOOLONG: ("its path is too long", "choose a shorter one"),
    errno.EOPNOTSUPP: (
        "its file system has no hard links, which make a file appear at once and only once",
        "choose a directory on a local disk or NFS",
    ),
}


class LocalStore(Store):
    """A directory. Safe between the processes of one host, and between hosts on NFS.

    Files and folders get the modes that the umask gives, usually 0644 and 0755: a run directory is there for its user
    to look into, and for TensorBoard, which may run as somebody else.
    """

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self.root = Path(os.path.abspath(root))
        self._durable: set[Path] = set()
        """Folders beneath the root whose entry in their parent is on disk."""

    @property
    def address(self) -> StoreAddress:
        """See base class."""
        return StoreAddress(str(self.root))

    def where(self, path: str = "") -> str:
        """See base class. The absolute path of a local file."""
        return str(self._file(path) if path else self.root)

    def probe(self) -> None:
        """See base class."""
        try:
            self._probe(f"probe-{uuid4().hex}")
        except OSError as error:
            raise RunDirectoryError(self._explain(error)) from error

    def _probe(self, path: str) -> None:
        created, again = self.put_if_absent(path, b"sparktrain"), self.put_if_absent(path, b"overwritten")
        content = self.read(path)
        self.delete(path)
        if (created, again, content) != (True, False, b"sparktrain"):
            raise OSError(errno.EIO, "a file that was just created does not read back as it was written")

    def _explain(self, error: OSError) -> str:
        cause, step = _CAUSES.get(error.errno or 0, (error.strerror or str(error), "choose another directory"))
        cause = cause.replace("{file}", str(error.filename or self.root))
        return f"run directory {self.root} cannot be written by user {_user()}: {cause}; {step}"

    def put_if_absent(self, path: str, data: bytes) -> bool:
        """See base class."""
        target = self._file(path)
        self._make_folder(target.parent)
        unpublished = target.parent / f"{UNPUBLISHED}{uuid4().hex}"
        try:
            created = not os.path.lexists(target) and _publish(unpublished, target, data)
        finally:
            unpublished.unlink(missing_ok=True)
        # Also when it was there already: whoever created it may not have come this far, and the caller builds on it.
        _sync_folder(target.parent)
        return created

    def read(self, path: str) -> bytes:
        """See base class."""
        target = self._file(path)
        try:
            return target.read_bytes()
        except _NO_FILE as error:
            raise FileNotFoundError(errno.ENOENT, "no such file in the store", str(target)) from error

    def read_range(self, path: str, start: int, length: int) -> bytes:
        """See base class."""
        target = self._file(path)
        try:
            with open(target, "rb") as file:
                file.seek(start)
                return file.read(length)
        except _NO_FILE as error:
            raise FileNotFoundError(errno.ENOENT, "no such file in the store", str(target)) from error

    def stat(self, path: str) -> FileInfo:
        """See base class."""
        target = self._file(path)
        try:
            found = os.stat(target)
        except _NO_FILE as error:
            raise FileNotFoundError(errno.ENOENT, "no such file in the store", str(target)) from error
        if not stat.S_ISREG(found.st_mode):
            raise FileNotFoundError(errno.ENOENT, "no such file in the store", str(target))
        return FileInfo(found.st_size, found.st_mtime)

    def pieces(self, path: str) -> Iterator[bytes]:
        """See base class."""
        target = self._file(path)
        try:
            with open(target, "rb", buffering=0) as file:
                while piece := file.read(PIECE_BYTES):
                    yield piece
        except _NO_FILE as error:
            raise FileNotFoundError(errno.ENOENT, "no such file in the store", str(target)) from error

    def exists(self, path: str) -> bool:
        """See base class."""
        try:
            return stat.S_ISREG(os.stat(self._file(path)).st_mode)
        except _NO_FILE:
            return False

    def list(self, prefix: str = "") -> list[str]:
        """See base class."""
        found = []
        top = self._file(prefix) if prefix else self.root
        for folder, _, names in os.walk(top, onerror=_raise_unless_gone):
            relative = Path(folder).relative_to(self.root)
            found += [str(relative / name) for name in names if not name.startswith(UNPUBLISHED)]
        return sorted(found)

    def entries(self, prefix: str = "") -> Sequence[str]:
        """See base class."""
        try:
            with os.scandir(self._file(prefix) if prefix else self.root) as found:
                return sorted(
                    each.name + "/" * each.is_dir() for each in found if not each.name.startswith(UNPUBLISHED)
                )
        except _NO_FILE:
            return []

    def create(self, path: str) -> NewFile:
        """See base class."""
        target = self._file(path)
        self._make_folder(target.parent)
        if os.path.lexists(target):
            raise FileExistsError(errno.EEXIST, "there is such a file in the store already", str(target))
        unpublished = target.parent / f"{UNPUBLISHED}{uuid4().hex}"
        return LocalNewFile(open(unpublished, "xb", buffering=0), unpublished, target)

    def open_stream(self, path: str) -> WriteStream:
        """See base class."""
        target = self._file(path)
        self._make_folder(target.parent)
        return LocalStream(open(target, "xb", buffering=0), target.parent)

    def delete(self, path: str) -> None:
        """See base class."""
        try:
            self._file(path).unlink()
        except _NO_FILE:
            return

    def unpublished(self, prefix: str, older_than_s: float) -> Sequence[Leftover]:
        """See base class."""
        before, found = SystemClock().wall() - older_than_s, []
        for folder, _, names in os.walk(self._file(prefix), onerror=_raise_unless_gone):
            for name in (each for each in names if each.startswith(UNPUBLISHED)):
                with suppress(FileNotFoundError):  # its writer is done by now
                    seen = os.stat(os.path.join(folder, name))
                    if seen.st_mtime < before:
                        found.append(Leftover(os.path.join(folder, name), seen.st_size))
        return sorted(found, key=lambda each: each.name)

    def discard_unpublished(self, left: Leftover) -> None:
        """See base class."""
        path = Path(left.name)
        if not path.name.startswith(UNPUBLISHED) or not path.is_relative_to(self.root):
            raise BugError(f"{left.name} is nothing that a writer left in {self.root}")
        path.unlink(missing_ok=True)

    def _file(self, path: str) -> Path:
        return self.root / check_path(path)

    def _make_folder(self, folder: Path) -> None:
        """Make `folder` and what is missing above it; durable from the root downwards."""
        if folder in self._durable and folder.is_dir():
            return
        missing = not folder.is_dir()
        beneath_root = self.root in folder.parents
        if missing or beneath_root:
            self._make_folder(folder.parent)
            folder.mkdir(exist_ok=True)
            # Another process may have made the folder without having synced it yet.
            _sync_folder(folder.parent)
        if beneath_root:
            self._durable.add(folder)


class LocalStream(WriteStream):
    """A growing file: what `write` has taken is visible at once."""

    def __init__(self, file: FileIO, folder: Path) -> None:
        self._file = file
        self._folder = folder

    def write(self, data: bytes) -> None:
        """See base class."""
        _write_all(self._file, data)

    def close(self) -> None:
        """See base class."""
        if self._file.closed:
            return
        try:
            os.fsync(self._file.fileno())
        finally:
            self._file.close()
        _sync_folder(self._folder)


class LocalNewFile(NewFile):
    """A file under another name, until it is linked to its own."""

    def __init__(self, file: FileIO, unpublished: Path, target: Path) -> None:
        self._file = file
        self._unpublished = unpublished
        self._target = target
        self._digest, self._size = hashlib.sha256(), 0

    def write(self, data: bytes) -> None:
        """See base class."""
        _write_all(self._file, data)
        self._digest.update(data)
        self._size += len(data)

    def publish(self) -> Written:
        """See base class."""
        try:
            os.fsync(self._file.fileno())
            created = _link(self._unpublished, self._target)
        finally:
            self.discard()
        _sync_folder(self._target.parent)
        if not created:
            raise FileExistsError(errno.EEXIST, "there is such a file in the store already", str(self._target))
        return Written(self._size, self._digest.hexdigest())

    def discard(self) -> None:
        """See base class."""
        with suppress(OSError):
            self._file.close()
            self._unpublished.unlink(missing_ok=True)


def _write_all(file: FileIO, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[file.write(rest) :]


def _publish(unpublished: Path, target: Path, data: bytes) -> bool:
    """Write `data` durably, then give it the name `target`, unless that is taken: whether it has that name now."""
    with open(unpublished, "xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    return _link(unpublished, target)


def _link(unpublished: Path, target: Path) -> bool:
    """Give a durable file the name `target`, unless that is taken: whether it has that name now."""
    try:
        os.link(unpublished, target)
    except OSError as error:
        if os.stat(unpublished).st_nlink == 2:
            return True  # NFS repeats a request whose answer was lost, and the repeated one fails
        if error.errno in _NO_LINKS:
            raise OSError(errno.EOPNOTSUPP, "the file system has no hard links", str(target)) from error
        if error.errno == errno.EEXIST:
            return False
        raise
    return True


def _user() -> str:
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _raise_unless_gone(error: OSError) -> None:
    if not isinstance(error, _NO_FILE):
        raise error
