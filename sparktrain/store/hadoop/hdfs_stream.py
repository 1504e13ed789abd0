"""Logs in HDFS: files that grow by small appends."""

from sparktrain.clock import Clock, SystemClock
from sparktrain.errors import StoreError
from sparktrain.store.base import PIECE_BYTES, WriteStream
from sparktrain.store.hadoop.hadoop_calls import HdfsCall, HdfsCalls
from sparktrain.store.hadoop.hadoop_errors import TroubleError
from sparktrain.store.hadoop.transfers import writing

FLUSH_BYTES = 2**20
FLUSH_S = 5.0


class HadoopStream(WriteStream):
    """A file that is appended to when a MiB is there, or a write comes 5 s after the last append.

    Between appends it is closed, so that all clients can read all of it; a process that dies loses what it holds back.
    """

    def __init__(self, calls: HdfsCalls, where: str, path: str, clock: Clock | None = None) -> None:
        """`path` is an empty file that nobody else writes."""
        self._calls = calls
        self._where = where
        self._path = path
        self._clock = clock or SystemClock()
        self._waiting = bytearray()
        self._size = 0
        """Of the file, unless `_unsure`: it has at least that then, and at most what waits too."""
        self._unsure = False
        self._flushed = self._clock.now()
        self._closed = False

    def write(self, data: bytes) -> None:
        """See base class. When it raises, nothing of `data` is lost: the next `write` tries again."""
        if self._closed:
            raise ValueError(f"{self._where} is closed: it takes nothing any more")
        self._waiting += data
        if len(self._waiting) >= FLUSH_BYTES or self._clock.now() - self._flushed >= FLUSH_S:
            self._flush()

    def close(self) -> None:
        """See base class."""
        if not self._closed:
            self._closed = True
            self._flush()

    def _flush(self) -> None:
        call = self._calls.begin("append to", self._where)
        while self._waiting:
            try:
                if self._unsure:
                    self._settle(call)
                self._append(call)
            except TroubleError as trouble:
                call.again(trouble)
        self._flushed = self._clock.now()

    def _append(self, call: HdfsCall) -> None:
        """Append what waits. Raises TroubleError when it is unknown how much of it has come."""
        waiting = bytes(self._waiting)
        self._unsure = True
        self._send(call, waiting)
        self._has(self._size + len(waiting))

    def _send(self, call: HdfsCall, data: bytes) -> None:
        path = self._path
        try:
            writer = call.once(lambda client: client.append(path))
        except FileExistsError as error:
            raise TroubleError("an append before is still going on", "try again") from error
        try:
            for start in range(0, len(data), PIECE_BYTES):
                call.once(writing(writer, memoryview(data)[start : start + PIECE_BYTES]))
            call.once(lambda client: writer.close())
        except (FileNotFoundError, FileExistsError) as error:
            raise TroubleError("another has ended this append", "try again") from error

    def _settle(self, call: HdfsCall) -> None:
        """End an append that has failed, and see how much of it has come: a prefix."""
        self._has(settled_size(call, self._path))

    def _has(self, size: int) -> None:
        if not 0 <= size - self._size <= len(self._waiting):
            raise StoreError(f"{self._where} has {size} bytes: somebody else writes it too")
        del self._waiting[: size - self._size]
        self._size, self._unsure = size, False


def settled_size(call: HdfsCall, path: str) -> int:
    """End whoever writes the file at `path`; its size in bytes then. Raises StoreError."""
    while not _settled(call, path):
        call.again(TroubleError("an append before is still going on", "try again"))
    return call.ask(lambda client: client.status(path)).size


def _settled(call: HdfsCall, path: str) -> bool:
    try:
        return call.ask(lambda client: client.settle(path))
    except FileExistsError:
        return False
