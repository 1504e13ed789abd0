"""Implements the contract of a store over an HDFS client."""

import errno
from collections.abc import Iterator, Sequence
from uuid import uuid4

from sparktrain.clock import BlockingClock, SystemClock
from sparktrain.config.store_address import StoreAddress
from sparktrain.errors import BugError, RunDirectoryError
from sparktrain.store.base import (
    PIECE_BYTES,
    UNPUBLISHED,
    FileInfo,
    Leftover,
    NewFile,
    Store,
    Usage,
    WriteStream,
    check_path,
)
from sparktrain.store.hadoop.client import HadoopClient, HdfsEntry
from sparktrain.store.hadoop.hadoop_calls import HdfsCall, HdfsCalls, RetryPolicy
from sparktrain.store.hadoop.hadoop_errors import HadoopCallError
from sparktrain.store.hadoop.hdfs_stream import HadoopStream
from sparktrain.store.hadoop.transfers import HadoopNewFile, OpenFile, Unpublished, find, no_such_file
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

    def __init__(
        self,
        address: StoreAddress,
        root: str,
        policy: RetryPolicy | None = None,
        clock: BlockingClock | None = None,
    ) -> None:
        """`address` is resolved; `root` is its absolute path, without a slash at its end; `clock`: see `HdfsCalls`."""
        self._address = address
        self._root = root
        self._policy = policy or RetryPolicy.of(address.timeout_s)
        self._calls = HdfsCalls(self._connect, self._explain, self._policy, clock)

    def _connect(self, abandoned: int) -> HadoopClient:
        """Create a client, given the number of abandoned ones. May block, and raise what clients raise."""
        raise NotImplementedError

    def _explain(self, error: BaseException) -> OSError:
        """See `HdfsCalls`."""
        raise NotImplementedError

    def _probing(self) -> "HadoopStore":
        """The same store, with the policy `PROBING`."""
        raise NotImplementedError

    def _user(self) -> str:
        """The user that writes, for messages."""
        raise NotImplementedError

    @property
    def address(self) -> StoreAddress:
        """See base class."""
        return self._address

    def where(self, path: str = "") -> str:
        """See base class. A URL for Hadoop's tools."""
        return f"{self._address.url.rstrip('/')}/{check_path(path)}" if path else self._address.url

    def probe(self) -> None:
        """See base class."""
        store, path = self._probing(), f"probe-{uuid4().hex}"
        try:
            created, again = store.put_if_absent(path, b"sparktrain"), store.put_if_absent(path, b"overwritten")
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
        while True:
            if find(call, target) is not None:
                return False
            file = Unpublished(target)
            try:
                file.open(call)
                file.write(call, data)
                file.close(call)
                return file.publish(call)
            except HadoopCallError as failure:
                file.discard(call)
                call.retry_after(failure)
            except BaseException:
                file.discard(call)
                raise

    def read(self, path: str) -> bytes:
        """See base class."""
        return b"".join(self.pieces(path))

    def read_range(self, path: str, start: int, length: int) -> bytes:
        """See base class."""
        file, pieces = self._open(path), []
        end = min(start + length, file.size())
        for place in range(start, end, PIECE_BYTES):
            pieces.append(file.read(place, min(PIECE_BYTES, end - place)))
        return b"".join(pieces)

    def stat(self, path: str) -> FileInfo:
        """See base class."""
        call, target = self._start("look at", path)
        found = find(call, target)
        if found is None or not found.is_file:
            raise no_such_file(self.where(path))
        return FileInfo(found.size, found.modified_ms / 1000, f"{found.modified_ms} ms")

    def pieces(self, path: str) -> Iterator[bytes]:
        """See base class."""
        file = self._open(path)
        for start in range(0, file.size(), PIECE_BYTES):
            yield file.read(start, PIECE_BYTES)

    def exists(self, path: str) -> bool:
        """See base class."""
        call, target = self._start("look at", path)
        found = find(call, target)
        return found is not None and found.is_file

    def list(self, prefix: str = "") -> list[str]:
        """See base class."""
        return sorted(path for path, entry in self._walk(prefix) if not entry.name.startswith(UNPUBLISHED))

    def entries(self, prefix: str = "") -> Sequence[str]:
        """See base class."""
        call = self._calls.start("list", self.where(prefix))
        found = _listed(call, self._target(check_path(prefix) if prefix else ""))
        return sorted(each.name + "/" * (not each.is_file) for each in found if not each.name.startswith(UNPUBLISHED))

    def usage(self, prefix: str = "") -> Usage:
        """See base class."""
        sizes = [entry.size for _, entry in self._walk(prefix) if not entry.name.startswith(UNPUBLISHED)]
        return Usage(len(sizes), sum(sizes))

    def _walk(self, prefix: str) -> Iterator[tuple[str, HdfsEntry]]:
        """Every file beneath a folder, including unpublished ones."""
        call = self._calls.start("list", self.where(prefix))
        folders: list[str] = [check_path(prefix) if prefix else ""]
        while folders:
            folder = folders.pop()
            for entry in _listed(call, self._target(folder)):
                path = f"{folder}/{entry.name}" if folder else entry.name
                if entry.is_file:
                    yield path, entry
                else:
                    folders.append(path)

    def create(self, path: str) -> NewFile:
        """See base class."""
        call, target = self._start("create", path)
        if find(call, target) is not None:
            raise _taken(self.where(path))
        while True:
            file = Unpublished(target)
            try:
                file.open(call)
                return HadoopNewFile(self._calls, self.where(path), file)
            except HadoopCallError as failure:
                file.discard(call)
                call.retry_after(failure)

    def open_stream(self, path: str) -> WriteStream:
        """See base class. Needs a file system that can append, which an erasure-coded one cannot."""
        if not self.put_if_absent(path, b""):
            raise _taken(self.where(path))
        return self._stream(self.where(path), self._target(path))

    def _stream(self, where: str, path: str) -> WriteStream:
        """A log in the empty file at `path`, named `where` in messages."""
        return HadoopStream(self._calls, where, path)

    def delete(self, path: str) -> None:
        """See base class."""
        call, target = self._start("delete", path)
        found = find(call, target)
        if found is not None and found.is_file:
            call.ask(lambda client: client.delete(target))

    def delete_all(self, paths: Sequence[str]) -> None:
        """See base class."""
        spread(lambda path, _: self.delete(path), paths, _DELETING_THREADS)

    def delete_folder(self, path: str) -> None:
        """See base class. The NameNode deletes it as a whole, and keeps nothing in its trash."""
        call, target = self._start("delete", path)
        found = find(call, target)
        if found is not None and not found.is_file:
            call.ask(lambda client: client.delete_folder(target))

    def unpublished(self, prefix: str, older_than_s: float) -> Sequence[Leftover]:
        """See base class."""
        before_ms = 1000 * (SystemClock().wall() - older_than_s)
        left = [
            Leftover(path, entry.size)
            for path, entry in self._walk(prefix)
            if entry.name.startswith(UNPUBLISHED) and entry.modified_ms < before_ms
        ]
        return sorted(left, key=lambda each: each.name)

    def discard_unpublished(self, left: Leftover) -> None:
        """See base class."""
        if not left.name.rpartition("/")[2].startswith(UNPUBLISHED):
            raise BugError(f"{left.name} is not a leftover of a writer in {self.where()}")
        target = self._target(left.name)
        self._calls.start("delete", f"{self.where()}/{left.name}").ask(lambda client: client.delete(target))

    def _start(self, what: str, path: str) -> tuple[HdfsCall, str]:
        return self._calls.start(what, self.where(check_path(path))), self._target(path)

    def _open(self, path: str) -> OpenFile:
        return OpenFile(self._calls, self.where(check_path(path)), self._target(path))

    def _target(self, path: str) -> str:
        return f"{self._root}/{path}" if path else self._root or "/"


def _listed(call: HdfsCall, folder: str) -> list[HdfsEntry]:
    try:
        return call.ask(lambda client: client.folder(folder))
    except (FileNotFoundError, NotADirectoryError):
        return []


def _taken(where: str) -> FileExistsError:
    return FileExistsError(errno.EEXIST, "there is such a file in the store already", where)
