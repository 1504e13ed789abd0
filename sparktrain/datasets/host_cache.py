"""Groups of rows as files of this host: fetched once, mapped by every process, and evicted when they take too much.

In comes the number of a group, with a function that reads it from its store. A file that is there and intact is
mapped. Otherwise the process that gets the lock of the group fetches it, and the others wait for it, up to `wait_s`;
the lock is the kernel's, and any end of its process releases it. What goes out is a batch in mapped memory, which
stays valid when the file is deleted.

What must hold: only bytes that match their checksum become rows (`map_cached`), and a file has its name only when
it is complete, since it appears by rename. Any other process, of another run too, may delete files and folders at any
time, so each step makes its folders again. The files of one dataset are in a folder of their own, named by the boot
of this host and the digest of the manifest.
"""

import errno
import fcntl
import logging
import os
import re
import shutil
import stat
import struct
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import uuid4

import pyarrow as pa

from sparktrain.base.clock import Clock, SystemClock
from sparktrain.base.formatting import size as sized
from sparktrain.datasets.group_file import checksum
from sparktrain.errors import DataError, StoreTimeoutError
from sparktrain.store.private_folder import file_system_time, private_folder

_TRAILER = struct.Struct("<8sQI4x")
_MAGIC = b"STGROUP1"
FOLDER = "sparktrain-data"
SHARE_OF_DISK = 0.25
"""The part of the free disk that the cache takes unless the user sets a limit."""
_LOCK = "lock"
_SUFFIX = ".arrow"
_MANIFEST = "manifest.json"
_POLL_S = 0.02
_FLOCK = struct.Struct("hhqqi4x")
_SHRINK_TO = 0.9
_IN_WORK = ".new"
_FOLDER_NAME = re.compile(r"[0-9a-z]+-[0-9a-z]+")
_FILE_NAME = re.compile(r"(?:\d+|manifest)\.[0-9a-z.]+")
_FOLDER_TIMES = 20
"""How often folders that others delete at the same time are created once more."""
_ABANDONED_S = 3600.0
_MEASURED = 16
_MANIFEST_BYTE = 2**62
"""In the place of a group's number: the lock of the manifest."""
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

logger = logging.getLogger("sparktrain")


class HostCache:
    """The cached groups of one dataset. Any thread may use it."""

    def __init__(
        self,
        root: str | os.PathLike[str] | None,
        digest: str,
        limit_bytes: int | None = None,
        wait_s: float = 300.0,
        clock: Clock | None = None,
        quota_bytes: int | None = None,
    ) -> None:
        """`root` is a local directory, by default the system's temporary one; `limit_bytes` holds for all datasets, by
        default a share of the disk, and of `quota_bytes` where the machine may not write more.

        Raises DataError where no folder can be made there.
        """
        self._root = Path(root or tempfile.gettempdir())
        self._home = self._root / f"{FOLDER}-{os.getuid()}"
        self._folder = self._home / f"{_boot()}-{digest}"
        self._limit = limit_bytes
        self._quota = quota_bytes
        self._wait_s = wait_s
        self._clock = clock or SystemClock()
        self._make_folders()
        self._room = 0
        """Bytes to write before the usage is measured again."""

    def held(self, group: int) -> pa.RecordBatch | None:
        """The group, mapped, when this host has it and no byte of it has changed. Blocks on the local disk."""
        with suppress(CorruptCacheError):
            return self._mapped(group)
        return None

    def get(self, group: int, fetch: Callable[[], pa.RecordBatch]) -> pa.RecordBatch:
        """The group, mapped; `fetch` reads it from its store where no process of this host has done so.

        A file that is corrupt is replaced, with a warning. Blocks on the store, or on the process that fetches it.
        Raises what `fetch` raises, StoreTimeoutError when that process takes too long, and DataError when the disk is
        full.
        """
        if (batch := self.held(group)) is not None:
            return batch
        with self._fetching(group):
            # The process that held the lock before has fetched it perhaps.
            if (batch := self._intact(group)) is not None:
                return batch
            fetched = fetch()
            self._store(group, fetched)
        batch = self.held(group)
        return fetched if batch is None else batch  # evicted at once: the limit is smaller than a group

    def _mapped(self, group: int) -> pa.RecordBatch | None:
        """The group, mapped; None where this host does not have it. Raises CorruptCacheError."""
        path = self._path(group)
        try:
            batch = map_cached(path)
        except FileNotFoundError:
            return None
        with suppress(OSError):  # evicted meanwhile
            os.utime(path)
        return batch

    def _intact(self, group: int) -> pa.RecordBatch | None:
        """As `_mapped`, and deletes the file where it is corrupt; only the holder of the group's lock calls it.

        Without the lock, a slow reader of the corrupt file would delete the good one that another has put there.
        """
        try:
            return self._mapped(group)
        except CorruptCacheError as error:
            path = self._path(group)
            logger.warning("%s is corrupt (%s): it is fetched again", path, error)
            path.unlink(missing_ok=True)
            return None

    def content(self, read: Callable[[], bytes], intact: Callable[[bytes], bool]) -> bytes:
        """The dataset's manifest; `read` gets it from the store where no process of this host has done so.

        `intact` decides whether bytes of this host are those of the manifest; others are replaced, with a warning. What
        `read` returns is the caller's to check. Blocks and raises as `get`.
        """
        path = self._folder / _MANIFEST
        with suppress(OSError):
            if intact(content := path.read_bytes()):
                return content
        with self._fetching(_MANIFEST_BYTE):
            with suppress(OSError):
                if intact(content := path.read_bytes()):
                    return content
                logger.warning("%s is corrupt: it is fetched again", path)
            content = read()
            self._write(path, len(content), lambda new: new.write_bytes(content))
        return content

    def _path(self, group: int) -> Path:
        return self._folder / f"{group}{_SUFFIX}"

    @contextmanager
    def _fetching(self, group: int) -> Iterator[None]:
        """Hold the lock of a group."""
        try:
            descriptor = self._open_lock()
        except FileNotFoundError:  # a cleaner of temporary files has deleted the folder
            descriptor = self._made_lock()
        try:
            until = self._clock.now() + self._wait_s
            while not _locked(descriptor, group):
                if self._clock.now() > until:
                    raise StoreTimeoutError(
                        f"another process of this host reads {_part(group)} of a dataset for more than "
                        f"{self._wait_s:g} s (its lock is in {self._folder}): check it, or raise store_timeout"
                    )
                self._clock.pause(_POLL_S)
            yield
        finally:
            os.close(descriptor)

    def _store(self, group: int, batch: pa.RecordBatch) -> None:
        """Write the group's file; only the holder of its lock calls it."""

        self._make_folders()  # a cleaner may have deleted them during the fetch
        self._make_room(batch.nbytes)
        self._write(self._path(group), batch.nbytes, lambda new: write_cached(new, batch))

    def _write(self, path: Path, size: int, write: Callable[[Path], object]) -> None:
        """Have `write` write a file, and publish it; everything else is evicted when the disk is full."""
        work_path = path.with_suffix(f".{uuid4().hex}{_IN_WORK}")
        full = False
        attempts = _FOLDER_TIMES
        while True:
            try:
                write(work_path)
                # A rename does not disturb readers: those that have mapped the former file keep it.
                work_path.replace(path)
                return
            except FileNotFoundError as error:  # another run, or a cleaner, has deleted the folder meanwhile
                attempts -= 1
                if not attempts:
                    raise DataError(self._unusable(error)) from error
                self._make_folders()
            except OSError as error:
                with suppress(OSError):
                    work_path.unlink(missing_ok=True)
                if error.errno not in _FULL:
                    raise DataError(self._unusable(error)) from error
                if full:
                    raise DataError(self._full(size, error)) from error
                full = True
                self._evict(_Usage(self._home), 0)

    def _make_folders(self) -> None:
        """Make the folders of the user and of the dataset where they are missing. Raises DataError."""
        os.close(self._made_lock())

    def _made_lock(self) -> int:
        """The open file with the locks; its folders are made where they are missing. Raises DataError."""
        for retries in reversed(range(_FOLDER_TIMES)):
            try:
                self._home = private_folder(self._root, f"{FOLDER}-{os.getuid()}")
                self._folder = self._home / self._folder.name
                self._folder.mkdir(mode=0o700, exist_ok=True)
                return self._open_lock()
            except OSError as error:
                # One of the folders was deleted just now, by a cleaner or another run: before or within `mkdir`.
                if retries == 0 or not isinstance(error, FileNotFoundError | FileExistsError):
                    raise DataError(self._unusable(error)) from error
        raise AssertionError("the last error was raised")

    def _open_lock(self) -> int:
        return os.open(self._folder / _LOCK, os.O_RDWR | os.O_CLOEXEC | os.O_CREAT, 0o600)

    def _unusable(self, error: OSError) -> str:
        return f"no cache of data can be kept in {self._home}: {error}; set data_cache"

    def _full(self, needed: int, error: OSError) -> str:
        free = 0
        with suppress(OSError):
            free = shutil.disk_usage(self._home).free
        return (
            f"{sized(needed)} of data do not fit into the cache in {self._home}, where {sized(free)} are free "
            f"({error}): free space there, or set data_cache to a directory with more"
        )

    def _make_room(self, needed: int) -> None:
        """Evict the files that were used longest ago where the limit is exceeded otherwise."""
        self._room -= needed
        if self._room >= 0:
            return
        usage = _Usage(self._home)
        limit = self._limit
        if limit is None:
            try:
                free = shutil.disk_usage(self._home).free + usage.total
                limit = int(SHARE_OF_DISK * min(free, self._quota or free))
            except FileNotFoundError:  # the cache was deleted a moment ago: there is room
                return
        if usage.total + needed > limit:
            self._evict(usage, max(0, int(limit * _SHRINK_TO) - needed))
        self._room = (limit - usage.total) // _MEASURED

    def _evict(self, usage: "_Usage", down_to: int) -> None:
        for path, size in usage.oldest_first():
            if usage.total <= down_to:
                break
            with suppress(OSError):
                path.unlink()
                usage.total -= size
        for folder in usage.left_folders:
            with suppress(OSError):
                if os.listdir(folder) == [_LOCK]:  # else it has files of another program
                    (folder / _LOCK).unlink()
                    folder.rmdir()


class _Usage:
    """The files of all datasets in the cache of this user that this host may evict.

    Only what has the names of the cache counts, and no symbolic link is followed. A folder of another boot that was
    used since this host has booted belongs to a host that shares the directory: that one evicts it.
    """

    def __init__(self, home: Path) -> None:
        self._files: list[tuple[float, Path, int]] = []
        self.left_folders: list[Path] = []
        """Those of earlier boots of this host, with files that may lack bytes, and that no process uses."""
        self._now = 0.0
        """By the clock of the files."""
        boot = _boot()
        with suppress(FileNotFoundError):
            self._now = file_system_time(home)
            booted = self._now - SystemClock().now()
            for folder in list(home.iterdir()):
                if _FOLDER_NAME.fullmatch(folder.name) and not folder.is_symlink() and (folder / _LOCK).exists():
                    files = _files_in(folder)
                    # A host that shares this directory has another boot too, and its folders look like those of an
                    # earlier boot.
                    if not folder.name.startswith(f"{boot}-"):
                        if max(os.lstat(folder / _LOCK).st_mtime, *(used for used, _, _ in files), 0.0) >= booted:
                            continue
                        self.left_folders.append(folder)
                    self._files += files
        self.total = sum(size for _, _, size in self._files)

    def oldest_first(self) -> list[tuple[Path, int]]:
        """Files by their last use. Those that a process writes are kept while they grow."""
        cutoff = self._now - _ABANDONED_S
        candidates = [file for file in self._files if file[1].suffix == _SUFFIX or file[0] < cutoff]
        return [(path, size) for _, path, size in sorted(candidates, key=lambda candidate: candidate[0])]


def _files_in(folder: Path) -> list[tuple[float, Path, int]]:
    """Last use, path and size of each file that the cache has put into a folder."""
    files = []
    with suppress(FileNotFoundError), os.scandir(folder) as entries:
        for entry in entries:
            with suppress(FileNotFoundError):
                status = entry.stat(follow_symlinks=False)
                if _FILE_NAME.fullmatch(entry.name) and stat.S_ISREG(status.st_mode):
                    files.append((status.st_mtime, Path(entry.path), status.st_size))
    return files


def _locked(descriptor: int, group: int) -> bool:
    """Lock byte `group` of the file, without waiting: the lock belongs to the open file, not to the process."""
    try:
        # A POSIX lock belongs to the process: another thread that closes the file would release it.
        fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, group, 1, 0))
    except OSError as error:
        if error.errno in (errno.EAGAIN, errno.EACCES):
            return False
        raise
    return True


def _part(group: int) -> str:
    return "the manifest" if group == _MANIFEST_BYTE else f"group {group}"


def _boot() -> str:
    """Identifies the boot of this host: files from before a crash may lack bytes."""
    with suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip().replace("-", "")[:12]
    return "unknown"


class CorruptCacheError(Exception):
    """A file of the cache does not hold what was written; `HostCache` fetches the group again."""


def write_cached(path: Path, batch: pa.RecordBatch) -> None:
    """Write a group to `path`, which no other process reads yet. Blocks on the disk. Raises OSError.

    The file is an Arrow stream of one batch, and behind it a trailer with length and CRC-32C of the stream. Both are in
    one file, so that a rename publishes them at once.
    """
    with pa.OSFile(os.fspath(path), "wb") as sink, pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    with pa.memory_map(os.fspath(path)) as source:  # its pages are in memory still
        stream = source.read_buffer()
        trailer = _TRAILER.pack(_MAGIC, len(stream), checksum(stream))
    with path.open("r+b") as file:  # not "ab": that makes a new file where a cleaner has deleted this one meanwhile
        file.seek(0, os.SEEK_END)
        file.write(trailer)


def map_cached(path: Path) -> pa.RecordBatch:
    """The group in the file at `path`, without copying. Blocks on the disk.

    A wrong bit among numbers is a wrong value, and among the offsets of strings it makes readers reach outside of the
    file, which ends the process: the checksum is compared each time that the file is mapped. That reads the group once,
    at 6 GB/s, and a process keeps what it has mapped open. Raises FileNotFoundError where there is none, and
    CorruptCacheError for anything but what `write_cached` wrote.
    """
    try:
        with pa.memory_map(os.fspath(path)) as source:
            content = source.read_buffer()
        with pa.ipc.open_stream(_verified(content)) as reader:
            batch = reader.read_next_batch()
        # Offsets that reach outside of the file end the process by SIGSEGV, and each retry of its trial too.
        _check_offsets(batch)
    except FileNotFoundError:
        raise
    except (pa.ArrowException, OSError, StopIteration) as error:
        raise CorruptCacheError(str(error) or type(error).__name__) from error
    return batch


def _verified(content: pa.Buffer) -> pa.Buffer:
    """The stream of a file. Raises CorruptCacheError where a byte of it differs from those that were written."""
    size = len(content) - _TRAILER.size
    if size < 0:
        raise CorruptCacheError(f"it has {len(content)} bytes")
    magic, length, expected = _TRAILER.unpack(content.slice(size))
    if magic != _MAGIC or length != size:
        raise CorruptCacheError("it does not end with its checksum")
    stream = content.slice(0, size)
    if (actual := checksum(stream)) != expected:
        raise CorruptCacheError(f"its CRC-32C is {actual:08x}, and {expected:08x} was written")
    return stream


def _check_offsets(batch: pa.RecordBatch) -> None:
    """Check that no value reaches outside of the memory of `batch`. Raises ArrowInvalid.

    Strings count as bytes: text that is no UTF-8 is the user's, and harmless here.
    """
    for column in batch.columns:
        plain = column.cast(pa.binary()) if pa.types.is_string(column.type) else column
        plain.validate(full=True)
