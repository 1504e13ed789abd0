"""A log over gateways that repeat an append long after the client has given it up."""

from collections.abc import Callable
from typing import TypeVar

from hypothesis import given
from hypothesis import strategies as st

from sparktrain.store.base import WriteStream
from sparktrain.store.hadoop.client import HadoopClient, Writer
from sparktrain.store.hadoop.hadoop_errors import HadoopCallError, HdfsErrorKind
from sparktrain.store.hadoop.webhdfs import GatewayClient, GatewayStream
from tests.unit.store.hadoop.memory import Faults, Hdfs, MemoryClient, MemoryStore, failing

T = TypeVar("T")

PATH = "/exp/log"
MIB = 2**20

Failures = dict[int, tuple[bool, list[int]]]
"""By the number of the append: whether a failed one takes effect, and after how many requests each it is repeated."""

failures = st.dictionaries(
    st.integers(0, 6), st.tuples(st.booleans(), st.lists(st.integers(0, 12), max_size=3)), max_size=4
)
faults = st.dictionaries(
    st.tuples(st.sampled_from(["rename", "status", "truncate", "protect"]), st.integers(0, 4)),
    st.booleans(),
    max_size=4,
)


class Gateway(Hdfs):
    def __init__(self, failures: Failures, faults: Faults) -> None:
        super().__init__(failing(faults))
        self.protected: set[int] = set()
        self._failures = failures
        self._appends = self._requests = 0
        self._late: list[tuple[int, str, bytes]] = []

    def do(self, request: str, work: Callable[[], T]) -> T:
        self._requests += 1
        self.do_late(self._requests)
        return super().do(request, work)

    def append(self, path: str, data: bytes) -> None:
        done, again = self._failures.get(self._appends, (None, []))
        self._appends += 1
        self._late += [(self._requests + wait, path, data) for wait in again]
        if done is not False:
            self._add(path, data)
        if done is not None:
            raise RuntimeError("ReadTimeout")

    def do_late(self, until: float) -> None:
        for entry in [each for each in self._late if each[0] <= until]:
            self._late.remove(entry)
            if entry[1] in self.files and id(self.files[entry[1]]) not in self.protected:
                self._add(*entry[1:])

    def _add(self, path: str, data: bytes) -> None:
        if id(self.files[path]) in self.protected:
            raise HadoopCallError("Permission denied", "let it be", HdfsErrorKind.REFUSED)
        self.files[path].data += data


class Client(MemoryClient, GatewayClient):
    _hdfs: Gateway

    def append(self, path: str) -> Writer:
        return Request(self._hdfs, path)

    def truncate(self, path: str, size: int) -> None:
        self._hdfs.do("truncate", lambda: self._file(path).data.__delitem__(slice(size, None)))

    def protect(self, path: str) -> None:
        self._hdfs.do("protect", lambda: self._hdfs.protected.add(id(self._file(path))))


class Request(Writer):
    """An append in one request."""

    def __init__(self, hdfs: Gateway, path: str) -> None:
        self._hdfs = hdfs
        self._path = path
        self._data = b""

    def write(self, data: memoryview) -> None:
        self._data += data

    def close(self) -> None:
        self._hdfs.do("append", lambda: self._hdfs.append(self._path, self._data))

    def abandon(self) -> None:
        """Nothing was sent."""


class Store(MemoryStore):
    def _connect(self, abandoned: int) -> HadoopClient:
        return Client(self.hdfs)

    def _stream(self, where: str, path: str) -> WriteStream:
        return GatewayStream(self._calls, where, path)


@given(failures, faults, st.integers(1, 5))
def test_a_log_has_every_byte_once_despite_late_appends(failures: Failures, faults: Faults, pieces: int) -> None:
    hdfs = Gateway(failures, faults)
    stream, written = Store(hdfs).open_stream("log"), b""
    for number in range(pieces):
        piece = bytes([number]) * MIB
        stream.write(piece)
        written += piece
        assert (hdfs.content(PATH) or b"").startswith(written)
    stream.close()
    hdfs.do_late(float("inf"))
    assert set(hdfs.files) == {PATH}
    assert hdfs.content(PATH) == written


def test_a_log_without_failures_is_not_made_read_only() -> None:
    hdfs = Gateway({}, {})
    stream = Store(hdfs).open_stream("log")
    stream.write(b"all is well")
    stream.close()
    assert hdfs.content(PATH) == b"all is well"
    assert not hdfs.protected
