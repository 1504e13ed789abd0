"""How long a store over HDFS retries, and its errors when it gives up."""

import hashlib
import math
from collections.abc import Callable
from threading import Event
from typing import TypeVar

import pytest
from msgspec import structs

from sparktrain.errors import RunDirectoryError, StoreError, StoreRefusedError, StoreTimeoutError
from sparktrain.store.base import UNPUBLISHED, NewFile, Written
from sparktrain.store.call_timeout import SpareThreads
from sparktrain.store.hadoop import hadoop_calls
from sparktrain.store.hadoop.hadoop_calls import RetryPolicy
from sparktrain.store.hadoop.hadoop_errors import HadoopCallError, HdfsErrorKind
from sparktrain.store.hadoop.transfers import RESENT_BYTES
from tests.unit.store.hadoop.memory import QUICK, Faults, Hdfs, MemoryStore, failing

T = TypeVar("T")

MIB = bytes(2**20)
BRIEF = structs.replace(QUICK, again_s=0.3, first_pause_s=0.01, longest_pause_s=0.01)
"""Some dozens of attempts."""


class Impatient(SpareThreads):
    """Threads that abandon the first call after a moment; all others have the time that they ask for."""

    def __init__(self) -> None:
        super().__init__()
        self._next_s = 0.05

    def run(self, call: Callable[[], T], timeout_s: float) -> T:
        limit_s, self._next_s = min(timeout_s, self._next_s), math.inf
        return super().run(call, limit_s)


def raising(error: Exception, *requests: str) -> Callable[[str, bool], None]:
    def fail(request: str, done: bool) -> None:
        if request in requests and not done:
            raise error

    return fail


def test_a_call_that_hangs_is_abandoned_with_its_client(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hadoop_calls, "THREADS", Impatient())
    released, hung = Event(), []

    def fail(request: str, done: bool) -> None:
        if request == "status" and not hung:
            hung.append(request)
            released.wait(30.0)

    store = MemoryStore(Hdfs(fail))
    try:
        assert store.put_if_absent("a", b"1") is True
    finally:
        released.set()
    assert (hung, store.connected) == (["status"], 2)


def test_a_store_that_never_answers_times_out() -> None:
    released = Event()
    policy = RetryPolicy(call_s=0.1, again_s=1.0, first_pause_s=0.6)
    store = MemoryStore(Hdfs(lambda request, done: released.wait(30.0) and None), policy)
    try:
        with pytest.raises(
            StoreTimeoutError, match=r"^look at hdfs://memory:1/exp/a failed, .*: no answer within 0\.1 s; see whether"
        ):
            store.exists("a")
    finally:
        released.set()


def test_a_transient_error_is_retried_until_the_budget_is_spent() -> None:
    failures = []

    def fail(request: str, done: bool) -> None:
        failures.append(request)
        raise HadoopCallError("its NameNode is in safe mode", "wait until it has left it")

    with pytest.raises(StoreError, match=r"put .* its NameNode is in safe mode; wait until") as caught:
        MemoryStore(Hdfs(fail), BRIEF).put_if_absent("a", b"1")
    assert not isinstance(caught.value, StoreRefusedError | StoreTimeoutError)
    assert len(failures) > 10


@pytest.mark.parametrize("request_", ["create", "write", "close", "rename"])
def test_a_refusal_is_not_retried(request_: str) -> None:
    refusal = HadoopCallError("Permission denied: user=ann", "choose another directory", HdfsErrorKind.REFUSED)
    hdfs = Hdfs(raising(refusal, request_))
    with pytest.raises(StoreRefusedError, match=r"^put hdfs://memory:1/exp/a: Permission denied: user=ann; choose"):
        MemoryStore(hdfs, QUICK).put_if_absent("a", b"1")
    assert all(UNPUBLISHED not in path for path in hdfs.files)


def test_a_full_disk_is_retried_and_refused_in_the_end() -> None:
    full = HadoopCallError("File could only be written to 0 of the 1 minReplication nodes", "see", HdfsErrorKind.FULL)
    with pytest.raises(StoreRefusedError, match="could only be written"):
        MemoryStore(Hdfs(raising(full, "close")), BRIEF).put_if_absent("a", b"1")


@pytest.mark.parametrize(
    "faults",
    [
        {("write", 0): False, ("write", 1): True, ("create", 1): False},
        {("write", 1): True, ("write", 2): False, ("create", 2): True},
        {("close", 0): False, ("create", 1): False, ("close", 1): True},
    ],
    ids=["first write", "second write", "close"],
)
def test_the_start_of_a_new_file_is_sent_again_in_another_temporary_file(faults: Faults) -> None:
    hdfs = Hdfs(failing(faults))
    new = MemoryStore(hdfs).create("a")
    new.write(b"1")
    new.write(memoryview(b"2"))
    assert new.publish() == Written(2, hashlib.sha256(b"12").hexdigest())
    assert {path: bytes(file.data) for path, file in hdfs.files.items() if UNPUBLISHED not in path} == {"/exp/a": b"12"}


@pytest.mark.parametrize("request_", ["write", "close"])
def test_a_new_file_ends_when_its_start_cannot_be_written(request_: str) -> None:
    hdfs = Hdfs()
    new = MemoryStore(hdfs, BRIEF).create("a")
    hdfs.fail = raising(RuntimeError("DataTransferError"), request_)
    with pytest.raises(
        StoreError, match=r"^(write|publish) hdfs://memory:1/exp/a failed, the last time after 0\.[1-9] s"
    ):
        write_and_publish(new)
    check_ended(new, hdfs)


@pytest.mark.parametrize("request_", ["write", "close"])
def test_a_failure_ends_a_new_file_that_is_too_large_to_be_sent_again(request_: str) -> None:
    hdfs = Hdfs()
    new = MemoryStore(hdfs).create("a")
    for _ in range(RESENT_BYTES // len(MIB) + 1):
        new.write(MIB)
    hdfs.fail = raising(RuntimeError("DataTransferError"), request_)
    with pytest.raises(StoreError, match=r"^(write|publish) hdfs://memory:1/exp/a failed, the last time after 0\.0 s"):
        write_and_publish(new)
    check_ended(new, hdfs)


def write_and_publish(new: NewFile) -> None:
    new.write(b"1")
    new.publish()


def check_ended(new: NewFile, hdfs: Hdfs) -> None:
    assert hdfs.files == {}
    with pytest.raises(ValueError, match="has failed"):
        new.write(b"2")


def test_a_probe_names_user_directory_and_reason() -> None:
    refusal = HadoopCallError("Permission denied: user=ann", "choose another directory", HdfsErrorKind.REFUSED)
    with pytest.raises(
        RunDirectoryError,
        match=r"^run directory hdfs://memory:1/exp cannot be written by user ann: Permission denied: user=ann; choose",
    ):
        MemoryStore(Hdfs(raising(refusal, "create"))).probe()
