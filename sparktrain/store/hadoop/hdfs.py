"""A store in HDFS, over its native protocol."""

import ctypes
import os
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Generic, TypeVar
from weakref import WeakSet

from sparktrain.base.backoff import Backoff
from sparktrain.base.clock import pause
from sparktrain.config.store_address import StoreAddress
from sparktrain.errors import SpecError
from sparktrain.store.hadoop import hadoop_conf
from sparktrain.store.hadoop.client import HadoopClient, HdfsEntry, Reader, Writer
from sparktrain.store.hadoop.hadoop_calls import RetryPolicy
from sparktrain.store.hadoop.hadoop_conf import become, resolve, reversed_namenodes, split
from sparktrain.store.hadoop.hadoop_errors import HadoopCallError, HdfsErrorKind, explain
from sparktrain.store.hadoop.hadoop_store import HadoopStore

if TYPE_CHECKING:
    from hdfs_native import FileStatus
    from hdfs_native._internal import RawClient, RawFileReader, RawFileWriter

T = TypeVar("T")

_RPC_ERROR = re.compile(r'(?:Fatal)?RPCError\("([\w.$]+)", "(.*)', re.DOTALL)
_FAILOVER_MS = 200
_FAILOVER_MAX_MS = 2000
_LAST_BLOCK_S = 2.5
"""How long to wait for the last block of a file. It is complete when a DataNode has reported it, mostly before the file
is closed, otherwise milliseconds later, and when no writer appends to it."""


class HdfsStore(HadoopStore):
    """A folder of HDFS over its native protocol, with high availability, Kerberos, delegation tokens and encryption.

    A growing log is visible up to its last append, a few seconds behind. A put file is durable: its last block is on
    the disks of all its DataNodes, earlier blocks are at least in their memory.

    A process forked from one that has used such a store must not use one: it is refused, because the library would mix
    up their data. Spawned processes and other programs may.
    """

    @classmethod
    def at(cls, address: StoreAddress) -> "HdfsStore":
        """Open the store of an hdfs:// URL; reads only its configuration. Raises SpecError."""
        if find_spec("hdfs_native") is None:
            raise SpecError(
                f"dir ({address.url}) is in HDFS, and its client is missing: pip install 'sparktrain[hdfs]'"
            )
        return cls(resolve(address))

    def _connect(self, abandoned: int) -> HadoopClient:
        become(self._address.settings)
        authority = split(self._address.url)[0]
        hadoop_conf.check([authority])
        # The native client tries NameNodes in their order, and one that hangs would hold every new client too.
        settings = self._address.settings if abandoned % 2 == 0 else reversed_namenodes(self._address.settings)
        last_block_s = min(_LAST_BLOCK_S, self._policy.call_s / 4)
        return _NativeClient(f"hdfs://{authority}", _with_bounds(settings, self._policy), last_block_s)

    def _explain(self, error: BaseException) -> OSError:
        if isinstance(error, HadoopCallError):
            return error
        if isinstance(error, FileNotFoundError):
            return explain("FileNotFoundException", str(error))
        if isinstance(error, FileExistsError):
            return explain("FileAlreadyExistsException", str(error))
        # For whatever a NameNode refuses the library raises RuntimeError: only the Java class in its text
        # distinguishes a quota from a permission.
        match = _RPC_ERROR.match(str(error))
        text = str(error) or type(error).__name__
        java_class, message = (match[1], match[2].removesuffix('")')) if match else ("", text)
        return explain(java_class, message, self._address.settings.get("dfs.namenode.kerberos.principal", ""))


def _with_bounds(settings: Mapping[str, str], policy: RetryPolicy) -> dict[str, str]:
    """`settings` with which a client tries NameNodes no longer than its caller waits."""
    budget_s = 0.7 * min(policy.call_s, policy.again_s)
    attempts = 1
    backoff = Backoff(_FAILOVER_MS / 1000, _FAILOVER_MAX_MS / 1000)
    while budget_s > backoff.pause_s:
        budget_s = budget_s - backoff.next_s()
        attempts = attempts + 1
    bounds = {
        "dfs.client.failover.max.attempts": str(attempts),
        "dfs.client.failover.sleep.base.millis": str(_FAILOVER_MS),
        "dfs.client.failover.sleep.max.millis": str(_FAILOVER_MAX_MS),
        # A DataNode that hangs leaves time to try another.
        "dfs.client.socket-timeout": str(int(policy.call_s * 1000 / 3)),
    }
    return {**settings, **bounds}


class _Native(Generic[T]):
    """An object of the library. It needs threads that a forked child lacks, so it must never be freed there."""

    def __init__(self, make: Callable[[], T]) -> None:
        self.raw = make()
        _LIVE.add(self)


_LIVE: "WeakSet[_Native[Any]]" = WeakSet()
_users: set[int] = set()
"""Processes that have used the library: this one, or its parents before a fork."""


def _keep_in_child() -> None:
    for native in list(_LIVE):
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(native.raw))


os.register_at_fork(after_in_child=_keep_in_child)


def _check_not_forked() -> None:
    """Raise HadoopCallError where the library would share connections with the parent process.

    It pools connections to DataNodes for all its clients. A forked child that takes one of them reads its parent's
    answers or leaves its own: whole blocks of other files, with correct checksums.
    """
    if _users - {os.getpid()}:
        raise HadoopCallError(
            f"process {os.getpid()} was forked from one that had used HDFS, and shares its connections",
            "start it by spawn or as a separate program, or have it use webhdfs://",
            HdfsErrorKind.REFUSED,
        )
    _users.add(os.getpid())


class _NativeClient(HadoopClient):
    """See base class. Uses the library's inner objects: their wrappers publish a partial file when freed."""

    def __init__(self, url: str, settings: dict[str, str], last_block_s: float) -> None:
        from hdfs_native import Client

        _check_not_forked()
        self._client: _Native[RawClient] = _Native(lambda: Client(url, settings).inner)
        self._last_block_s = last_block_s

    def status(self, path: str) -> HdfsEntry:
        return _entry(self._client.raw.get_file_info(path))

    def folder(self, path: str) -> list[HdfsEntry]:
        statuses = list(self._client.raw.list_status(path, False))
        if any(file_status.path == path and not file_status.isdir for file_status in statuses):
            raise NotADirectoryError(f"{path} is not a directory.")
        return [_entry(file_status) for file_status in statuses]

    def create(self, path: str) -> Writer:
        from hdfs_native import WriteOptions

        options = WriteOptions(overwrite=False, create_parent=True)
        return _NativeWriter(lambda: self._client.raw.create(path, options))

    def append(self, path: str) -> Writer:
        return _NativeWriter(lambda: self._client.raw.append(path))

    def recover_lease(self, path: str) -> bool:
        return self._client.raw.recover_lease(path)

    def rename(self, source: str, target: str) -> None:
        self._client.raw.rename(source, target, False)

    def delete(self, path: str) -> None:
        self._client.raw.delete(path, False)

    def delete_folder(self, path: str) -> None:
        self._client.raw.delete(path, True)

    def open(self, path: str) -> Reader:
        waited_s = 0.0
        wait_s = 0.01
        while waited_s < self._last_block_s:
            # The library leaves out the last block of a file that is open, even after hsync: a log could look shorter.
            size = self._client.raw.get_file_info(path).length
            reader = _NativeReader(lambda: self._client.raw.read(path))
            if reader.size >= size:
                return reader
            pause(wait_s)
            waited_s = waited_s + wait_s
            wait_s = 2 * wait_s
        # A writer that appends for so long is dead, or notices that it must append again.
        self._client.raw.recover_lease(path)
        raise ConnectionError(f"the last block is not complete after {waited_s:.1f} s, and nothing of it can be read")


class _NativeWriter(Writer):
    def __init__(self, make: "Callable[[], RawFileWriter]") -> None:
        self._file = _Native(make)
        self._empty = True

    def write(self, data: memoryview) -> None:
        self._file.raw.write(bytes(data))  # the library copies any other type item by item
        self._empty = False

    def close(self) -> None:
        if not self._empty:
            # HDFS acknowledges a close when the data is in the memory of DataNodes; only hsync waits for their disks.
            self._file.raw.hsync()
        self._file.raw.close()

    def abandon(self) -> None:
        with suppress(OSError, RuntimeError):
            self._file.raw.close()


class _NativeReader(Reader):
    def __init__(self, make: "Callable[[], RawFileReader]") -> None:
        self._file = _Native(make)

    @property
    def size(self) -> int:
        return self._file.raw.file_length()

    def read(self, start: int, length: int) -> bytes:
        data = self._file.raw.read_range(start, length)
        if len(data) != length:
            raise ConnectionError(f"{len(data)} of {length} bytes have arrived")
        return data


def _entry(status: "FileStatus") -> HdfsEntry:
    return HdfsEntry(status.path.rpartition("/")[2], not status.isdir, status.length, status.modification_time)
