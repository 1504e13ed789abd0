"""Files of HDFS on their way to their name, and files that are read."""

import errno
import hashlib
from collections.abc import Callable
from typing import TypeVar
from uuid import uuid4

from sparktrain.errors import StoreError, StoreRefusedError
from sparktrain.store.base import PIECE_BYTES, UNPUBLISHED, NewFile, Written
from sparktrain.store.hadoop.client import HadoopClient, HdfsEntry, Reader, Writer
from sparktrain.store.hadoop.hadoop_calls import HdfsCall, HdfsCalls
from sparktrain.store.hadoop.hadoop_errors import TroubleError

T = TypeVar("T")


def find(call: HdfsCall, path: str) -> HdfsEntry | None:
    """What is at `path`. Raises StoreError."""
    try:
        return call.ask(lambda client: client.status(path))
    except (FileNotFoundError, NotADirectoryError):
        return None


class Unpublished:
    """A file under a name that nobody looks at, on its way to its own. Used by one thread.

    Its folder is that of its target, so that a rename of the one publishes it: at once, and only when nothing has that
    name. Each method raises TroubleError when an attempt has failed, unless it says that it tries again.
    """

    def __init__(self, target: str) -> None:
        self._target = target
        self._path = self._fresh()
        self._writer: Writer | None = None
        self._size = 0
        self._closed: HdfsEntry | None = None

    def open(self, call: HdfsCall) -> None:
        """Create it."""
        path = self._path
        self._writer = self._do(call, lambda client: client.create(path))

    def write(self, call: HdfsCall, data: bytes) -> None:
        """Add `data` to the end."""
        writer, rest = self._writer, memoryview(data)
        if writer is None:
            raise ValueError(f"{self._target} is not being written any more")
        for start in range(0, len(rest), PIECE_BYTES):
            self._do(call, writing(writer, rest[start : start + PIECE_BYTES]))
        self._size += len(data)

    def close(self, call: HdfsCall) -> None:
        """End it, and see that it has come whole: a broken connection closes a part of a file as if it were all."""
        writer, path = self._writer, self._path
        if writer is None:
            raise ValueError(f"{self._target} is not being written any more")
        self._do(call, lambda client: writer.close())
        self._writer, self._closed = None, self._do(call, lambda client: client.status(path))
        if self._closed.size != self._size:
            raise TroubleError(f"{self._closed.size} of {self._size} bytes have come", "try again")

    def publish(self, call: HdfsCall) -> bool:
        """Give it its name, once closed: False when something has that. Tries again, and decides when answers are lost.

        Raises StoreError; unless the NameNode has the last request yet to do, it is whole under its name then, or not
        there at all.
        """
        target = self._target
        while True:
            taken, trouble = False, None
            try:
                call.once(renaming(self._path, target))
                return True
            except FileExistsError:
                taken = True
            except (FileNotFoundError, NotADirectoryError):
                pass
            except TroubleError as error:
                trouble = error
            if not self._take_back(call):
                return True
            if taken or find(call, target) is not None:
                self.discard(call)
                return False
            call.again(trouble or TroubleError("it could not be given its name", "see whether its folder is there"))

    def discard(self, call: HdfsCall) -> None:
        """Delete it, unless it is published. Never raises."""
        path, writer = self._path, self._writer
        self._writer = None

        def discard(client: HadoopClient) -> None:
            try:
                client.delete(path)  # before the writer lets go, which may publish a part
            finally:
                if writer is not None:
                    writer.abandon()

        call.clean_up(discard)

    def _take_back(self, call: HdfsCall) -> bool:
        """Give it another unpublished name: True when that was done, False when it had gone to its target before.

        A rename whose answer was lost may have been done, or be done yet. After this it is decided, for the file has
        either name, and the rename finds nothing any more.
        """
        path, fresh = self._path, self._fresh()
        while True:
            try:
                call.once(renaming(path, fresh))
                break
            except (FileNotFoundError, FileExistsError):
                if find(call, fresh) is not None:
                    break  # by an attempt before, whose answer was lost
                self._check_published(call)
                return False
            except TroubleError as trouble:
                call.again(trouble)
        self._path = fresh
        return True

    def _check_published(self, call: HdfsCall) -> None:
        published = find(call, self._target)
        if self._closed is None or published is None or not _same(published, self._closed):
            raise StoreError(f"{self._target} was not written: somebody has deleted {self._path}; try again")

    def _do(self, call: HdfsCall, work: Callable[[HadoopClient], T]) -> T:
        try:
            return call.once(work)
        except NotADirectoryError as error:
            raise StoreRefusedError(f"{self._target} cannot be written: {error}; choose another directory") from error
        except (FileNotFoundError, FileExistsError) as error:
            raise TroubleError(f"somebody has deleted {self._path}, or writes it too", "try again") from error

    def _fresh(self) -> str:
        return f"{self._target.rpartition('/')[0]}/{UNPUBLISHED}{uuid4().hex}"


def _same(one: HdfsEntry, other: HdfsEntry) -> bool:
    return (one.is_file, one.size, one.modified_ms) == (other.is_file, other.size, other.modified_ms)


def writing(writer: Writer, piece: memoryview) -> Callable[[HadoopClient], None]:
    """The work of one `write`."""
    return lambda client: writer.write(piece)


def renaming(source: str, target: str) -> Callable[[HadoopClient], None]:
    """The work of one `rename`."""
    return lambda client: client.rename(source, target)


class HadoopNewFile(NewFile):
    """A file under another name, until it is renamed to its own. What fails in its middle ends it: begin another."""

    def __init__(self, calls: HdfsCalls, where: str, file: Unpublished) -> None:
        self._calls = calls
        self._where = where
        self._file: Unpublished | None = file
        self._digest, self._size = hashlib.sha256(), 0

    def write(self, data: bytes) -> None:
        """See base class. Ends the file when it fails: what has arrived is unknown."""
        file, call = self._open(), self._calls.begin("write", self._where)
        try:
            file.write(call, data)
        except TroubleError as trouble:
            self.discard()
            raise call.failed(trouble) from trouble
        self._digest.update(data)
        self._size += len(data)

    def publish(self) -> Written:
        """See base class."""
        file, call = self._open(), self._calls.begin("publish", self._where)
        try:
            file.close(call)
            published = file.publish(call)
        except TroubleError as trouble:
            raise call.failed(trouble) from trouble
        finally:
            self.discard()
        if not published:
            raise FileExistsError(errno.EEXIST, "there is such a file in the store already", self._where)
        return Written(self._size, self._digest.hexdigest())

    def discard(self) -> None:
        """See base class."""
        file, self._file = self._file, None
        if file is not None:
            file.discard(self._calls.begin("discard", self._where))

    def _open(self) -> Unpublished:
        if self._file is None:
            raise ValueError(f"{self._where} was published, discarded, or has failed: it takes nothing any more")
        return self._file


class OpenFile:
    """A file that is read, by one client after the other where one fails. Used by one thread.

    Its methods raise FileNotFoundError, also for a folder, and StoreError.
    """

    def __init__(self, calls: HdfsCalls, where: str, path: str) -> None:
        self._calls = calls
        self._where = where
        self._path = path
        self._reader: Reader | None = None
        self._size: int | None = None

    def size(self) -> int:
        """In bytes."""
        if self._size is None:
            self._ask(lambda reader: b"")
        return self._size or 0

    def read(self, start: int, length: int) -> bytes:
        """At most `length` bytes from `start` on; fewer where the file ends before."""
        length = min(length, self.size() - start)
        return self._ask(lambda reader: reader.read(start, length)) if length > 0 else b""

    def _ask(self, work: Callable[[Reader], bytes]) -> bytes:
        call = self._calls.begin("read", self._where)
        while True:
            try:
                self._reader = self._reader or self._opened(call)
                return call.once(_reading(self._reader, work))
            except TroubleError as trouble:
                self._reader = None
                call.again(trouble)
            except (FileNotFoundError, NotADirectoryError) as error:
                raise no_such_file(self._where) from error

    def _opened(self, call: HdfsCall) -> Reader:
        reader = call.once(lambda client: client.open(self._path))
        if self._size is None:
            self._size = reader.size
        if reader.size < self._size:
            raise StoreError(f"{self._where} had {self._size} bytes, and has {reader.size} now: read it again")
        return reader


def _reading(reader: Reader, work: Callable[[Reader], bytes]) -> Callable[[HadoopClient], bytes]:
    return lambda client: work(reader)


def no_such_file(where: str) -> FileNotFoundError:
    """The error of a store that has no file there."""
    return FileNotFoundError(errno.ENOENT, "no such file in the store", where)
