"""Implements the contract of a store over an HDFS client.

A file is written under a name that no reader looks at, in the folder of its own name. One rename then publishes it:
HDFS executes it atomically and refuses a name that is taken, and that alone decides between two writers. The answer
to a rename may be lost; `Unpublished.publish` then finds out which of the two names the file has, and only that
result goes to the caller. So a path has no file or a complete one, and at most one writer has created it. Each call
has the deadline of its `RetryPolicy`, which all its requests and pauses share; a request that outlasts its own
timeout is left behind with its client.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple, Self
from uuid import uuid4

from sparktrain.base.clock import Clock
from sparktrain.config.store_address import StoreAddress
from sparktrain.errors import BugError, RunDirectoryError
from sparktrain.store.base import (
    PIECE_BYTES,
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
    check_path,
    exists_error,
    missing_error,
)
from sparktrain.store.hadoop.client import HadoopClient, HdfsEntry
from sparktrain.store.hadoop.hadoop_calls import HdfsCall, HdfsCalls, RetryPolicy
from sparktrain.store.hadoop.hadoop_conf import split, user
from sparktrain.store.hadoop.hadoop_errors import HadoopCallError
from sparktrain.store.hadoop.hdfs_stream import HadoopStream
from sparktrain.store.hadoop.transfers import HadoopNewFile, HdfsDraft, OpenFile, find
from sparktrain.store.parallel import spread

PROBING = RetryPolicy(total_s=20.0, call_s=10.0, again_s=2.0)
"""The policy of a probe, for which a user waits: it survives a hiccup, not an outage."""
_DELETING_THREADS = 8


class HadoopStore(Store):
    """A folder of HDFS; the base of `HdfsStore` and `WebHdfsStore`.

    Safe between processes of any hosts: a rename within HDFS is atomic, and refuses a name that is taken. A file that
    was put or published is on the disks of all its DataNodes, if the client's protocol can guarantee that. A killed
    process leaves files with names that start with `.tmp-`, which may be deleted once it is dead.
    """

    def __init__(self, address: StoreAddress, policy: RetryPolicy | None = None, clock: Clock | None = None) -> None:
        """`address` comes from `resolve`, or `with_user`; `clock`: see `HdfsCalls`."""
        self._address = address
        self._root = split(address.url)[1]
        self._policy = policy or RetryPolicy.of(address.timeout_s)
        self._calls = HdfsCalls(self._connect, self._explain, self._policy, clock)

    @abstractmethod
    def _connect(self, abandoned: int) -> HadoopClient:
        """Create a client, given the number of abandoned ones. May block, and raise what clients raise."""

    @abstractmethod
    def _explain(self, error: BaseException) -> OSError:
        """See `HdfsCalls`."""

    def _probing(self) -> Self:
        """The same store, with the policy `PROBING`."""
        return type(self)(self._address, PROBING)

    def _user(self) -> str:
        """The user that writes, for messages."""
        return user(self._address.settings)

    @property
    def address(self) -> StoreAddress:
        """See base class."""
        return self._address

    def where(self, path: str = "") -> str:
        """See base class. A URL for Hadoop's tools."""
        return f"{self._address.url.rstrip('/')}/{check_path(path)}" if path else self._address.url

    def probe(self) -> None:
        """See base class."""
        store = self._probing()
        path = f"probe-{uuid4().hex}"
        try:
            created = store.put_if_absent(path, b"sparktrain")
            # A store that replaces a file would let two drivers write one run.
            again = store.put_if_absent(path, b"overwritten")
            content = store.read(path)
            store.delete(path)
        except OSError as error:
            failure = error.__cause__
            reason = f"{failure.cause}; {failure.step}" if isinstance(failure, HadoopCallError) else str(error)
            raise RunDirectoryError(
                f"run directory {self.where()} cannot be written by user {self._user()}: {reason}"
            ) from error
        if (created, again, content) != (True, False, b"sparktrain"):
            raise RunDirectoryError(
                f"run directory {self.where()} cannot be used: a file that was just created does not read back as it "
                "was written; choose another directory"
            )

    def put_if_absent(self, path: str, data: bytes) -> bool:
        """See base class."""
        call, target = self._start("put", path)
        try:
            return HdfsDraft(self.where(path), target).publish(call, data)
        except FileExistsError:
            return False

    def read_range(self, path: str, start: int, length: int) -> bytes:
        """See base class."""
        file = self._open(path)
        pieces = []
        end = min(start + length, file.size())
        for place in range(start, end, PIECE_BYTES):
            pieces.append(file.read(place, min(PIECE_BYTES, end - place)))
        return b"".join(pieces)

    def stat(self, path: str) -> FileInfo:
        """See base class."""
        call, target = self._start("look at", path)
        entry = find(call, target)
        if entry is None or not entry.is_file:
            raise missing_error(self.where(path))
        return FileInfo(entry.size, entry.modified_ms / 1000, f"{entry.modified_ms} ms")

    def pieces(self, path: str) -> Iterator[bytes]:
        """See base class."""
        file = self._open(path)
        # In pieces: the library holds the interpreter while it copies what it has read, 0.3 s and more for 256 MiB.
        for start in range(0, file.size(), PIECE_BYTES):
            yield file.read(start, PIECE_BYTES)

    def list(self, prefix: str = "") -> list[str]:
        """See base class."""
        return sorted(self._sizes(prefix))

    def entries(self, prefix: str = "") -> Sequence[str]:
        """See base class."""
        call = self._calls.start("list", self.where(prefix))
        nodes = _listed(call, self._target(check_path(prefix) if prefix else ""))
        return sorted(node.name + "/" * (not node.is_file) for node in nodes if not node.name.startswith(UNPUBLISHED))

    def _sizes(self, prefix: str) -> Mapping[str, int]:
        files = (pair for pair in self._walk(prefix) if pair[1].is_file)
        return {path: entry.size for path, entry in files if not entry.name.startswith(UNPUBLISHED)}

    def _walk(self, prefix: str, owns: OwnsPath = lambda path: True) -> Iterator[tuple[str, HdfsEntry]]:
        """Every file and folder beneath a folder, including unpublished files, each folder before what is in it.

        Folders that `owns` does not accept are not looked into.
        """
        call = self._calls.start("list", self.where(prefix))
        folders: list[str] = [check_path(prefix) if prefix else ""]
        while folders:
            folder = folders.pop()
            for entry in _listed(call, self._target(folder)):
                path = f"{folder}/{entry.name}" if folder else entry.name
                yield path, entry
                if not entry.is_file and owns(f"{path}/"):
                    folders.append(path)

    def create(self, path: str) -> NewFile:
        """See base class."""
        return HadoopNewFile(self._calls, self.where(check_path(path)), self._target(path))

    def open_stream(self, path: str) -> WriteStream:
        """See base class."""
        # HDFS's own create is atomic too, but leaves the name locked for about a minute when its writer is killed.
        if not self.put_if_absent(path, b""):
            raise exists_error(self.where(path))
        return self._stream(self.where(path), self._target(path))

    def _stream(self, where: str, path: str) -> WriteStream:
        """A log in the empty file at `path`, named `where` in messages."""
        return HadoopStream(self._calls, where, path)

    def delete(self, path: str) -> None:
        """See base class."""
        call, target = self._start("delete", path)
        entry = find(call, target)
        # The NameNode also deletes an empty folder of this name.
        if entry is not None and entry.is_file:
            call.ask(lambda client: client.delete(target))

    def delete_all(self, paths: Sequence[str]) -> None:
        """See base class."""
        spread(lambda path, _: self.delete(path), paths, _DELETING_THREADS)

    def survey(self, path: str, owns: OwnsPath) -> FolderSurvey:
        """See base class."""
        part = self._own_part(path, owns)
        return FolderSurvey(Usage(len(part.files), sum(part.files.values())), tuple(sorted(part.strays)))

    def delete_folder(self, path: str, owns: OwnsPath) -> None:
        """See base class. The NameNode deletes a folder with nothing but the caller's files as a whole, and keeps
        nothing in its trash. It refuses to delete an empty one to which another process adds something meanwhile.
        """
        part = self._own_part(path, owns)
        mixed = {path, *_folders_of(part.strays)}
        holding = _folders_of(part.files)
        unmixed = [folder for folder in part.folders if folder not in mixed and folder.rpartition("/")[0] in mixed]
        # One request for each folder that is the caller's as a whole: a run directory that is deleted file by file
        # costs a request for each file, and leaves its folders.
        for folder in unmixed:
            if folder in holding:
                self._delete_own(folder, lambda client, target: client.delete_folder(target))
        single = [file for file in part.files if file.rpartition("/")[0] in mixed]
        spread(lambda file, _: self._delete_own(file, _delete_file), single, _DELETING_THREADS)
        # Folders last, from the bottom up. Without `recursive`, the NameNode refuses one that has got a new file
        # meanwhile.
        for folder in (*reversed([node for node in part.folders if node not in holding and node not in mixed]), path):
            call = self._calls.start("delete", f"{self.where()}/{folder}")
            target = self._target(folder)
            if not _listed(call, target):
                call.clean_up(partial(_delete_empty, target))

    def _delete_own(self, path: str, delete: Callable[[HadoopClient, str], None]) -> None:
        target = self._target(path)
        self._calls.start("delete", f"{self.where()}/{path}").ask(lambda client: delete(client, target))

    def _own_part(self, path: str, owns: OwnsPath) -> "_OwnPart":
        part = _OwnPart({}, [], [])
        for name, entry in self._walk(path, owns):
            folder = name.rpartition("/")[0]
            if not entry.is_file:
                part.folders.append(name) if owns(f"{name}/") else part.strays.append(f"{name}/")
            elif owns(f"{folder}/") if UNPUBLISHED_NAME.fullmatch(entry.name) else owns(name):
                part.files[name] = entry.size
            else:
                part.strays.append(name)
        return part

    def unpublished(self, prefix: str, older_than_s: float, owns: OwnsPath | None = None) -> Sequence[Leftover]:
        """See base class."""
        entries = [
            (path, entry)
            for path, entry in self._walk(prefix, owns or (lambda path: True))
            if UNPUBLISHED_NAME.fullmatch(entry.name) and entry.is_file
        ]
        latest_ms = 1000 * (self.now(prefix) - older_than_s) if entries else 0.0
        return [Leftover(path, entry.size) for path, entry in sorted(entries) if entry.modified_ms <= latest_ms]

    def discard_unpublished(self, leftover: Leftover) -> None:
        """See base class."""
        if UNPUBLISHED_NAME.fullmatch(leftover.name.rpartition("/")[2]) is None:
            raise BugError(f"{leftover.name} is not a leftover of a writer in {self.where()}")
        target = self._target(leftover.name)
        self._calls.start("delete", f"{self.where()}/{leftover.name}").ask(lambda client: client.delete(target))

    def _start(self, operation: str, path: str) -> tuple[HdfsCall, str]:
        return self._calls.start(operation, self.where(check_path(path))), self._target(path)

    def _open(self, path: str) -> OpenFile:
        return OpenFile(self._calls, self.where(check_path(path)), self._target(path))

    def _target(self, path: str) -> str:
        return f"{self._root}/{path}" if path else self._root or "/"


class _OwnPart(NamedTuple):
    """The caller's part of a folder, as it was when it was listed."""

    files: dict[str, int]
    """Their sizes, by their paths."""
    folders: list[str]
    strays: list[str]
    """All else: see `FolderSurvey.strays`."""


def _folders_of(paths: Iterable[str]) -> set[str]:
    """All folders in which these paths are."""
    parts = (path.rstrip("/").split("/") for path in paths)
    return {"/".join(names[:count]) for names in parts for count in range(1, len(names))}


def _delete_file(client: HadoopClient, target: str) -> None:
    client.delete(target)


def _delete_empty(target: str, client: HadoopClient) -> None:
    if not client.status(target).is_file:
        client.delete(target)


def _listed(call: HdfsCall, folder: str) -> list[HdfsEntry]:
    try:
        return call.ask(lambda client: client.folder(folder))
    except (FileNotFoundError, NotADirectoryError):
        return []
