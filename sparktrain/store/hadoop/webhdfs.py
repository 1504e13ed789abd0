"""A store in HDFS, over its HTTP gateways."""

from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from importlib.util import find_spec
from queue import Full, Queue
from threading import Event
from typing import Any, cast

from sparktrain.config.store_address import StoreAddress
from sparktrain.errors import SpecError, StoreError
from sparktrain.store.base import PIECE_BYTES, WriteStream
from sparktrain.store.call_timeout import THREADS
from sparktrain.store.hadoop import hadoop_conf
from sparktrain.store.hadoop.client import HadoopClient, HdfsEntry, Reader, Writer
from sparktrain.store.hadoop.hadoop_calls import HdfsCall
from sparktrain.store.hadoop.hadoop_conf import split, with_user
from sparktrain.store.hadoop.hadoop_errors import HadoopCallError, HdfsErrorKind, explain
from sparktrain.store.hadoop.hadoop_store import HadoopStore
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


_CONNECT_S = 5.0


class WebHdfsStore(HadoopStore):
    """A folder of HDFS over WebHDFS: for sites where only HTTP reaches the NameNodes and all DataNodes.

    Without Kerberos. DataNodes write to disk when their kernel does, so a put file survives the end of every process
    and of some machines, but not of all at once. A growing log is visible up to its last append, a few seconds behind;
    see `GatewayStream` for an append that fails.
    """

    @classmethod
    def at(cls, address: StoreAddress) -> "WebHdfsStore":
        """Open the store of a webhdfs:// or swebhdfs:// URL. Raises SpecError."""
        if find_spec("hdfs") is None:
            raise SpecError(
                f"dir ({address.url}) is in HDFS, and its client is missing: pip install 'sparktrain[hdfs]'"
            )
        hosts, _ = split(address.url)
        if not all(host.rpartition(":")[0] and host.rpartition(":")[2].isdigit() for host in hosts.split(",")):
            raise SpecError(
                f"dir ({address.url}) must name the HTTP address of each NameNode, as in webhdfs://host:9870/path or "
                "webhdfs://one:9870,other:9870/path"
            )
        return cls(with_user(address))

    def _connect(self, abandoned: int) -> HadoopClient:
        hosts = split(self._address.url)[0].split(",")
        hadoop_conf.check(hosts)
        if abandoned % 2:
            hosts.reverse()  # the library asks the first gateway first, and that one may hang
        scheme = "https" if self._address.url.lower().startswith("swebhdfs:") else "http"
        urls = ";".join(f"{scheme}://{host}" for host in hosts)
        return _WebClient(urls, self._user(), self._policy.call_s / 2)

    def _explain(self, error: BaseException) -> OSError:
        if isinstance(error, FileNotFoundError | FileExistsError | NotADirectoryError | HadoopCallError):
            return error
        from hdfs import HdfsError

        if isinstance(error, HdfsError):
            # A refusal that does not come from Hadoop has no Java class.
            java_class = error.exception or ("AuthorizationException" if "uthentication" in str(error) else "")
            return explain(java_class, str(error))
        name = type(error).__name__
        if name in ("ConnectTimeout", "ReadTimeout"):
            step = "see whether a NameNode or DataNode hangs"
            return HadoopCallError(f"{name}: {error}", step, HdfsErrorKind.OVERDUE)
        return explain("", f"{name}: {error}")

    def _stream(self, where: str, path: str) -> WriteStream:
        return GatewayStream(self._calls, where, path)


class _WebClient(GatewayClient):
    """See base class."""

    def __init__(self, urls: str, user: str, timeout_s: float) -> None:
        from hdfs import InsecureClient
        from hdfs.client import _Request

        class Client(InsecureClient):  # type: ignore[misc] # without types
            # The library lacks this operation of WebHDFS.
            _truncate = _Request("POST")

            def resolve(self, hdfs_path: str) -> str:
                return hdfs_path  # all are absolute, and none has the library's wildcards

        self._client = Client(urls, user=user, timeout=(min(_CONNECT_S, timeout_s), timeout_s))

    def status(self, path: str) -> HdfsEntry:
        return _entry(path.rpartition("/")[2], self._client.status(path))

    def folder(self, path: str) -> list[HdfsEntry]:
        return [_entry(name, status) for name, status in self._client.list(path, status=True)]

    def create(self, path: str) -> Writer:
        return _WebWriter(partial(self._client.write, path, overwrite=False))

    def append(self, path: str) -> Writer:
        return _WebWriter(partial(self._client.write, path, append=True))

    def recover_lease(self, path: str) -> bool:
        self._client.write(path, data=b"", append=True)  # refused while it is being written
        return True

    def rename(self, source: str, target: str) -> None:
        # With options, an error is explicit and the file never moves into a folder. A gateway that ignores them answers
        # true or false.
        answer = self._client._rename(source, destination=target, renameoptions="NONE")
        if answer.content and not answer.json()["boolean"]:
            self.status(source)
            raise FileExistsError(f"{target} exists already")

    def truncate(self, path: str, size: int) -> None:
        self._client._truncate(path, newlength=size)

    def protect(self, path: str) -> None:
        self._client.set_permission(path, "444")

    def delete(self, path: str) -> None:
        self._client.delete(path)

    def delete_folder(self, path: str) -> None:
        self._client.delete(path, recursive=True)

    def open(self, path: str) -> Reader:
        status = self._client.status(path)
        if status["type"] != "FILE":
            raise FileNotFoundError(f"{path} is not a file")
        return _WebReader(self._client, path, status["length"])


class _WebReader(Reader):
    def __init__(self, client: Any, path: str, size: int) -> None:
        self._client = client
        self._path = path
        self._size = size

    @property
    def size(self) -> int:
        return self._size

    def read(self, start: int, length: int) -> bytes:
        with self._client.read(self._path, offset=start, length=length, chunk_size=PIECE_BYTES) as pieces:
            data = b"".join(pieces)
        if len(data) != length:
            raise ConnectionError(f"{len(data)} of {length} bytes have arrived")
        return data


class _WebWriter(Writer):
    """One request for the whole file, with a streamed body when there is more than one piece."""

    def __init__(self, send: Callable[..., None]) -> None:
        self._send = send
        self._first: bytes | None = None
        self._upload: _Upload | None = None

    def write(self, data: memoryview) -> None:
        # Most files are one piece, and need no thread.
        if self._first is None:
            self._first = bytes(data)
            return
        if self._upload is None:
            self._upload = _Upload(self._send)
            THREADS.start(self._upload.run)
            self._upload.give(self._first)
        self._upload.give(bytes(data))

    def close(self) -> None:
        if self._upload is None:
            self._send(data=self._first or b"")
        else:
            self._upload.end()

    def abandon(self) -> None:
        if self._upload is not None:
            self._upload.stop()


class _Upload:
    """A request with a streamed body, on a separate thread."""

    def __init__(self, send: Callable[..., None]) -> None:
        self._send = send
        self._pieces: Queue[bytes | None] = Queue(maxsize=1)
        self._stopped = False
        self._ended = Event()
        self._error: BaseException | None = None

    def run(self) -> None:
        """Send everything that `give` passes. Blocks."""
        try:
            self._send(data=self._body())
        except BaseException as error:
            self._error = error
        finally:
            self._ended.set()

    def give(self, piece: bytes | None) -> None:
        """Send `piece`; None is the end. Blocks until the previous piece is sent; raises what the request raised."""
        while not self._ended.is_set():
            try:
                return self._pieces.put(piece, timeout=0.1)
            except Full:
                continue
        raise self._error or ConnectionError("the request has ended before its body")

    def end(self) -> None:
        """Wait for the answer; raises what the request raised."""
        self.give(None)
        self._ended.wait()
        if self._error is not None:
            raise self._error

    def stop(self) -> None:
        """Abort the request; returns at once."""
        self._stopped = True
        with suppress(Full):  # the request notices with the piece in the queue
            self._pieces.put_nowait(None)

    def _body(self) -> Iterator[bytes]:
        while True:
            piece = self._pieces.get()
            if self._stopped:
                raise ConnectionError("the file was discarded")
            if piece is None:
                return
            yield piece


def _entry(name: str, status: Any) -> HdfsEntry:
    is_file = status["type"] != "DIRECTORY"  # a symbolic link counts as a file, and is not followed
    return HdfsEntry(name, is_file, status["length"] if is_file else 0, status["modificationTime"])
