"""An HDFS in memory that fails on demand, before or after it has executed a request."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from sparktrain.config.store_address import StoreAddress
from sparktrain.store.hadoop.client import HadoopClient, HdfsEntry, Reader, Writer
from sparktrain.store.hadoop.hadoop_calls import RetryPolicy
from sparktrain.store.hadoop.hadoop_errors import HadoopCallError
from sparktrain.store.hadoop.hadoop_store import HadoopStore
from tests.unit.clocks import InstantClock

T = TypeVar("T")

QUICK = RetryPolicy(total_s=60.0, call_s=30.0, again_s=60.0, first_pause_s=0.001, longest_pause_s=0.001)

Faults = dict[tuple[str, int], bool]
"""By the request's name and its number among those: whether it takes effect although it fails."""
"""Many attempts, by a clock that makes no real pause. No request in memory takes as long as its timeout."""


@dataclass
class File:
    data: bytearray = field(default_factory=bytearray)
    modified_ms: int = 0
    writer: object | None = None


class Hdfs:
    """The state of a NameNode. `fail` is called before and after each request, and raises to make it fail."""

    def __init__(self, fail: Callable[[str, bool], None] = lambda request, done: None) -> None:
        self.files: dict[str, File] = {}
        self.fail = fail
        self.now_ms = 0

    def do(self, request: str, work: Callable[[], T]) -> T:
        self.fail(request, False)
        result = work()
        self.fail(request, True)
        return result

    def put(self, path: str, data: bytes) -> None:
        self.files[path] = File(bytearray(data), self.tick())

    def content(self, path: str) -> bytes | None:
        return bytes(self.files[path].data) if path in self.files else None

    def tick(self) -> int:
        self.now_ms += 1
        return self.now_ms


class MemoryClient(HadoopClient):
    def __init__(self, hdfs: Hdfs) -> None:
        self._hdfs = hdfs

    def status(self, path: str) -> HdfsEntry:
        return self._hdfs.do("status", lambda: self._status(path))

    def folder(self, path: str) -> list[HdfsEntry]:
        if path in self._hdfs.files:
            raise NotADirectoryError(path)
        beneath = {each[len(path) + 1 :].partition("/")[0] for each in self._hdfs.files if each.startswith(f"{path}/")}
        return [self._status(f"{path}/{name}") for name in beneath]

    def create(self, path: str) -> Writer:
        return self._hdfs.do("create", lambda: self._create(path))

    def append(self, path: str) -> Writer:
        return self._hdfs.do("append", lambda: self._append(path))

    def recover_lease(self, path: str) -> bool:
        self._file(path).writer = None
        return True

    def rename(self, source: str, target: str) -> None:
        self._hdfs.do("rename", lambda: self._rename(source, target))

    def delete(self, path: str) -> None:
        self._hdfs.do("delete", lambda: self._hdfs.files.pop(path, None))

    def delete_folder(self, path: str) -> None:
        def delete() -> None:
            for each in [each for each in self._hdfs.files if each.startswith(f"{path}/")]:
                del self._hdfs.files[each]

        self._hdfs.do("delete", delete)

    def open(self, path: str) -> Reader:
        return self._hdfs.do("open", lambda: MemoryReader(self._hdfs, self._file(path)))

    def _status(self, path: str) -> HdfsEntry:
        name = path.rpartition("/")[2]
        if any(each.startswith(f"{path}/") for each in self._hdfs.files):
            return HdfsEntry(name, False, 0, 0)
        file = self._file(path)
        return HdfsEntry(name, True, len(file.data), file.modified_ms)

    def _file(self, path: str) -> File:
        if path not in self._hdfs.files:
            raise FileNotFoundError(path)
        return self._hdfs.files[path]

    def _create(self, path: str) -> Writer:
        if path in self._hdfs.files:
            raise FileExistsError(path)
        above = path.split("/")[1:-1]
        if any("/" + "/".join(above[:depth]) in self._hdfs.files for depth in range(1, len(above) + 1)):
            raise NotADirectoryError(path)
        file = self._hdfs.files[path] = File()
        return MemoryWriter(self._hdfs, file)

    def _append(self, path: str) -> Writer:
        file = self._file(path)
        if file.writer is not None:
            raise FileExistsError(path)
        return MemoryWriter(self._hdfs, file)

    def _rename(self, source: str, target: str) -> None:
        file = self._file(source)
        if target in self._hdfs.files:
            raise FileExistsError(target)
        self._hdfs.files[target] = file
        del self._hdfs.files[source]


class MemoryWriter(Writer):
    def __init__(self, hdfs: Hdfs, file: File) -> None:
        self._hdfs = hdfs
        self._file = file
        file.writer = self

    def write(self, data: memoryview) -> None:
        self._hdfs.do("write", lambda: self._add(data))

    def close(self) -> None:
        self._hdfs.do("close", self._close)

    def abandon(self) -> None:
        self._close()

    def _add(self, data: memoryview) -> None:
        if self._file.writer is not self:
            raise FileNotFoundError("another client has ended this file")
        self._file.data += data

    def _close(self) -> None:
        self._file.writer = None
        self._file.modified_ms = self._hdfs.tick()


class MemoryReader(Reader):
    def __init__(self, hdfs: Hdfs, file: File) -> None:
        self._hdfs = hdfs
        self._data = bytes(file.data)

    @property
    def size(self) -> int:
        return len(self._data)

    def read(self, start: int, length: int) -> bytes:
        return self._hdfs.do("read", lambda: self._data[start : start + length])


class MemoryStore(HadoopStore):
    def __init__(self, hdfs: Hdfs, policy: RetryPolicy = QUICK) -> None:
        super().__init__(StoreAddress("hdfs://memory:1/exp"), policy, InstantClock())
        self.hdfs = hdfs
        self.connected = 0

    def _connect(self, abandoned: int) -> HadoopClient:
        self.connected += 1
        return MemoryClient(self.hdfs)

    def _explain(self, error: BaseException) -> OSError:
        return error if isinstance(error, OSError) else HadoopCallError(str(error), "try again")

    def _probing(self) -> HadoopStore:
        return self

    def _user(self) -> str:
        return "ann"


def failing(faults: Faults, other: Callable[[str, int, bool], None] = lambda *_: None) -> Callable[[str, bool], None]:
    counts: dict[str, int] = {}

    def fail(request: str, done: bool) -> None:
        number = counts.setdefault(request, 0)
        if done:
            counts[request] += 1
        other(request, number, done)
        if faults.get((request, number)) is done:
            counts[request] = number + 1
            raise RuntimeError(f"{request} {number} failed")

    return fail
