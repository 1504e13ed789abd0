"""What the tests of stores in HDFS share: opening one, and a writer that runs while the test breaks the cluster."""

import getpass
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Condition, Thread
from typing import Any

from sparktrain.base.clock import SystemClock
from sparktrain.config.store_address import StoreAddress
from sparktrain.store.hadoop.client import HadoopClient
from sparktrain.store.hadoop.hadoop_calls import RetryPolicy
from sparktrain.store.hadoop.hadoop_conf import USER, resolve, with_user
from sparktrain.store.hadoop.hadoop_errors import HadoopCallError
from sparktrain.store.hadoop.hadoop_store import HadoopStore
from sparktrain.store.hadoop.hdfs import HdfsStore
from sparktrain.store.hadoop.webhdfs import WebHdfsStore
from tests.support.hadoop import Hdfs

PROTOCOLS = ["hdfs", "webhdfs"]
PROGRESS_S = 100.0
"""The stores here try for 90 s: HDFS frees the file of a dead writer after 60, which WebHDFS cannot hasten."""


def url(cluster: Hdfs, protocol: str, path: object) -> str:
    """The URL of a folder by either protocol."""
    if protocol == "hdfs":
        return f"{cluster.url}{path}"
    hosts = [each.removeprefix("http://") for each in cluster.webhdfs_url.split(";")]
    return f"webhdfs://{','.join(hosts)}{path}"


def opened(
    cluster: Hdfs, protocol: str, path: object, total_s: float = 90.0, call_s: float = 5.0, user: str = ""
) -> HadoopStore:
    """A store that tries for so many seconds, and gives up one request after so many."""
    patience = RetryPolicy(total_s, call_s, again_s=total_s, first_pause_s=0.1, longest_pause_s=2.0)
    address = StoreAddress(url(cluster, protocol, path))
    if protocol == "hdfs":
        return HdfsStore(resolve(address), patience)
    return WebHdfsStore(StoreAddress(address.url, {USER: user}) if user else with_user(address), patience)


def opened_by_a_user(cluster: Hdfs, protocol: str, path: object, **patience: float) -> HadoopStore:
    """`opened`, as a user without all rights in this HDFS, where the protocol trusts the user name."""
    if protocol == "webhdfs":
        from hdfs import InsecureClient

        superuser = InsecureClient(cluster.webhdfs_url, user=getpass.getuser(), timeout=10.0)
        superuser.makedirs(str(path), permission="777")
    return opened(cluster, protocol, path, user="ann", **patience)


def failures(store: HadoopStore) -> list[HadoopCallError]:
    """What requests of the store fail from now on, those included that it makes again."""
    once, found = store._calls.run_once, []

    def recorded(work: Callable[[HadoopClient], Any], timeout_s: float) -> Any:
        try:
            return once(work, timeout_s)
        except HadoopCallError as trouble:
            found.append(trouble)
            raise

    store._calls.run_once = recorded  # type: ignore[method-assign]
    return found


def content(number: int) -> bytes:
    return f"file {number}\n".encode() * 2000


class BusyWriter:
    """A writer that puts one file after the other, and writes a line to a log for each."""

    def __init__(self, store: HadoopStore) -> None:
        self._store = store
        self._failures = failures(store)
        self._changed = Condition()
        self._stopping = False
        self._put = 0
        self._lost: list[int] = []
        self._error: BaseException | None = None
        self._thread = Thread(target=self._work, daemon=True)

    def more(self, files: int = 3) -> None:
        """Wait until this many more files exist."""
        with self._changed:
            wanted = self._put + files
            arrived = self._changed.wait_for(lambda: self._put >= wanted or self._error, PROGRESS_S)
        assert not self._error, repr(self._error)
        assert arrived, f"{self._put} files, {wanted} were wanted; the last failures: {self._failures[-4:]}"

    def _work(self) -> None:
        try:
            log = self._store.open_stream("log")
            while not self._stopping:
                if not self._store.put_if_absent(f"put/{self._put}", content(self._put)):
                    self._lost.append(self._put)
                log.write(content(self._put) * 20)
                with self._changed:
                    self._put += 1
                    self._changed.notify_all()
            log.close()
        except BaseException as error:
            with self._changed:
                self._error = error
                self._changed.notify_all()

    def start(self) -> None:
        self._thread.start()

    def end(self) -> None:
        """Stop, and check that every byte is there, once."""
        self._stopping = True
        self._thread.join(PROGRESS_S)
        assert not self._thread.is_alive(), f"after {PROGRESS_S:g} s it still writes; {self._put} files are there"
        assert self._error is None, repr(self._error)
        assert self._lost == [], "files that another writer has put, by the answer of the store"
        assert self._store.list() == sorted(["log", *(f"put/{number}" for number in range(self._put))])
        for number in range(self._put):
            assert self._store.read(f"put/{number}") == content(number)
        check_log(self._store.read("log"), self._put)


def check_log(log: bytes, files: int) -> None:
    """A line for each file, 20 times, in their order."""
    found, place = [], 0
    while place < len(log):
        number = int(log[place : log.index(b"\n", place)].removeprefix(b"file "))
        piece = content(number) * 20
        assert log.startswith(piece, place), f"what follows byte {place} is not whole"
        found, place = [*found, number], place + len(piece)
    assert found == list(range(files))


@contextmanager
def checked_writes(store: HadoopStore) -> Iterator[BusyWriter]:
    """A writer that runs while the block breaks something; the files are compared in the end."""
    writer = BusyWriter(store)
    writer.start()
    writer.more()
    yield writer
    writer.more()
    writer.end()


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """See that the block takes no longer."""
    clock = SystemClock()
    started_at = clock.now()
    yield
    assert clock.now() - started_at < seconds
