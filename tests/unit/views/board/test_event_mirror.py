"""Event files of any store in a local folder: only what is new is read, and what grows follows."""

import logging
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from sparktrain.config.store_address import StoreAddress
from sparktrain.errors import StoreError
from sparktrain.rundir.event_files import FLUSH_S, open_growing
from sparktrain.store.base import Store
from sparktrain.store.localfs import LocalStore
from sparktrain.store.url import open_store
from sparktrain.views.board.event_mirror import EventMirror, shown_name
from tests.unit.clocks import InstantClock

HOME = "run/trials/0003/generation-1/rank-0"
NAME = "events.out.tfevents.1.host"


@pytest.fixture(params=["directory", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    address = {"directory": str(tmp_path / "store"), "memory": f"memory://{uuid4().hex}"}[request.param]
    return open_store(StoreAddress(address))


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "mirror"


def files_of(target: Path) -> dict[str, bytes]:
    return {str(path.relative_to(target)): path.read_bytes() for path in target.rglob("*") if path.is_file()}


def test_what_tensorboard_reads_is_copied_once(store: Store, target: Path) -> None:
    store.put_if_absent(f"{HOME}/files/train/{NAME}", b"train")
    store.put_if_absent(f"{HOME}/files/plugins/profile/1/host.xplane.pb", b"profile")
    store.put_if_absent(f"{HOME}/files/weights.bin", b"not an event")
    store.put_if_absent(f"{HOME}/log.txt", b"tfevents")
    mirror = EventMirror(store, "run", target)
    assert mirror.round() == len(b"trainprofile")
    assert files_of(target) == {f"0003/train/{NAME}": b"train", "0003/plugins/profile/1/host.xplane.pb": b"profile"}
    assert mirror.round() == 0


def test_a_file_that_grows_is_followed_to_its_end(store: Store, target: Path) -> None:
    clock, mirror = InstantClock(), EventMirror(store, "run", target)
    stream, written = open_growing(store, f"{HOME}/files/{NAME}", clock), b""
    for number in range(5):
        line = f"event {number};".encode() * 1000
        stream.write(line)
        written += line
        clock.pause(FLUSH_S)
        assert mirror.round() == len(line)
        assert files_of(target) == {f"0003/{NAME}": written}
    stream.write(b"last")
    stream.close()
    for _ in range(3):
        mirror.round()
    assert files_of(target) == {f"0003/{NAME}": written + b"last"}


def test_a_driver_that_was_killed_leaves_what_it_had(target: Path) -> None:
    store = open_store(StoreAddress(f"memory://{uuid4().hex}"))
    open_growing(store, f"{HOME}/files/{NAME}", InstantClock()).write(b"first")
    EventMirror(store, "run", target).round()
    assert files_of(target) == {f"0003/{NAME}": b"first"}


class Counting(LocalStore):
    """Counts how often files are read, and fails on demand."""

    reads = 0
    problem: OSError | None = None

    def read_range(self, path: str, start: int, length: int) -> bytes:
        self.reads += 1
        if self.problem is not None:
            raise self.problem
        return super().read_range(path, start, length)


def test_files_that_stay_as_they_are_are_looked_at_less_often(tmp_path: Path, target: Path) -> None:
    store = Counting(tmp_path)
    store.put_if_absent(f"{HOME}/files/{NAME}", b"all")
    mirror = EventMirror(store, "run", target)
    for _ in range(160):
        mirror.round()
    assert store.reads < 20


def test_a_store_that_fails_is_read_again_and_logged_once(
    tmp_path: Path, target: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = Counting(tmp_path)
    store.put_if_absent(f"{HOME}/files/{NAME}", b"all")
    store.problem = StoreError("no NameNode answers")
    mirror = EventMirror(store, "run", target)
    with caplog.at_level(logging.WARNING, "sparktrain"):
        for _ in range(8):
            mirror.round()
    assert [record.getMessage().partition(":")[0] for record in caplog.records] == [
        "TensorBoard lacks new events, and copying them is retried"
    ]
    store.problem = None
    assert sum(mirror.round() for _ in range(16)) == 3


def test_it_follows_until_it_is_stopped(tmp_path: Path, target: Path) -> None:
    class Once:
        """An event that is set at the first wait."""

        over = False

        def is_set(self) -> bool:
            return self.over

        def wait(self, timeout: float) -> None:
            assert timeout >= 2.0
            self.over = True

    store = LocalStore(tmp_path)
    store.put_if_absent(f"{HOME}/files/{NAME}", b"all")
    over: Any = Once()
    EventMirror(store, "run", target).follow(over)
    assert files_of(target) == {f"0003/{NAME}": b"all"}


def test_a_folder_that_is_no_run_keeps_its_names(store: Store, target: Path) -> None:
    store.put_if_absent(f"logs/validation/{NAME}", b"1")
    EventMirror(store, "", target).round()
    assert files_of(target) == {f"logs/validation/{NAME}": b"1"}


def test_names_are_short_and_never_shared(store: Store, target: Path) -> None:
    assert shown_name(f"{HOME}/files/train/x") == "0003/train/x"
    assert shown_name("trials/0003/generation-2/rank-1/files/x") == "0003/generation-2/rank-1/x"
    store.put_if_absent(f"{HOME}/files/rank-1/{NAME}", b"of the function")
    store.put_if_absent(f"run/trials/0003/generation-1/rank-1/files/{NAME}", b"of the member")
    EventMirror(store, "run", target).round()
    assert sorted(files_of(target).values()) == [b"of the function", b"of the member"]
