"""A store in a directory of a local or network file system."""

import errno
import hashlib
import os
import stat
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from io import BufferedReader, FileIO
from pathlib import Path
from typing import TypeVar
from uuid import uuid4

from sparktrain.base.clock import Clock
from sparktrain.base.spans import span
from sparktrain.config.store_address import STORE_TIMEOUT_S, StoreAddress
from sparktrain.errors import BugError, RunDirectoryError, StoreError
from sparktrain.store import local_folder
from sparktrain.store.base import (
    UNPUBLISHED,
    UNPUBLISHED_NAME,
    FileInfo,
    FolderSurvey,
    Leftover,
    NewFile,
    OwnsPath,
    Store,
    Usage,
    WriteStream,
    Written,
    check_path,
    exists_error,
    missing_error,
    process_user,
)
from sparktrain.store.local_calls import LocalCall, explained
from sparktrain.store.local_folder import OwnPart

T = TypeVar("T")

_NO_FILE = (FileNotFoundError, NotADirectoryError, IsADirectoryError)
_FOLDER_TIMES = 5
"""How often a folder that vanishes before its first file is there is created once more."""
_NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS)


class LocalStore(Store):
    """A store in a directory. Safe between the processes of one host, and between hosts on NFS.

    Files and folders get the modes of the umask, usually 0644 and 0755: users look into a run directory, and so does
    TensorBoard, which may run as another user.

    Errors that may be transient are retried for `timeout_s` seconds: a full disk, or a file server without answer.
    A failed sync of a large file or log is not retried, because the kernel has dropped the data: write it again.
    """

    def __init__(
        self,
        root: str | os.PathLike[str],
        timeout_s: float = STORE_TIMEOUT_S,
        *,
        clock: Clock | None = None,
    ) -> None:
        self.root = Path(os.path.abspath(root))
        self._timeout_s = timeout_s
        self._clock = clock
        self._durable: set[Path] = set()
        """Folders beneath the root that are durable in their parent."""

    @property
    def address(self) -> StoreAddress:
        """See base class."""
        return StoreAddress(str(self.root), timeout_s=self._timeout_s)

    def where(self, path: str = "") -> str:
        """See base class. The absolute path of a local file."""
        return str(self._file(path) if path else self.root)

    def probe(self) -> None:
        """See base class. Does not retry: a user waits for it."""
        try:
            LocalStore(self.root, 0.0)._probe(f"probe-{uuid4().hex}")
        except OSError as error:
            raise RunDirectoryError(self._explain(error)) from error

    def _probe(self, path: str) -> None:
        created = self.put_if_absent(path, b"sparktrain")
        again = self.put_if_absent(path, b"overwritten")
        content = self.read(path)
        self.delete(path)
        if (created, again, content) != (True, False, b"sparktrain"):
            raise OSError(errno.EIO, "a file that was just created does not read back as it was written")

    def _explain(self, error: OSError) -> str:
        has_root = isinstance(error, StoreError) and isinstance(error.__cause__, OSError)
        cause, step = explained(error.__cause__ if has_root else error, self.root)  # type: ignore[arg-type] # it is one
        return f"run directory {self.root} cannot be written by user {process_user()}: {cause}; {step}"

    def put_if_absent(self, path: str, data: bytes) -> bool:
        """See base class."""
        target = self._file(path)
        call = self._call(path)

        def put() -> bool:
            created = not call.ask(lambda: os.path.lexists(target)) and _publish(call, target, data)
            # Also when it existed already: its writer may not have synced the folder yet, and the caller relies on it.
            call.ask(lambda: _sync_folder(target.parent))
            return created

        return self._in_folder(call, target.parent, put)

    def read(self, path: str) -> bytes:
        """See base class."""

        def read(target: Path) -> bytes:
            with _regular(target) as file:
                return file.read()

        return self._of_file(path, read)

    def read_range(self, path: str, start: int, length: int) -> bytes:
        """See base class."""

        def read(target: Path) -> bytes:
            with _regular(target) as file:
                file.seek(start)
                return file.read(length)

        return self._of_file(path, read)

    def stat(self, path: str) -> FileInfo:
        """See base class."""

        def look(target: Path) -> FileInfo:
            file_stat = os.stat(target)
            if not stat.S_ISREG(file_stat.st_mode):
                raise missing_error(str(target))
            identity = f"{file_stat.st_dev}-{file_stat.st_ino}"
            return FileInfo(file_stat.st_size, file_stat.st_mtime, f"{file_stat.st_mtime_ns} ns", identity)

        return self._of_file(path, look)

    def list(self, prefix: str = "") -> list[str]:
        """See base class."""
        top = self._file(prefix) if prefix else self.root

        def walk() -> list[str]:
            paths = []
            for folder, _, names in os.walk(top, onerror=_raise_unless_gone):
                relative = Path(folder).relative_to(self.root)
                paths += [str(relative / name) for name in names if not name.startswith(UNPUBLISHED)]
            return sorted(paths)

        return self._call(prefix).ask(walk)

    def entries(self, prefix: str = "") -> Sequence[str]:
        """See base class."""

        def scan() -> list[str]:
            with os.scandir(self._file(prefix) if prefix else self.root) as listing:
                return sorted(
                    entry.name + "/" * _is_folder(entry) for entry in listing if not entry.name.startswith(UNPUBLISHED)
                )

        try:
            return self._call(prefix).ask(scan)
        except _NO_FILE:
            return []

    def usage(self, prefix: str = "") -> Usage:
        """See base class."""
        top = self._file(prefix) if prefix else self.root

        def walk() -> Usage:
            files = size = 0
            for folder, _, names in os.walk(top, onerror=_raise_unless_gone):
                for name in (file_name for file_name in names if not file_name.startswith(UNPUBLISHED)):
                    try:
                        file_stat = os.stat(os.path.join(folder, name))
                    except OSError as error:
                        # Deleted meanwhile, or a link to nothing or to itself, which has no size.
                        if error.errno not in (errno.ENOENT, errno.ELOOP):
                            raise
                        continue
                    size += file_stat.st_size
                    files += 1
            return Usage(files, size)

        return self._call(prefix).ask(walk)

    def create(self, path: str) -> NewFile:
        """See base class."""
        target = self._file(path)
        call = self._call(path)
        unpublished = target.parent / f"{UNPUBLISHED}{uuid4().hex}"

        def open_new() -> FileIO:
            if os.path.lexists(target):
                raise exists_error(str(target))
            return _opened(unpublished)

        file = self._in_folder(call, target.parent, lambda: call.ask(open_new))
        return LocalNewFile(file, unpublished, target, partial(self._call, path))

    def open_stream(self, path: str) -> WriteStream:
        """See base class."""
        target = self._file(path)
        call = self._call(path)
        file = self._in_folder(call, target.parent, lambda: call.ask(lambda: _opened(target)))
        return LocalStream(file, target, partial(self._call, path))

    def delete(self, path: str) -> None:
        """See base class."""
        with suppress(*_NO_FILE):
            self._call(path).ask(self._file(path).unlink)

    def way_out(self, path: str, folder: str = "") -> str | None:
        """See base class."""
        check_path(path)
        return self._call(path).ask(partial(local_folder.way_out, self.root, path, folder))

    def folder_identity(self, path: str) -> str:
        """See base class. The device and the number of the folder; hard links of all its files have another one."""
        target = self._file(path)

        def look() -> str:
            try:
                folder_stat = os.stat(target)
            except _NO_FILE:
                return ""
            number = f"{folder_stat.st_dev}-{folder_stat.st_ino}"
            return number if local_folder.keeps_numbers(folder_stat.st_dev) else ""

        return self._call(path).ask(look)

    def survey(self, path: str, owns: OwnsPath) -> FolderSurvey:
        """See base class."""
        part = self._own_part(path, owns)
        return FolderSurvey(Usage(len(part.files), sum(file.size for file in part.files)), tuple(sorted(part.strays)))

    def delete_folder(self, path: str, owns: OwnsPath) -> None:
        """See base class. Each folder in it has its own deadline."""
        part = self._own_part(path, owns)
        names = defaultdict[str, list[str]](list)
        for file in part.files:
            folder, _, name = file.path.rpartition("/")
            names[folder].append(name)
        for folder in reversed(part.folders):
            self._call(folder).ask(partial(local_folder.delete_files, self.root, path, folder, names[folder]))

    def unpublished(self, prefix: str, older_than_s: float, owns: OwnsPath | None = None) -> Sequence[Leftover]:
        """See base class."""
        files = [file for file in self._own_part(prefix, owns or (lambda path: True)).files if not file.published]
        latest = self.now(prefix) - older_than_s if files else 0.0
        leftovers = (Leftover(str(self.root / file.path), file.size) for file in files if file.modified <= latest)
        return sorted(leftovers, key=lambda leftover: leftover.name)

    def _own_part(self, path: str, owns: OwnsPath) -> OwnPart:
        check_path(path)
        return self._call(path).ask(partial(local_folder.own_part, self.root, path, owns))

    def discard_unpublished(self, leftover: Leftover) -> None:
        """See base class."""
        path = Path(leftover.name)
        if UNPUBLISHED_NAME.fullmatch(path.name) is None or not path.is_relative_to(self.root):
            raise BugError(f"{leftover.name} is not a leftover of a writer in {self.root}")
        self._call_of(path).ask(lambda: path.unlink(missing_ok=True))

    def _call(self, path: str) -> LocalCall:
        return self._call_of(self._file(path) if path else self.root)

    def _call_of(self, file: Path) -> LocalCall:
        return LocalCall(file, self._timeout_s, self._clock)

    def _of_file(self, path: str, look: Callable[[Path], T]) -> T:
        """The result of `look` on a file; FileNotFoundError when there is none."""
        target = self._file(path)
        try:
            return self._call(path).ask(lambda: look(target))
        except _NO_FILE as error:
            raise missing_error(str(target)) from error

    def _file(self, path: str) -> Path:
        return self.root / check_path(path)

    def _in_folder(self, call: LocalCall, folder: Path, step: Callable[[], T]) -> T:
        """The result of `step`, which needs the folder: a removal may delete it, while it is empty, at any time."""
        for _ in range(_FOLDER_TIMES - 1):
            with suppress(FileNotFoundError):
                call.ask(lambda: self._make_folder(folder))
                return step()
        call.ask(lambda: self._make_folder(folder))
        return step()

    def _make_folder(self, folder: Path) -> None:
        """Create `folder` and its missing parents; durable from the root downwards."""
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
    """A growing file: written data is visible at once."""

    def __init__(self, file: FileIO, path: Path, call: Callable[[], LocalCall]) -> None:
        self._file = file
        self._path = path
        self._call = call

    def write(self, data: bytes) -> None:
        """See base class."""
        _write_all(self._file, data, self._call())

    def close(self) -> None:
        """See base class."""
        if self._file.closed:
            return
        call = self._call()
        try:
            _sync(self._file, call)
        finally:
            self._file.close()
        call.ask(lambda: _sync_folder(self._path.parent))


class LocalNewFile(NewFile):
    """A file under a temporary name, until it is linked to its own."""

    def __init__(self, file: FileIO, unpublished: Path, target: Path, call: Callable[[], LocalCall]) -> None:
        self._file = file
        self._unpublished = unpublished
        self._target = target
        self._call = call
        self._digest = hashlib.sha256()
        self._size = 0

    def write(self, data: bytes | memoryview) -> None:
        """See base class."""
        _write_all(self._file, data, self._call())
        self._digest.update(data)
        self._size += len(data)

    def publish(self) -> Written:
        """See base class."""
        call = self._call()
        try:
            # First the bytes, then the name: after a power failure a name that came first may lead to an empty file.
            _sync(self._file, call)
            created = call.ask(lambda: _link(self._unpublished, self._target))
        finally:
            self.discard()
        call.ask(lambda: _sync_folder(self._target.parent))
        if not created:
            raise exists_error(str(self._target))
        return Written(self._size, self._digest.hexdigest())

    def discard(self) -> None:
        """See base class."""
        with suppress(OSError):
            self._file.close()
            self._unpublished.unlink(missing_ok=True)


def _regular(path: Path) -> BufferedReader:
    """The file, open for reading. Raises FileNotFoundError for a pipe or a device, as for what is not there.

    Without O_NONBLOCK a named pipe would have its reader wait for a writer, without an end.
    """
    file = open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK))  # noqa: SIM115
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise missing_error(str(path))
    return file


def _opened(path: Path) -> FileIO:
    """A new file, open for writing."""
    return open(path, "xb", buffering=0)


def _write_all(file: FileIO, data: bytes | memoryview, call: LocalCall) -> None:
    remaining = memoryview(data)
    while remaining:
        remaining = remaining[call.ask(partial(file.write, remaining)) :]


def _sync(file: FileIO, call: LocalCall) -> None:
    """Sync without a retry: the kernel drops what it could not write, and would report success the next time."""
    try:
        os.fsync(file.fileno())
    except OSError as error:
        raise call.failed(error) from error


def _publish(call: LocalCall, target: Path, data: bytes) -> bool:
    """Write `data` durably, then link it to `target` unless that exists: whether it did."""
    unpublished = call.ask(lambda: _written(target.parent, data))
    try:
        return call.ask(lambda: _link(unpublished, target))
    finally:
        with suppress(OSError):
            unpublished.unlink(missing_ok=True)


def _written(folder: Path, data: bytes) -> Path:
    """Write a durable file under a temporary name; leaves none when it raises."""
    unpublished = folder / f"{UNPUBLISHED}{uuid4().hex}"
    try:
        with open(unpublished, "xb") as file:
            file.write(data)
            file.flush()
            with span("fsync"):
                os.fsync(file.fileno())
    except OSError:
        with suppress(OSError):
            unpublished.unlink(missing_ok=True)
        raise
    return unpublished


def _link(unpublished: Path, target: Path) -> bool:
    """Link a durable file to `target` unless that exists: whether it did."""
    try:
        # A link and no rename: a rename replaces a file of that name.
        os.link(unpublished, target)
    except OSError as error:
        if os.stat(unpublished).st_nlink == 2:
            return True  # NFS repeats a request when its answer was lost, and the repeated one fails
        if error.errno in _NO_LINKS:
            raise OSError(errno.EOPNOTSUPP, "the file system has no hard links", str(target)) from error
        if error.errno == errno.EEXIST:
            return False
        raise
    return True


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with span("fsync"):
            os.fsync(handle)
    finally:
        os.close(handle)


def _is_folder(entry: "os.DirEntry[str]") -> bool:
    """Whether it is a folder; a link to itself is none, and hides nothing else in its folder."""
    try:
        return entry.is_dir()
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        return False


def _raise_unless_gone(error: OSError) -> None:
    # Without this `os.walk` leaves out a folder that it cannot read, and a listing would look complete.
    if not isinstance(error, _NO_FILE):
        raise error
