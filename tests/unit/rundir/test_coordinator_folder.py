"""The files by which agents find their coordinator, and others learn that it lives."""

from pathlib import Path

import pytest

from sparktrain.clock import SystemClock
from sparktrain.rundir.coordinator_folder import (
    CallEnd,
    CoordinatorAddress,
    CoordinatorClaim,
    CoordinatorFolder,
    CoordinatorHeartbeat,
    CoordinatorLookout,
    newest_error,
    newest_heartbeat,
)
from sparktrain.rundir.journal.writer import DriverIdentity
from sparktrain.rundir.layout import RunLayout
from sparktrain.runs.history import HEARTBEAT_COUNTS_S, shows_heartbeat
from sparktrain.store.localfs import LocalStore

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
    assert newest_heartbeat(store, RUN.coordinators) is None
    assert newest_error(store, RUN.coordinators) is None


def test_one_heartbeat_is_left_and_shows_that_a_coordinator_lives(folder: CoordinatorFolder, store: LocalStore) -> None:
    now = SystemClock().wall()
    assert not shows_heartbeat(store, RUN, UNREACHABLE)
    for count, at in enumerate((now - 20.0, now - 10.0, now), 1):
        folder.heartbeat(1, count, CoordinatorHeartbeat(at, "print"))
    assert [path.rpartition("/")[2] for path in store.list(RUN.coordinators)] == ["heartbeat-0001-00000003.json"]
    assert shows_heartbeat(store, RUN, UNREACHABLE)


@pytest.mark.parametrize(("age_s", "fingerprint"), [(HEARTBEAT_COUNTS_S + 5.0, "print"), (0.0, "another")])
def test_a_heartbeat_that_is_old_or_of_another_coordinator_shows_nothing(
    folder: CoordinatorFolder, store: LocalStore, age_s: float, fingerprint: str
) -> None:
    folder.heartbeat(1, 1, CoordinatorHeartbeat(SystemClock().wall() - age_s, fingerprint))
    assert not shows_heartbeat(store, RUN, UNREACHABLE)
