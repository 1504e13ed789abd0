"""What stores in HDFS make of daemons that die, hang, and come back."""

import multiprocessing
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from threading import Thread

import pytest

from sparktrain.base.backoff import Backoff, RetryBudget
from sparktrain.config.store_address import StoreAddress
from sparktrain.errors import StoreError, StoreTimeoutError
from sparktrain.store.base import Store
from sparktrain.store.url import open_store
from tests.hadoop.conftest import StartHdfs
from tests.hadoop.stores import (
    PROGRESS_S,
    PROTOCOLS,
    checked_writes,
    content,
    failures,
    opened,
    opened_by_a_user,
    url,
    within,
)
from tests.support.hadoop import HaHdfs, Hdfs
from tests.support.processes import wait_until

BY_HTTP = pytest.mark.all(
    case="under WebHDFS: hangs, a large file, a failover, a hung standby, a dead DataNode, a corrupt block, a race",
    covered_by="what `make test` has of these by the native protocol; `histories/test_lost_answers` and "
    "`histories/test_late_appends` for what both share",
)

pytestmark = pytest.mark.timeout(300)

both = pytest.mark.parametrize("protocol", PROTOCOLS)
natively = pytest.mark.parametrize("protocol", ["hdfs", pytest.param("webhdfs", marks=BY_HTTP)])
"""By HTTP in `make test-all` alone: what a store makes of a fault is the same code for both protocols."""

MIB = bytes(range(256)) * 4096
RACES = 40


def publish(store: Store, path: str, fault: Callable[[], None]) -> int:
    """Write a file of 24 MiB and break something in its middle, once; returns how many attempts it took.

    A new attempt waits as an agent's next attempt of a checkpoint does: a store does not retry what fails after 16 MiB.
    """
    retries, attempts = RetryBudget(PROGRESS_S, Backoff(0.5, 5.0)), 0
    while True:
        attempts += 1
        try:
            new = store.create(path)
            for number in range(24):
                if number == 8:
                    fault()
                    fault = int
                new.write(MIB)
            new.publish()
            return attempts
        except StoreError as error:
            if not retries.wait():
                raise AssertionError(f"{path} could not be published in {attempts} attempts") from error


def check_published(store: Store, path: str) -> None:
    assert store.list() == [path]
    assert all(piece == MIB * (len(piece) // len(MIB)) for piece in store.pieces(path))
    assert store.stat(path).size == 24 * len(MIB)


@both
def test_a_namenode_that_is_killed_and_started_again(breakable_hdfs: Hdfs, protocol: str, tmp_path: Path) -> None:
    with checked_writes(opened_by_a_user(breakable_hdfs, protocol, tmp_path)):
        breakable_hdfs.namenode.kill9()
        breakable_hdfs.namenode.start()
        breakable_hdfs.wait_ready()


@pytest.mark.all(
    case="a NameNode that hangs, and continues",
    covered_by="`hadoop/test_runs`: it hangs for 6 s under a run",
)
@natively
def test_a_namenode_that_hangs_and_goes_on(breakable_hdfs: Hdfs, protocol: str, tmp_path: Path) -> None:
    store = opened_by_a_user(breakable_hdfs, protocol, tmp_path, call_s=1.0)
    with checked_writes(store):
        failed = failures(store)
        breakable_hdfs.namenode.pause()
        wait_until(lambda: len(failed) >= 3, PROGRESS_S, "three requests have failed")
        breakable_hdfs.namenode.wake()


@natively
def test_a_namenode_that_hangs_for_good(breakable_hdfs: Hdfs, protocol: str, tmp_path: Path) -> None:
    store = opened(breakable_hdfs, protocol, tmp_path, total_s=3.0, call_s=1.0)
    assert store.put_if_absent("a", b"1")
    breakable_hdfs.namenode.pause()
    for call in (lambda: store.put_if_absent("b", b"2"), lambda: store.read("a"), lambda: store.list()):
        with within(6.0), pytest.raises(StoreTimeoutError, match=f"{tmp_path}.* failed, the last time after"):
            call()
    breakable_hdfs.namenode.wake()
    assert store.put_if_absent("b", b"2")
    assert store.list() == ["a", "b"]


@natively
def test_a_large_file_outlives_its_namenode(breakable_hdfs: Hdfs, protocol: str, tmp_path: Path) -> None:
    store = opened(breakable_hdfs, protocol, tmp_path, call_s=20.0)

    def restart() -> None:
        breakable_hdfs.namenode.kill9()
        breakable_hdfs.namenode.start()

    publish(store, "model", restart)
    check_published(store, "model")


@pytest.mark.all(case="an orderly failover", covered_by="the active NameNode is killed and the other promoted")
@both
def test_an_orderly_failover(
    ha_cluster: HaHdfs, protocol: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HADOOP_CONF_DIR", str(ha_cluster.conf))
    store = opened(ha_cluster, protocol, tmp_path)
    assert publish(store, "model", ha_cluster.failover) == 1
    check_published(store, "model")
    with checked_writes(opened_by_a_user(ha_cluster, protocol, tmp_path / "puts")):
        ha_cluster.failover()


@natively
def test_the_active_namenode_is_killed_and_the_other_promoted(
    ha_cluster: HaHdfs, protocol: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HADOOP_CONF_DIR", str(ha_cluster.conf))
    active = ha_cluster.namenode
    with checked_writes(opened_by_a_user(ha_cluster, protocol, tmp_path)):
        active.kill9()
        ha_cluster.promote(1 - ha_cluster.namenodes.index(active))


@pytest.mark.all(
    case="the active NameNode hangs and is fenced", covered_by="the active NameNode is killed and the other promoted"
)
@both
def test_the_active_namenode_hangs_and_is_fenced(
    ha_cluster: HaHdfs, protocol: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Promoted beside one that only hangs, the other would have a rival when that wakes: it must be killed first."""
    monkeypatch.setenv("HADOOP_CONF_DIR", str(ha_cluster.conf))
    active, store = ha_cluster.namenode, opened_by_a_user(ha_cluster, protocol, tmp_path, call_s=1.5)
    with checked_writes(store):
        failed = failures(store)
        active.pause()
        wait_until(lambda: failed, PROGRESS_S, "a request has failed")
        active.kill9()
        ha_cluster.promote(1 - ha_cluster.namenodes.index(active))


@pytest.mark.all(
    case="a hung standby costs one deadline",
    covered_by="a NameNode that hangs for good; the other one of two is promoted",
)
@natively
def test_a_hung_standby_costs_one_deadline(
    ha_cluster: HaHdfs, protocol: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HADOOP_CONF_DIR", str(ha_cluster.conf))
    if ha_cluster.namenode is ha_cluster.namenodes[0]:
        ha_cluster.failover()
    ha_cluster.namenodes[0].pause()
    store = opened(ha_cluster, protocol, tmp_path, call_s=3.0)
    # By HTTP it may cost more: DataNodes ask the NameNodes, too, with timeouts of their own.
    with within(20.0 if protocol == "hdfs" else 90.0):
        assert store.put_if_absent("a", b"1")
        assert store.read("a") == b"1"


@pytest.mark.all(
    case="safe mode in the middle of writes",
    covered_by="`hadoop/test_store_refusals`: a probe in safe mode; `unit/store/hadoop/test_hadoop_calls`",
)
@both
def test_safe_mode_for_a_while(breakable_hdfs: Hdfs, protocol: str, tmp_path: Path) -> None:
    with checked_writes(opened_by_a_user(breakable_hdfs, protocol, tmp_path)):
        breakable_hdfs.admin("-safemode", "enter")
        with pytest.raises(StoreError, match=r"in safe mode .*; wait until it has left it"):
            opened(breakable_hdfs, protocol, tmp_path / "other", total_s=1.0).put_if_absent("a", b"1")
        breakable_hdfs.admin("-safemode", "leave")


@natively
def test_a_datanode_dies_and_is_offered_still(breakable_hdfs: Hdfs, protocol: str, tmp_path: Path) -> None:
    """Its NameNode sends writers to it for 20 s, by the settings of this cluster, and for 10 minutes by default."""
    store = opened(breakable_hdfs, protocol, tmp_path)
    publish(store, "model", breakable_hdfs.datanodes[0].kill9)
    check_published(store, "model")
    assert publish(store, "next", int) == 1, "the store waits until the DataNode is no longer offered"
    with checked_writes(opened_by_a_user(breakable_hdfs, protocol, tmp_path / "puts")):
        assert not breakable_hdfs.datanodes[0].is_alive()


@natively
def test_a_corrupt_block_never_gives_wrong_bytes(start_hdfs: StartHdfs, protocol: str, tmp_path: Path) -> None:
    cluster = start_hdfs()
    store = opened(cluster, protocol, tmp_path, total_s=3.0)
    data = MIB * 3
    assert store.put_if_absent("a", data)
    corrupt(cluster, 0)
    assert [store.read("a") for _ in range(6)] == [data] * 6
    corrupt(cluster, 1)
    delivered = []
    with pytest.raises(OSError, match=str(tmp_path)):
        delivered += store.pieces("a")
    assert data.startswith(b"".join(delivered))


def corrupt(cluster: Hdfs, datanode: int) -> None:
    """Flip a byte in the middle of the newest block."""
    with open(cluster.block_files(datanode)[-1], "r+b") as block:
        block.seek(len(MIB) + 12345)
        flipped = bytes([block.read(1)[0] ^ 1])
        block.seek(len(MIB) + 12345)
        block.write(flipped)


@pytest.mark.all(
    case="processes race for files while the NameNode starts again",
    covered_by="a NameNode that is killed and restarts; `hadoop/test_store`: races; `histories/test_lost_answers`",
)
@natively
def test_a_race_while_the_namenode_starts_again_has_one_winner(
    breakable_hdfs: Hdfs, protocol: str, tmp_path: Path
) -> None:
    processes = multiprocessing.get_context("spawn")
    address = StoreAddress(url(breakable_hdfs, protocol, tmp_path), timeout_s=90.0)
    pipes = [processes.Pipe(duplex=False) for _ in range(2)]
    racers = [processes.Process(target=race, args=(address, n, sender)) for n, (_, sender) in enumerate(pipes)]
    won: list[list[int]] = [[], []]

    def follow(number: int) -> None:
        while len(won[number]) < RACES:
            won[number].append(pipes[number][0].recv())

    followers = [Thread(target=follow, args=(number,), daemon=True) for number in range(2)]
    for each in (*racers, *followers):
        each.start()
    try:
        wait_until(lambda: all(len(each) >= 5 for each in won), PROGRESS_S, "both have raced for five files")
        breakable_hdfs.namenode.kill9()
        breakable_hdfs.namenode.start()
        for each in followers:
            each.join(PROGRESS_S)
    finally:
        for racer in racers:
            racer.kill()
            racer.join()
    store = open_store(address)
    for turn in range(RACES):
        assert sorted(each[turn] for each in won) == [False, True]
        assert store.read(f"race/{turn}") == content(0 if won[0][turn] else 1)


def race(address: StoreAddress, number: int, report: Connection) -> None:
    store = open_store(address)
    for turn in range(RACES):
        report.send(store.put_if_absent(f"race/{turn}", content(number)))
