"""Event files that readers see grow, in stores that show files only when they are complete."""

from uuid import uuid4

import pytest

from sparktrain.config.store_address import StoreAddress
from sparktrain.rundir.event_files import FLUSH_S, SegmentedStream, is_events, is_shown, open_growing, part_of, segment
from sparktrain.store.base import PIECE_BYTES, Store
from sparktrain.store.localfs import LocalStore
from sparktrain.store.url import open_store
from tests.unit.clocks import InstantClock

HOME = "run/trials/0000/generation-1/rank-0"
PATH = f"{HOME}/files/train/events.out.tfevents.1.host"


@pytest.fixture
def store() -> Store:
    return open_store(StoreAddress(f"memory://{uuid4().hex}"))


def test_parts_appear_until_the_file_is_complete(store: Store) -> None:
    clock = InstantClock()
    stream = SegmentedStream(store, PATH, clock)
    stream.write(b"one")
    stream.write(b"two")
    assert store.list("run") == [segment(PATH, 0)], "the second part waits for its time"
    clock.pause(FLUSH_S)
    stream.write(b"three")
    assert [store.read(path) for path in store.list("run")] == [b"one", b"twothree"]
    stream.write(b"four")
    stream.close()
    stream.close()
    assert {path: store.read(path) for path in store.list("run")} == {PATH: b"onetwothreefour"}
    with pytest.raises(ValueError, match="is closed"):
        stream.write(b"five")


def test_much_at_a_time_appears_at_once(store: Store) -> None:
    stream = SegmentedStream(store, PATH, InstantClock())
    stream.write(b"1")
    stream.write(bytes(PIECE_BYTES))
    assert store.list("run") == [segment(PATH, 0), segment(PATH, 1)]


def test_no_file_is_overwritten(store: Store) -> None:
    stream = SegmentedStream(store, PATH, InstantClock())
    store.put_if_absent(PATH, b"before")
    with pytest.raises(FileExistsError):
        stream.close()
    assert store.read(PATH) == b"before"


def test_a_store_that_shows_streams_needs_no_parts(tmp_path) -> None:
    local = LocalStore(tmp_path)
    stream = open_growing(local, PATH, InstantClock())
    stream.write(b"one")
    assert {path: local.read(path) for path in local.list("run")} == {PATH: b"one"}
    stream.close()


def test_parts_are_known_by_their_paths() -> None:
    assert part_of(segment(PATH, 12345678)) == (PATH, 12345678)
    assert part_of(PATH) is None
    assert part_of(f"{HOME}/growing/notes.txt") is None


@pytest.mark.parametrize(
    ("path", "shown", "grows"),
    [
        ("events.out.tfevents.1.host.2.v2", True, True),
        ("train/events.out.tfevents.1.host", True, True),
        ("plugins/profile/2026/host.xplane.pb", True, False),
        ("tfevents/weights.bin", False, False),
        ("image.png", False, False),
    ],
)
def test_tensorboard_reads_events_and_what_plugins_write(path: str, shown: bool, grows: bool) -> None:
    assert (is_shown(path), is_events(path)) == (shown, grows)
