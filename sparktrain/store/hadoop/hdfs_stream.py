"""Logs in HDFS: files that grow by small appends."""

from sparktrain.base.clock import Clock, SystemClock
from sparktrain.errors import StoreError
from sparktrain.store.base import PIECE_BYTES, WriteStream
from sparktrain.store.hadoop.hadoop_calls import HdfsCall, HdfsCalls
from sparktrain.store.hadoop.hadoop_errors import HadoopCallError
from sparktrain.store.hadoop.transfers import writing

FLUSH_BYTES = 2**20
FLUSH_S = 5.0


class HadoopStream(WriteStream):
    """A log: `write` appends to its file when 1 MiB has accumulated, or 5 s have passed since the last append.

    Between appends the file is closed, so that every client can read all of it; a process that dies loses its buffer.
    """

    def __init__(self, calls: HdfsCalls, where: str, path: str, clock: Clock | None = None) -> None:
        """`path` is an empty file without another writer."""
        self._calls = calls
        self._where = where
        self._path = path
        self._clock = clock or SystemClock()
        self._waiting = bytearray()
        self._size = 0
        """Size of the file. When `_unsure`, a lower bound: the file may also hold a part of `_waiting`."""
        self._unsure = False
        self._flushed = self._clock.now()
        self._closed = False

    def write(self, data: bytes) -> None:
        """See base class. When it raises, no data is lost: the next `write` retries."""
        if self._closed:
            raise ValueError(f"{self._where} is closed: it accepts no more data")
        self._waiting += data
        if len(self._waiting) >= FLUSH_BYTES or self._clock.now() - self._flushed >= FLUSH_S:
            self._flush()

    def close(self) -> None:
        """See base class."""
        if not self._closed:
            self._closed = True
            self._flush()

    def _flush(self) -> None:
        call = self._calls.start("append to", self._where)
        while self._waiting:
            try:
                if self._unsure:
                    self._recover(call)
                self._append(call)
            except HadoopCallError as failure:
                call.retry_after(failure)
        self._flushed = self._clock.now()

    def _append(self, call: HdfsCall) -> None:
        """Append the buffer. Raises HadoopCallError when it is unknown how much of it has arrived."""
        waiting = bytes(self._waiting)
        self._unsure = True
        self._send(call, waiting)
        self._confirm_size(self._size + len(waiting))

    def _send(self, call: HdfsCall, data: bytes) -> None:
        path = self._path
        try:
            writer = call.run_once(lambda client: client.append(path))
        except FileExistsError as error:
            raise HadoopCallError("an earlier append is still running", "try again") from error
        try:
            for start in range(0, len(data), PIECE_BYTES):
                call.run_once(writing(writer, memoryview(data)[start : start + PIECE_BYTES]))
            call.run_once(lambda client: writer.close())
        except (FileNotFoundError, FileExistsError) as error:
            raise HadoopCallError("another client has ended this append", "try again") from error

    def _recover(self, call: HdfsCall) -> None:
        """End an append that has failed, and find how much of it has arrived: a prefix."""
        self._confirm_size(recovered_size(call, self._path))

    def _confirm_size(self, size: int) -> None:
        if not 0 <= size - self._size <= len(self._waiting):
            raise StoreError(f"{self._where} has {size} bytes: another process writes it too")
        del self._waiting[: size - self._size]
        self._size = size
        self._unsure = False


def recovered_size(call: HdfsCall, path: str) -> int:
    """End any writer of the file at `path`, and return its final size in bytes. Raises StoreError."""
    while not _recovered(call, path):
        call.retry_after(HadoopCallError("an earlier append is still running", "try again"))
    return call.ask(lambda client: client.status(path)).size


def _recovered(call: HdfsCall, path: str) -> bool:
    try:
        return call.ask(lambda client: client.recover_lease(path))
    except FileExistsError:
        return False
