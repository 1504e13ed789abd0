"""Logs in HDFS that grow by way of its HTTP gateways."""

from contextlib import suppress
from typing import Protocol, cast

from sparktrain.errors import StoreError
from sparktrain.store.hadoop.client import HadoopClient
from sparktrain.store.hadoop.hadoop_calls import HdfsCall
from sparktrain.store.hadoop.hadoop_errors import TroubleError
from sparktrain.store.hadoop.hdfs_stream import HadoopStream, settled_size
from sparktrain.store.hadoop.transfers import find, renaming


class GatewayClient(HadoopClient, Protocol):
    """A client whose requests others do, perhaps long after it has given them up."""

    def truncate(self, path: str, size: int) -> None:
        """Cut the file off after `size` bytes; it may take a while, during which it is being written."""
        ...

    def protect(self, path: str) -> None:
        """Have nobody write the file any more, its owner included; a superuser of HDFS may."""
        ...


class GatewayStream(HadoopStream):
    """See base class. What a DataNode appends when we have long given up is cut off again.

    A DataNode that has a request of ours is a client of its own, which tries for minutes: it may append what we have
    sent once more since. From the first append that fails on, the length is looked at after each, and `close` leaves a
    file that can be appended to no more. Between, a reader may see such a piece for as long as the next flush.
    """

    _haunted = False
    """An append was given up, and may be done yet."""

    def close(self) -> None:
        """See base class."""
        if self._closed:
            return
        super().close()
        if self._haunted:
            self._seal(self._calls.begin("close", self._where))

    def _append(self, call: HdfsCall) -> None:
        try:
            super()._append(call)
        except TroubleError:
            self._haunted = True
            raise

    def _send(self, call: HdfsCall, data: bytes) -> None:
        super()._send(call, data)
        path = self._path
        if self._haunted and call.ask(lambda client: client.status(path)).size != self._size + len(data):
            raise TroubleError("an append that was given up before was done now", "try again")

    def _settle(self, call: HdfsCall) -> None:
        """Undo all appends since the last that was well."""
        self._cut(call, self._path)
        self._unsure = False

    def _cut(self, call: HdfsCall, path: str) -> None:
        wanted = self._size
        while (size := settled_size(call, path)) > wanted:
            with suppress(FileExistsError):  # somebody writes it again already
                call.ask(lambda client: cast("GatewayClient", client).truncate(path, wanted))
        if size < wanted:
            raise StoreError(f"{self._where} has {size} bytes, and had {wanted}: somebody else writes it too")

    def _seal(self, call: HdfsCall) -> None:
        """Under a name that no request knows, see that all is well; under its own again it takes nothing any more."""
        path, aside = self._path, f"{self._path}.closing"
        self._move(call, path, aside)
        self._cut(call, aside)
        call.ask(lambda client: cast("GatewayClient", client).protect(aside))
        self._move(call, aside, path)

    def _move(self, call: HdfsCall, source: str, target: str) -> None:
        while True:
            try:
                return call.once(renaming(source, target))
            except (FileNotFoundError, FileExistsError) as error:
                if find(call, source) is None and find(call, target) is not None:
                    return None  # by an attempt before, whose answer was lost
                raise StoreError(f"{self._where} was not closed: somebody else moves or writes it too") from error
            except TroubleError as trouble:
                call.again(trouble)
