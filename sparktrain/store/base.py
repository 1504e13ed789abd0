"""The contract of a store: the storage that outlives the processes of a run."""

import errno
import os
import pwd
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from uuid import uuid4

from msgspec import Struct

from sparktrain.config.store_address import StoreAddress
from sparktrain.errors import BugError
from sparktrain.store.parallel import spread

UNPUBLISHED = ".tmp-"
"""Prefix of the names of files that a store is still writing: never listed, and refused for any other use."""

PIECE_BYTES = 4 * 2**20
"""The largest piece that `Store.pieces` yields."""

UNPUBLISHED_NAME = re.compile(re.escape(UNPUBLISHED) + "[0-9a-f]{32}")
"""The names that a store gives to such files: one that only starts alike belongs to another program."""

OwnsPath = Callable[[str], bool]
"""Whether a path of a store belongs to the caller. Paths of folders end with a slash, as in `Store.entries`."""

_READERS = 16
"""How many files `Store.usage` asks about concurrently."""


class FileInfo(Struct, frozen=True):
    """A file of a store."""

    size: int
    """In bytes."""
    modified: float
    """Seconds since 1970, by the store's clock: never for order, and for an age only with `Store.now`."""
    version: str = ""
    """Another one for other content, as far as the store knows: the time in its finest unit, or the ETag. Empty where
    it knows nothing but `modified`."""
    identity: str = ""
    """Another one after the path was given to another file, which may be a copy. Empty where the store has none."""


class Usage(Struct, frozen=True):
    """What the files beneath a folder use."""

    files: int
    size: int
    """In bytes, without replicas."""


class FolderSurvey(Struct, frozen=True):
    """What is in a folder, by its owner."""

    usage: Usage
    """Of the caller's files, those that were never published among them."""
    strays: tuple[str, ...]
    """Paths of all else, sorted: files of others, symbolic links and mount points; folders end with a slash, and stand
    for all that is in them."""


class Written(Struct, frozen=True):
    """A file that was published."""

    size: int
    """In bytes."""
    sha256: str
    """Hexadecimal digest of the bytes given to `write`."""


class Leftover(Struct, frozen=True):
    """What a dead writer left behind that never became a file."""

    name: str
    """The store's name for it, for people and for `discard_unpublished`."""
    size: int
    """In bytes, as far as the store knows."""


class WriteStream(ABC):
    """A log that grows. Used by one thread at a time."""

    @abstractmethod
    def write(self, data: bytes) -> None:
        """Add `data` to the end; blocks until the store, or a buffer of bounded size, has taken all of it.

        Readers of the open file see a whole prefix of what was written; how soon depends on the store: `LocalStore` at
        once, HDFS after a few seconds, an object store at the end. Raises OSError when the store fails, ValueError
        after `close`.
        """

    @abstractmethod
    def close(self) -> None:
        """Make everything that was written visible and durable; blocks until it is. A second call does nothing.

        Raises OSError when the store fails; the end of what was written may then be lost, and the rest is intact.
        """


class NewFile(ABC):
    """A file that readers see only when it is complete. Used by one thread at a time."""

    @abstractmethod
    def write(self, data: bytes | memoryview) -> None:
        """Add `data` to the end; blocks until the store has taken it. Raises OSError, or ValueError after the end."""

    @abstractmethod
    def publish(self) -> Written:
        """Make the complete file visible and durable under its path; blocks until it is.

        Raises FileExistsError when the path is taken by now, and any other OSError when the store fails: either nothing
        is published then, or the complete file.
        """

    @abstractmethod
    def discard(self) -> None:
        """Discard what was written. Does nothing after `publish` or a first `discard`. Never raises."""


class Store(ABC):
    """Files beneath one root, named by relative paths with `/` between their parts (see `check_path`).

    Folders are not part of the contract: the first file in a folder creates it. Every method but `where` blocks on the
    store for a bounded time, and raises StoreTimeoutError after its deadline. Each may be called from any thread, and
    raises OSError when the store fails (StoreRefusedError where a retry is useless until a person acts) and BugError
    for a path that `check_path` refuses. Nothing is ever overwritten: one `put_if_absent`, `create` or `open_stream`
    writes a path.

    The class of a store documents where it offers more or less than this, and `probe` checks it.
    """

    @property
    @abstractmethod
    def address(self) -> StoreAddress:
        """The address with which `open_store` opens this store in another process."""

    @property
    def shows_streams(self) -> bool:
        """Whether readers see what is written to `open_stream` before it is closed."""
        return True

    @abstractmethod
    def where(self, path: str = "") -> str:
        """The full name of `path`, or of the root, for people and for `open_store`; does not touch the store."""

    @abstractmethod
    def probe(self) -> None:
        """Prove that put-if-absent, read and delete work. Creates the root when it is missing.

        Raises RunDirectoryError with the cause and the next step. Each writer calls it before a run.
        """

    @abstractmethod
    def put_if_absent(self, path: str, data: bytes) -> bool:
        """Create the file `path` with `data`: True; False when the file exists already, whichever process created it.

        Atomic: of any number of concurrent calls for one path, in any processes and on any hosts, exactly one returns
        True, and no reader ever sees a part of the data. Durable: when it returns True or False, the file survives the
        end of every process and of the machine. When it raises, or its process dies, the file is complete or absent.
        """

    def read(self, path: str) -> bytes:
        """The content of the file `path`; FileNotFoundError when there is none."""
        return b"".join(self.pieces(path))

    @abstractmethod
    def read_range(self, path: str, start: int, length: int) -> bytes:
        """Up to `length` bytes of the file `path` from byte `start`; fewer, or none, where the file ends earlier.

        FileNotFoundError when there is no file. Both numbers are at least 0.
        """

    @abstractmethod
    def stat(self, path: str) -> FileInfo:
        """Size and time of the file `path`; FileNotFoundError when there is none."""

    def now(self, folder: str) -> float:
        """Seconds since 1970 by the store's clock: the time of a file that this puts into `folder`, and deletes.

        The clocks of hosts differ, also from the store's. So `FileInfo.modified` is compared with this time alone.
        """
        path = f"{folder}/probe-{uuid4().hex}".lstrip("/")
        self.put_if_absent(path, b"")
        try:
            return self.stat(path).modified
        finally:
            self.delete(path)

    def pieces(self, path: str) -> Iterator[bytes]:
        """The content of the file `path`, in pieces of 1 byte to 4 MiB, for files too large for memory.

        Errors are raised on iteration: FileNotFoundError at the first piece when there is no file. Each piece has its
        own deadline.
        """
        # The ranges fit together, because no store overwrites a file.
        start = 0
        while piece := self.read_range(path, start, PIECE_BYTES):
            yield piece
            start += len(piece)
            if len(piece) < PIECE_BYTES:
                return

    def exists(self, path: str) -> bool:
        """Whether there is a file `path`."""
        try:
            self.stat(path)
        except FileNotFoundError:
            return False
        return True

    @abstractmethod
    def list(self, prefix: str = "") -> list[str]:
        """The paths of all files beneath the folder `prefix`, at any depth, sorted; empty when there is no such folder.

        Files that are created or deleted during the call may be listed or not.
        """

    def entries(self, prefix: str = "") -> Sequence[str]:
        """The names directly in the folder `prefix`, sorted; names of folders end with a slash.

        Empty when there is no such folder. A store overrides this where it has a cheaper way than `list`.
        """
        start = len(prefix) + 1 if prefix else 0
        parts = (path[start:].partition("/") for path in self.list(prefix))
        return sorted({name + slash for name, slash, _ in parts})

    def usage(self, prefix: str = "") -> Usage:
        """What the files beneath the folder `prefix` use, at any depth; zeros when there is no such folder.

        A store overrides this where a listing has the sizes.
        """
        sizes = self._sizes(prefix)
        return Usage(len(sizes), sum(sizes.values()))

    def _sizes(self, prefix: str) -> Mapping[str, int]:
        """The size of each file beneath a folder, by its path."""
        paths = self.list(prefix)
        sizes = spread(lambda path, _: self._size(path), paths, _READERS)
        return {path: size for path, size in zip(paths, sizes, strict=True) if size is not None}

    def _size(self, path: str) -> int | None:
        try:
            return self.stat(path).size
        except FileNotFoundError:  # deleted since it was listed
            return None

    @abstractmethod
    def create(self, path: str) -> NewFile:
        """Start a large file, written in pieces and published as a whole. FileExistsError when `path` exists.

        A process that dies before `publish` leaves nothing under `path`; what it leaves elsewhere is never listed.
        """

    @abstractmethod
    def open_stream(self, path: str) -> WriteStream:
        """Create the file `path` and append to it: a log, or metrics. FileExistsError when it exists.

        The file is visible as it grows, and durable once it is closed. A process that dies leaves a prefix.
        """

    @abstractmethod
    def delete(self, path: str) -> None:
        """Delete the file `path`, if it exists. Only the coordinator may decide that, and calls it."""

    def delete_all(self, paths: Sequence[str]) -> None:
        """Delete those of these files that exist, in any order. Only the coordinator calls it.

        A store overrides this where it has a faster way than one file after the other.
        """
        for path in paths:
            self.delete(path)

    def way_out(self, path: str, folder: str = "") -> str | None:
        """The first part of `path` beneath `folder`, itself a folder of the store, that leads out of it.

        That is a symbolic link, or below a folder that is not the root a mount point: what is behind it is not the
        caller's, and is not to be deleted.
        None where there is none; a store without links and mounts returns nothing else.
        """
        return None

    def folder_identity(self, path: str) -> str:
        """What a copy of the folder `path`, or another folder at this path, does not have: it keeps it when it moves.

        Empty where there is no such folder, or where the store has no such thing.
        """
        return ""

    def survey(self, path: str, owns: OwnsPath) -> FolderSurvey:
        """What is in the folder `path`: the files that `owns` accepts, and what `delete_folder` would leave."""
        sizes = self._sizes(path)
        own_sizes = [size for file, size in sizes.items() if owns(file)]
        return FolderSurvey(Usage(len(own_sizes), sum(own_sizes)), strays_of(path, sizes, owns))

    def delete_folder(self, path: str, owns: OwnsPath) -> None:
        """Delete the files beneath the folder `path` that `owns` accepts, in any order, and folders empty by then.

        A file that was never published belongs to whom its folder belongs to. Folders that `owns` does not accept are
        not looked into, links are not followed, and mount points are not crossed. Does nothing when there is no such
        folder. A call that fails may have deleted a part, and can be repeated. Only the owner of the run calls it.
        """
        self.delete_all([file for file in self.list(path) if owns(file)])

    def unpublished(self, prefix: str, older_than_s: float, owns: OwnsPath | None = None) -> Sequence[Leftover]:
        """Leftovers of dead writers beneath the folder `prefix` that have not changed for `older_than_s` seconds,
        by the store's clock.

        With `owns`, only those in folders that it accepts. Never a file that `list` returns. Empty for a store that
        leaves nothing behind.
        """
        return []

    def discard_unpublished(self, leftover: Leftover) -> None:
        """Delete a leftover that `unpublished` found, if it still exists. Only the owner of the run calls it."""
        raise BugError(f"store {self.where()} leaves nothing unpublished, and was asked to delete {leftover.name}")


def check_path(path: str) -> str:
    """`path` itself when it is valid in a store; raises BugError otherwise."""
    problem = path_problem(path)
    if problem:
        raise BugError(f"path {path!r} of a store {problem}")
    return path


def path_problem(path: str) -> str | None:
    """Why `path` is invalid in a store; None when it is valid.

    It must name the same file in every store, and never one outside of the root: relative, with parts between single
    `/`, none of them `.` or `..`, and without backslashes and unprintable characters.
    """
    if not path or not path.isprintable() or "\\" in path:
        return "must be printable, not empty, and without backslashes"
    # Each operation checks its path: searches in one text take a third of the time of a loop over the parts.
    slashed_path = f"/{path}/"
    if "//" in slashed_path or "/./" in slashed_path or "/../" in slashed_path:
        return "must be relative and without empty parts, '.' and '..'"
    if f"/{UNPUBLISHED}" in slashed_path:
        return f"must have no part that starts with {UNPUBLISHED!r}"
    return None


def exists_error(where: str) -> FileExistsError:
    """The error for a path that is taken."""
    return FileExistsError(errno.EEXIST, "there is such a file in the store already", where)


def missing_error(where: str) -> FileNotFoundError:
    """The error for a path without a file."""
    return FileNotFoundError(errno.ENOENT, "no such file in the store", where)


def process_user() -> str:
    """The name of the user of this process; the number where this host has no name for it."""
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())


def strays_of(top: str, files: Iterable[str], owns: OwnsPath) -> tuple[str, ...]:
    """What a removal of the caller's `files` leaves in the folder `top`: see `FolderSurvey.strays`."""
    leftovers = set[str]()
    for file in files:
        at = len(top)
        while (at := file.find("/", at + 1)) >= 0:
            if not owns(file[: at + 1]):
                leftovers.add(file[: at + 1])
                break
        else:
            if not owns(file):
                leftovers.add(file)
    return tuple(sorted(leftovers))
