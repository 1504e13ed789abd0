"""Logs in HDFS that grow over its HTTP gateways."""

from abc import abstractmethod
from contextlib import suppress
from typing import cast

from sparktrain.errors import StoreError
from sparktrain.store.hadoop.client import HadoopClient
from sparktrain.store.hadoop.hadoop_calls import HdfsCall
from sparktrain.store.hadoop.hadoop_errors import HadoopCallError
from sparktrain.store.hadoop.hdfs_stream import HadoopStream, recovered_size
from sparktrain.store.hadoop.transfers import find, renaming


class GatewayClient(HadoopClient):
    """A client of gateways, which may execute a request long after the client has given it up."""

    @abstractmethod
    def truncate(self, path: str, size: int) -> None:
        """Truncate the file to `size` bytes; until that is complete, the file counts as being written."""

    @abstractmethod
    def protect(self, path: str) -> None:
        """Make the file read-only, also for its owner; only a superuser of HDFS can still write it."""


class GatewayStream(HadoopStream):
    """See base class. Truncates what a DataNode appends after the client has given up.

    A DataNode that received a request retries it for minutes by itself: it may append data that this stream has sent
    again since. After the first failed append, the stream checks the length after each append, and `close` makes the
    file read-only. Until the next flush, a reader may see such a late piece.
    """

    _may_append_late = False
    """An append was given up, and may still take effect."""

    def close(self) -> None:
        """See base class."""
        if self._closed:
            return
        super().close()
        if self._may_append_late:
            self._seal(self._calls.start("close", self._where))

    def _append(self, call: HdfsCall) -> None:
        try:
            super()._append(call)
        except HadoopCallError:
            self._may_append_late = True
            raise

    def _send(self, call: HdfsCall, data: bytes) -> None:
        super()._send(call, data)
        path = self._path
        if self._may_append_late and call.ask(lambda client: client.status(path)).size != self._size + len(data):
            raise HadoopCallError("an append that was given up has taken effect now", "try again")

    def _recover(self, call: HdfsCall) -> None:
        """Undo all appends after the last successful one."""
        self._cut(call, self._path)
        self._unsure = False

    def _cut(self, call: HdfsCall, path: str) -> None:
        expected_size = self._size
        while (size := recovered_size(call, path)) > expected_size:
            with suppress(FileExistsError):  # another append is running already
                call.ask(lambda client: cast("GatewayClient", client).truncate(path, expected_size))
        if size < expected_size:
            raise StoreError(f"{self._where} has {size} bytes, and had {expected_size}: another process writes it too")

    def _seal(self, call: HdfsCall) -> None:
        """Verify the file under a name that no request knows, make it read-only, and rename it back."""
        path = self._path
        aside = f"{self._path}.closing"
        self._move(call, path, aside)
        self._cut(call, aside)
        call.ask(lambda client: cast("GatewayClient", client).protect(aside))
        self._move(call, aside, path)

    def _move(self, call: HdfsCall, source: str, target: str) -> None:
        while True:
            try:
                return call.run_once(renaming(source, target))
            except (FileNotFoundError, FileExistsError) as error:
                if find(call, source) is None and find(call, target) is not None:
                    return None  # an earlier attempt did it, and its answer was lost
                raise StoreError(f"{self._where} was not closed: another process moves or writes it too") from error
            except HadoopCallError as failure:
                call.retry_after(failure)
