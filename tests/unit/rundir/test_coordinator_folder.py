"""The files by which agents find their coordinator, and others learn that it lives."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from sparktrain.base.clock import SystemClock
from sparktrain.rundir.coordinator_folder import (
    CallEnd,
    CoordinatorAddress,
    CoordinatorClaim,
    CoordinatorFolder,
    CoordinatorHeartbeat,
    CoordinatorLookout,
    newest_error,
    newest_heartbeat,
    this_home,
)
from sparktrain.rundir.journal.driver_identity import DriverIdentity
from sparktrain.rundir.layout import RunLayout
from sparktrain.runs.heartbeat_watch import HEARTBEAT_COUNTS_S, HeartbeatWatch
from sparktrain.store.localfs import LocalStore
from tests.unit.driver.stored import age

RUN = RunLayout("run")
CLAIM = CoordinatorClaim(0, "host-1", 1, 0.0)
ADDRESSES = [CoordinatorAddress((f"host-{number}",), number, "print") for number in range(3)]
UNREACHABLE = DriverIdentity("host-1", 1, 0.0, "0", address="127.0.0.1:1", fingerprint="print")


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(str(tmp_path))


@pytest.fixture
def folder(store: LocalStore) -> CoordinatorFolder:
    return CoordinatorFolder(store, RUN.coordinator("0123456789ab"))


def test_the_newest_claim_and_address_count(folder: CoordinatorFolder) -> None:
    assert folder.look() == CoordinatorLookout()
    assert folder.claim(1, CLAIM)
    assert not folder.claim(1, CLAIM), "another agent starts this one"
    assert folder.look() == CoordinatorLookout(claims=1)
    folder.publish(1, ADDRESSES[1])
    folder.claim(2, CLAIM)
    assert folder.look() == CoordinatorLookout(claims=2, number=1, address=ADDRESSES[1])
    folder.publish(2, ADDRESSES[2])
    folder.publish(2, ADDRESSES[0])
    assert folder.look() == CoordinatorLookout(claims=2, number=2, address=ADDRESSES[2])


def test_the_first_end_counts_and_hides_the_rest(folder: CoordinatorFolder, store: LocalStore) -> None:
    folder.claim(1, CLAIM)
    assert newest_error(store, RUN.coordinators) is None
    folder.finish(CallEnd("SpecError", "no"))
    folder.finish(CallEnd())
    assert folder.look() == CoordinatorLookout(end=CallEnd("SpecError", "no"))
    assert newest_error(store, RUN.coordinators) == CallEnd("SpecError", "no")


def test_files_of_other_programs_count_for_nothing(folder: CoordinatorFolder, store: LocalStore) -> None:
    for name in ("address-0001.json", "claim-x.json", "heartbeat-0001-00000001.json", "end.json"):
        store.put_if_absent(f"{RUN.coordinator('0123456789ab').path}/{name}", b"not ours")
    assert folder.look() == CoordinatorLookout(claims=1, number=1)
    assert newest_heartbeat(store, RUN.coordinators, "print") is None
    assert newest_error(store, RUN.coordinators) is None


class WritingClock(SystemClock):
    """A clock with pauses that take no time; each calls `writes` with its number."""

    def __init__(self, writes: Callable[[int], None] = lambda count: None) -> None:
        self.time = 0.0
        self.pauses = 0
        self._writes = writes

    def now(self) -> float:
        return self.time

    def pause(self, seconds: float) -> None:
        self.pauses += 1
        self.time += seconds
        self._writes(self.pauses)


def test_one_heartbeat_is_left(folder: CoordinatorFolder, store: LocalStore) -> None:
    for count in (1, 2, 3):
        folder.heartbeat(1, count, CoordinatorHeartbeat(0.0, "print"))
    assert [path.rpartition("/")[2] for path in store.list(RUN.coordinators)] == ["heartbeat-0001-00000003.json"]


@pytest.mark.parametrize("clock_is_off_s", [0.0, -60.0, 3600.0, -1e9])
def test_heartbeats_that_come_show_life_whatever_their_hosts_clock_says(
    folder: CoordinatorFolder, store: LocalStore, clock_is_off_s: float
) -> None:
    def beat(pauses: int) -> None:
        if pauses % 20 == 0:
            folder.heartbeat(1, 1 + pauses // 20, heartbeat)

    heartbeat = CoordinatorHeartbeat(SystemClock().wall() + clock_is_off_s, "print")
    folder.heartbeat(1, 1, heartbeat)
    clock = WritingClock(beat)
    watch = HeartbeatWatch(store, RUN, clock)
    assert watch.shows(UNREACHABLE)
    assert clock.pauses == 0, "who only looks waits for nothing"
    assert watch.proves(UNREACHABLE)
    assert clock.time == 10.0
    assert watch.proves(UNREACHABLE), "it waits once"
    assert clock.time == 10.0
    clock.time += HEARTBEAT_COUNTS_S
    assert not watch.shows(UNREACHABLE)


@pytest.mark.parametrize("age_s", [0.0, 30.0, 60.0])
@pytest.mark.parametrize("may_write", [True, False])
@pytest.mark.parametrize("clock_is_off_s", [0.0, 3600.0])
def test_a_heartbeat_that_stays_the_same_shows_nothing_in_the_end(
    folder: CoordinatorFolder, monkeypatch: pytest.MonkeyPatch, clock_is_off_s: float, may_write: bool, age_s: float
) -> None:
    store = LocalStore(folder._store.where())
    folder.heartbeat(1, 1, CoordinatorHeartbeat(SystemClock().wall() + clock_is_off_s, "print"))
    age(store.root, age_s)
    if not may_write:
        monkeypatch.setattr(store, "put_if_absent", lambda path, data: os.mkdir("/proc/none"))
    clock = WritingClock()
    watch = HeartbeatWatch(store, RUN, clock)
    known_s = age_s if may_write else 0.0
    assert watch.shows(UNREACHABLE) == (known_s < HEARTBEAT_COUNTS_S)
    assert not watch.proves(UNREACHABLE)
    assert clock.time == pytest.approx(max(0.0, HEARTBEAT_COUNTS_S - known_s), abs=0.5)


def test_what_nobody_waits_for(folder: CoordinatorFolder, store: LocalStore) -> None:
    clock = WritingClock()
    assert not HeartbeatWatch(store, RUN, clock).shows(UNREACHABLE), "no heartbeat"
    folder.heartbeat(1, 1, CoordinatorHeartbeat(0.0, "another"))
    assert not HeartbeatWatch(store, RUN, clock).shows(UNREACHABLE), "of another coordinator"
    with subprocess.Popen(["true"]) as ended:
        ended.wait()
    folder.heartbeat(2, 1, CoordinatorHeartbeat(0.0, "print", this_home(), ended.pid))
    assert not HeartbeatWatch(store, RUN, clock).shows(UNREACHABLE), "its process was on this host"
    assert clock.pauses == 0


def test_the_heartbeat_of_a_successor_counts_though_its_clock_is_behind(
    folder: CoordinatorFolder, store: LocalStore
) -> None:
    folder.heartbeat(1, 9, CoordinatorHeartbeat(1000.0, "print"))
    clock = WritingClock(lambda pauses: folder.heartbeat(2, pauses, CoordinatorHeartbeat(10.0, "print")))
    assert HeartbeatWatch(store, RUN, clock).proves(UNREACHABLE)
