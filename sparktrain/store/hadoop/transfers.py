"""Files of HDFS that are not published yet, and files that are read."""

import hashlib
from collections.abc import Callable
from typing import TypeVar
from uuid import uuid4

from sparktrain.errors import StoreError, StoreRefusedError
from sparktrain.store.base import PIECE_BYTES, UNPUBLISHED, NewFile, Written, exists_error, missing_error
from sparktrain.store.hadoop.client import HadoopClient, HdfsEntry, Reader, Writer
from sparktrain.store.hadoop.hadoop_calls import HdfsCall, HdfsCalls
from sparktrain.store.hadoop.hadoop_errors import HadoopCallError

T = TypeVar("T")

RESENT_BYTES = 2**24
"""What a new file keeps in memory to send it again: more than a client has in flight before it notices a failure."""


def find(call: HdfsCall, path: str) -> HdfsEntry | None:
    """The entry at `path`, if there is one. Raises StoreError."""
    try:
        return call.ask(lambda client: client.status(path))
    except (FileNotFoundError, NotADirectoryError):
        return None


class Unpublished:
    """A file under a temporary name, until it is published under its own. Used by one thread.

    It is in the folder of its target, so that one rename publishes it: atomically, and only if the name is free.
    Each method raises HadoopCallError when an attempt has failed, unless its docstring promises retries.
    """

    def __init__(self, target: str) -> None:
        self._target = target
        self._path = self._fresh_path()
        self._writer: Writer | None = None
        self._size = 0
        self._closed: HdfsEntry | None = None

    def open(self, call: HdfsCall) -> None:
        """Create the temporary file."""
        path = self._path
        self._writer = self._do(call, lambda client: client.create(path))

    def write(self, call: HdfsCall, data: bytes | memoryview) -> None:
        """Add `data` to the end."""
        writer = self._writer
        view = memoryview(data)
        if writer is None:
            raise ValueError(f"{self._target} is no longer being written")
        for start in range(0, len(view), PIECE_BYTES):
            self._do(call, writing(writer, view[start : start + PIECE_BYTES]))
        self._size += len(data)

    def publish(self, call: HdfsCall) -> bool:
        """Close the file, and rename it to its name: False when that is taken. Retries the rename.

        Raises StoreError; the file is then complete under its name or absent, unless the NameNode has not yet executed
        the last request.
        """
        self._close(call)
        target = self._target
        while True:
            is_taken = False
            failure = None
            try:
                call.run_once(renaming(self._path, target))
                return True
            except FileExistsError:
                is_taken = True
            except (FileNotFoundError, NotADirectoryError):
                pass
            except HadoopCallError as error:
                failure = error
            # The answer alone decides nothing: NameNodes and clients repeat requests, and the repeated one is refused.
            if not self._take_back(call):
                return True
            if is_taken or find(call, target) is not None:
                self.discard(call)
                return False
            call.retry_after(
                failure or HadoopCallError("the rename to its name failed", "see whether its folder exists")
            )

    def discard(self, call: HdfsCall) -> None:
        """Delete the file, unless it is published. Never raises."""
        path = self._path
        writer = self._writer
        self._writer = None

        def discard(client: HadoopClient) -> None:
            try:
                client.delete(path)  # before the writer is released, which may publish a part
            finally:
                if writer is not None:
                    writer.abandon()

        call.clean_up(discard)

    def _close(self, call: HdfsCall) -> None:
        """Close the file and verify its size: a broken connection closes a partial file as if it were complete."""
        writer = self._writer
        path = self._path
        if writer is None:
            raise ValueError(f"{self._target} is no longer being written")
        self._do(call, lambda client: writer.close())
        self._writer = None
        self._closed = self._do(call, lambda client: client.status(path))
        if self._closed.size != self._size:
            raise HadoopCallError(f"{self._closed.size} of {self._size} bytes have arrived", "try again")

    def _take_back(self, call: HdfsCall) -> bool:
        """Rename the file to another temporary name: True when that worked, False when it had its final name already.

        When the answer to a rename was lost, it may have been executed, or may be later. This decides it: the file has
        one of the two names, and a late rename no longer finds its source.
        """
        path = self._path
        fresh = self._fresh_path()
        while True:
            try:
                call.run_once(renaming(path, fresh))
                break
            except (FileNotFoundError, FileExistsError):
                if find(call, fresh) is not None:
                    break  # an earlier attempt did it, and its answer was lost
                self._check_published(call)
                return False
            except HadoopCallError as failure:
                call.retry_after(failure)
        self._path = fresh
        return True

    def _check_published(self, call: HdfsCall) -> None:
        published = find(call, self._target)
        if self._closed is None or published is None or not _is_same_version(published, self._closed):
            raise StoreError(f"{self._target} was not written: another process has deleted {self._path}; try again")

    def _do(self, call: HdfsCall, work: Callable[[HadoopClient], T]) -> T:
        try:
            return call.run_once(work)
        except NotADirectoryError as error:
            raise StoreRefusedError(f"{self._target} cannot be written: {error}; choose another directory") from error
        except (FileNotFoundError, FileExistsError) as error:
            raise HadoopCallError(f"another process has deleted {self._path}, or writes it too", "try again") from error

    # Never the same name twice: a writer that was given up may still write, and a rename does not stop it, because a
    # lease follows its file.
    def _fresh_path(self) -> str:
        return f"{self._target.rpartition('/')[0]}/{UNPUBLISHED}{uuid4().hex}"


def _is_same_version(one: HdfsEntry, other: HdfsEntry) -> bool:
    return (one.is_file, one.size, one.modified_ms) == (other.is_file, other.size, other.modified_ms)


def writing(writer: Writer, piece: memoryview) -> Callable[[HadoopClient], None]:
    """The request of one `write`."""
    return lambda client: writer.write(piece)


def renaming(source: str, target: str) -> Callable[[HadoopClient], None]:
    """The request of one `rename`."""
    return lambda client: client.rename(source, target)


class HdfsDraft:
    """A file that is not published yet, and is rewritten while its content is still in memory.

    A request that fails is then retried with a new temporary file: a NameNode places blocks on a DataNode that has died
    until it misses its heartbeats for 10 minutes by default, and the client names none to avoid. Used by one thread.
    """

    def __init__(self, where: str, target: str) -> None:
        self._where = where
        self._target = target
        self._file: Unpublished | None = None
        self._ended = False

    def ask(self, call: HdfsCall, content: bytes | bytearray | None, request: Callable[[Unpublished], T]) -> T:
        """The result of `request` for a file with this content; None where it is too much to rewrite.

        Raises FileExistsError when the name is taken before a temporary file is created. Any error ends the file: how
        much has arrived is unknown.
        """
        if self._ended:
            raise ValueError(f"{self._where} was published, discarded, or has failed: it accepts no more data")
        try:
            while True:
                try:
                    return request(self._file or self._started(call, content))
                except HadoopCallError as failure:
                    if content is None:
                        raise call.failed(failure) from failure
                    # Under a new name: the failed request may still be executed, and would write into this file.
                    self._drop(call)
                    call.retry_after(failure)
        except BaseException:
            self.discard(call)
            raise

    def publish(self, call: HdfsCall, content: bytes | bytearray | None) -> bool:
        """Publish the file, and end it: False when its name is taken. Raises as `ask`."""
        published = self.ask(call, content, lambda file: file.publish(call))
        self._ended = True
        self._file = None
        return published

    def discard(self, call: HdfsCall) -> None:
        """Delete the file, unless it is published, and accept no more requests. Never raises."""
        self._ended = True
        self._drop(call)

    def _started(self, call: HdfsCall, content: bytes | bytearray | None) -> Unpublished:
        if find(call, self._target) is not None:
            raise exists_error(self._where)
        file = self._file = Unpublished(self._target)
        file.open(call)
        # A copy: a request that was given up may still hold a view, and a bytearray with views cannot grow.
        file.write(call, bytes(content or b""))
        return file

    def _drop(self, call: HdfsCall) -> None:
        file = self._file
        self._file = None
        if file is not None:
            file.discard(call)


class HadoopNewFile(NewFile):
    """A draft that readers see once it is published. Its first 16 MiB stay in memory; a failure after that ends it."""

    def __init__(self, calls: HdfsCalls, where: str, target: str) -> None:
        """Create the temporary file. Raises FileExistsError when the name is taken, and StoreError."""
        self._calls = calls
        self._where = where
        self._draft = HdfsDraft(where, target)
        self._digest = hashlib.sha256()
        self._size = 0
        self._start: bytearray | None = bytearray()
        """All that was written; None once that is too much."""
        self._draft.ask(calls.start("create", where), self._start, lambda file: None)

    def write(self, data: bytes | memoryview) -> None:
        """See base class. A failure ends the file."""
        call = self._calls.start("write", self._where)
        self._draft.ask(call, self._start, lambda file: file.write(call, data))
        self._digest.update(data)
        self._size += len(data)
        if self._size > RESENT_BYTES:
            self._start = None
        elif self._start is not None:
            self._start += data

    def publish(self) -> Written:
        """See base class."""
        call = self._calls.start("publish", self._where)
        if not self._draft.publish(call, self._start):
            raise exists_error(self._where)
        return Written(self._size, self._digest.hexdigest())

    def discard(self) -> None:
        """See base class."""
        self._draft.discard(self._calls.start("discard", self._where))


class OpenFile:
    """A file that is read; a retry uses another client. Used by one thread.

    Its methods raise FileNotFoundError, also for a folder, and StoreError.
    """

    def __init__(self, calls: HdfsCalls, where: str, path: str) -> None:
        self._calls = calls
        self._where = where
        self._path = path
        self._reader: Reader | None = None
        self._size: int | None = None

    def size(self) -> int:
        """The file's size in bytes."""
        if self._size is None:
            self._ask(lambda reader: b"")
        return self._size or 0

    def read(self, start: int, length: int) -> bytes:
        """Up to `length` bytes from `start`; fewer where the file ends earlier."""
        length = min(length, self.size() - start)
        return self._ask(lambda reader: reader.read(start, length)) if length > 0 else b""

    def _ask(self, work: Callable[[Reader], bytes]) -> bytes:
        call = self._calls.start("read", self._where)
        while True:
            try:
                self._reader = self._reader or self._opened(call)
                return call.run_once(_reading(self._reader, work))
            except HadoopCallError as failure:
                self._reader = None
                call.retry_after(failure)
            except (FileNotFoundError, NotADirectoryError) as error:
                raise missing_error(self._where) from error

    def _opened(self, call: HdfsCall) -> Reader:
        reader = call.run_once(lambda client: client.open(self._path))
        if self._size is None:
            self._size = reader.size
        # Files never shrink in a store, so this one was replaced, and its pieces would not fit together.
        if reader.size < self._size:
            raise StoreError(f"{self._where} had {self._size} bytes, and has {reader.size} now: read it again")
        return reader


def _reading(reader: Reader, work: Callable[[Reader], bytes]) -> Callable[[HadoopClient], bytes]:
    return lambda client: work(reader)
