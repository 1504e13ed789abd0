"""The contract of a store: the one place where things outlive the processes of a run."""

from collections.abc import Iterator, Sequence
from typing import Protocol

from msgspec import Struct

from sparktrain.config.store_address import StoreAddress
from sparktrain.errors import BugError

UNPUBLISHED = ".tmp-"
"""How the name of a file begins that a store is still writing: never listed, and refused for anything else."""

PIECE_BYTES = 4 * 2**20
"""The most that `Store.pieces` gives at once."""


class FileInfo(Struct, frozen=True):
    """A file of a store."""

    size: int
    """In bytes."""
    modified: float
    """Seconds since 1970, by the store's clock: for people, never for order."""


class Written(Struct, frozen=True):
    """A file that was published."""

    size: int
    """In bytes."""
    sha256: str
    """Of what was given to `write`, hexadecimal."""


class Leftover(Struct, frozen=True):
    """What a writer has left that never became a file."""

    name: str
    """As the store names it for people, and for `discard_unpublished`."""
    size: int
    """In bytes, as far as the store knows."""


class WriteStream(Protocol):
    """A log that grows. Used by one thread at a time."""

    def write(self, data: bytes) -> None:
        """Add `data` to the end; blocks until the store, or a buffer of bounded size, has taken all of it.

        Readers of the open file see a whole prefix of what was written; how soon depends on the store: `LocalStore` at
        once, HDFS after a few seconds, an object store at the end. Raises OSError when the store fails, ValueError
        after `close`.
        """
        ...

    def close(self) -> None:
        """Make everything that was written visible and durable; blocks until it is. Again: does nothing.

        Raises OSError when the store fails; what was written may then be lost from some point on, never garbled before.
        """
        ...


class NewFile(Protocol):
    """A file that nobody sees before it is whole. Used by one thread at a time."""

    def write(self, data: bytes) -> None:
        """Add `data` to the end; blocks until the store has taken it. Raises OSError, or ValueError after the end."""
        ...

    def publish(self) -> Written:
        """Make the file visible and durable under its path, whole; blocks until it is.

        Raises FileExistsError when something has that path by now, and any other OSError when the store fails: nothing
        is published then, or the whole file is.
        """
        ...

    def discard(self) -> None:
        """Forget what was written, unless it is published. Again, or after `publish`: does nothing. Never raises."""
        ...


class Store(Protocol):
    """Files beneath one root, named by relative paths with `/` between their parts (see `check_path`).

    Folders are no part of the contract: they come with the first file in them. Every method but `where` blocks on the
    store, for a bounded time: past its deadline it raises StoreTimeoutError. Each may be called from any thread, and
    raises OSError when the store fails (StoreRefusedError where trying again is of no use before somebody has acted)
    and BugError for a path that `check_path` refuses. Nothing is ever overwritten: a path is written by one
    `put_if_absent`, `create` or `open_stream`.

    What a store gives beyond this, or less, its class says, and `probe` finds out.
    """

    @property
    def address(self) -> StoreAddress:
        """For `open_store` in another process."""
        ...

    def where(self, path: str = "") -> str:
        """The full name of `path`, or of the root, for people and for `open_store`; does not touch the store."""
        ...

    def probe(self) -> None:
        """Prove that files can be created once, read back and deleted. Makes the root when it is missing.

        Raises RunDirectoryError with the cause and the next step. Called before a run by whoever is going to write.
        """
        ...

    def put_if_absent(self, path: str, data: bytes) -> bool:
        """Create the file `path` with `data`: True; False when something is there already, whoever put it there.

        Atomic: of any number of concurrent calls for one path, in any processes and on any hosts, exactly one returns
        True, and no reader ever sees a part of the data. Durable: when it returns True or False, the file survives the
        end of every process and of the machine. When it raises, or its process dies, the file is there whole or not at
        all.
        """
        ...

    def read(self, path: str) -> bytes:
        """The content of the file `path`; FileNotFoundError when there is none."""
        ...

    def read_range(self, path: str, start: int, length: int) -> bytes:
        """At most `length` bytes of the file `path` from its byte `start` on; fewer, or none, where it ends before.

        FileNotFoundError when there is no file. Both numbers are at least 0.
        """
        ...

    def stat(self, path: str) -> FileInfo:
        """Size and time of the file `path`; FileNotFoundError when there is none."""
        ...

    def pieces(self, path: str) -> Iterator[bytes]:
        """The content of the file `path`, in pieces of 1 byte to 4 MiB, for files that memory shall not hold whole.

        What goes wrong is raised when a piece is asked for: FileNotFoundError, by the first, when there is no file.
        """
        ...

    def exists(self, path: str) -> bool:
        """Whether there is a file `path`."""
        ...

    def list(self, prefix: str = "") -> list[str]:
        """The paths of all files beneath the folder `prefix`, at any depth, sorted; empty when there is no such folder.

        Files that are created or deleted meanwhile may be listed or not.
        """
        ...

    def entries(self, prefix: str = "") -> Sequence[str]:
        """The names of what is directly in the folder `prefix`, sorted; those of folders end with a slash.

        Empty when there is no such folder. A store overrides this where that is cheaper than to list all beneath.
        """
        start = len(prefix) + 1 if prefix else 0
        parts = (path[start:].partition("/") for path in self.list(prefix))
        return sorted({name + slash for name, slash, _ in parts})

    def create(self, path: str) -> NewFile:
        """A large file, written bit by bit and published as a whole. FileExistsError when `path` is there already.

        A process that dies before `publish` leaves nothing under `path`; what it leaves elsewhere is never listed.
        """
        ...

    def open_stream(self, path: str) -> WriteStream:
        """Create the file `path` and write it bit by bit: a log, or metrics. FileExistsError when it is there already.

        The file is visible as it grows, and durable once it is closed. A process that dies leaves a prefix.
        """
        ...

    def delete(self, path: str) -> None:
        """Delete the file `path`, if there is one. Called by the coordinator only: nobody else may decide that."""
        ...

    def delete_all(self, paths: Sequence[str]) -> None:
        """Delete each of these files that is there, in any order. Called as `delete`.

        A store overrides this where that takes less time than one after the other.
        """
        for path in paths:
            self.delete(path)

    def unpublished(self, prefix: str, older_than_s: float) -> Sequence[Leftover]:
        """What was left beneath the folder `prefix` by writers that died, and has not changed for `older_than_s`.

        Never anything that a listed path names. Nothing where a store leaves nothing behind.
        """
        return []

    def discard_unpublished(self, left: Leftover) -> None:
        """Delete what `unpublished` has found, if it is still there. Called by who is in charge of the run."""
        raise BugError(f"store {self.where()} leaves nothing unpublished, and was asked to delete {left.name}")


def check_path(path: str) -> str:
    """`path`, when a store may use it; BugError otherwise."""
    problem = path_problem(path)
    if problem:
        raise BugError(f"path {path!r} of a store {problem}")
    return path


def path_problem(path: str) -> str | None:
    """Why no store may use `path`; None when each may.

    It must name the same file in every store, and never one outside of the root: relative, with parts between single
    `/`, none of them `.` or `..`, and without backslashes and characters that cannot be printed.
    """
    parts = path.split("/")
    if not path or not path.isprintable() or "\\" in path:
        return "must be printable, not empty, and without backslashes"
    if any(part in ("", ".", "..") for part in parts):
        return "must be relative and without empty parts, '.' and '..'"
    if any(part.startswith(UNPUBLISHED) for part in parts):
        return f"must have no part that begins with {UNPUBLISHED!r}"
    return None


def by_range(store: Store, path: str) -> Iterator[bytes]:
    """The `pieces` of a store that reads each of them by a call of its own, with a deadline of its own."""
    start = 0
    while piece := store.read_range(path, start, PIECE_BYTES):
        yield piece
        start += len(piece)
        if len(piece) < PIECE_BYTES:
            return
