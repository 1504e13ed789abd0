"""The cache of a host: each group is fetched once, whatever becomes of processes, files and the disk."""

import errno
import os
import resource
import shutil
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from sparktrain.datasets import host_cache
from sparktrain.datasets.group_file import checksum
from sparktrain.datasets.host_cache import FOLDER, SHARE_OF_DISK, HostCache, write_cached
from sparktrain.errors import DataError

KIB = 1024


def batch_of(number: int, size: int = 8 * KIB) -> pa.RecordBatch:
    """A group of `size` bytes."""
    return pa.record_batch([pa.array(np.full(size // 8, number, np.int64))], names=["x"])


def never() -> pa.RecordBatch:
    raise AssertionError("fetched again")


def number_in(batch: pa.RecordBatch) -> int:
    [number] = set(batch.column("x").to_pylist())
    return int(number)


def files_in(root: Path) -> list[str]:
    return sorted(each.name for each in root.rglob("*") if each.is_file() and each.name != "lock")


class Once:
    """Counts its calls."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        self.batch, self.calls = batch, 0

    def __call__(self) -> pa.RecordBatch:
        self.calls += 1
        return self.batch


def test_a_group_is_fetched_once_and_mapped_from_then_on(tmp_path: Path) -> None:
    fetch = Once(batch_of(3))
    caches = [HostCache(tmp_path, "digest") for _ in range(2)]
    found = [cache.get(7, fetch) for cache in (*caches, *caches)]

    assert fetch.calls == 1
    assert [number_in(each) for each in found] == [3] * 4
    [folder] = tmp_path.glob("sparktrain-data-*/*")
    assert folder.stat().st_mode & 0o777 == 0o700
    maps = Path("/proc/self/maps").read_text()
    assert str(folder / "7.arrow") in maps


def test_datasets_have_groups_of_their_own(tmp_path: Path) -> None:
    one, other = HostCache(tmp_path, "one"), HostCache(tmp_path, "other")
    one.get(0, lambda: batch_of(1))

    assert other.held(0) is None
    assert number_in(other.get(0, lambda: batch_of(2))) == 2


def test_threads_that_want_a_group_at_once_fetch_it_once(tmp_path: Path) -> None:
    cache, begun, go = HostCache(tmp_path, "digest"), threading.Barrier(8), threading.Event()
    fetched: list[int] = []

    def fetch() -> pa.RecordBatch:
        fetched.append(1)
        go.wait(10)
        return batch_of(1)

    def read(_: int) -> int:
        begun.wait(10)
        return number_in(cache.get(0, fetch))

    def content(_: int) -> bytes:
        begun.wait(10)
        return cache.content(lambda: fetched.append(1) or b"manifest", b"manifest".__eq__)  # type: ignore[func-returns-value]

    with ThreadPoolExecutor(8) as pool:
        reads = [pool.submit(read, each) for each in range(8)]
        while not fetched:
            pass
        go.set()
        assert [each.result(10) for each in reads] == [1] * 8
        assert len(fetched) == 1
        assert list(pool.map(content, range(8))) == [b"manifest"] * 8
    assert len(fetched) == 2


def test_what_was_used_longest_ago_is_evicted_at_the_limit_while_others_map_it(tmp_path: Path) -> None:
    cache = HostCache(tmp_path, "digest", limit_bytes=100 * KIB)
    mapped = cache.get(0, lambda: batch_of(0))
    for group in range(1, 9):
        cache.get(group, lambda group=group: batch_of(group))  # type: ignore[misc]
        os.utime(cache._path(group), (group, group))
    os.utime(cache._path(0), (0.5, 0.5))
    cache.get(3, never)  # used now
    for group in range(9, 14):
        cache.get(group, lambda group=group: batch_of(group))  # type: ignore[misc]

    held = {group for group in range(14) if cache.held(group) is not None}
    assert sum(each.stat().st_size for each in tmp_path.rglob("*.arrow")) <= 100 * KIB
    assert held >= {3, 9, 10, 11, 12, 13}
    assert not held & {0, 1, 2}
    assert number_in(mapped) == 0, "memory of a deleted file stays"
    assert number_in(cache.get(0, lambda: batch_of(0))) == 0


def test_the_default_is_a_share_of_what_the_machine_may_write(tmp_path: Path) -> None:
    cache = HostCache(tmp_path, "digest", quota_bytes=int(50 * KIB / SHARE_OF_DISK))
    for group in range(10):
        cache.get(group, lambda: batch_of(1))
    assert 0 < sum(each.stat().st_size for each in tmp_path.rglob("*.arrow")) <= 50 * KIB


def test_a_limit_below_one_group_serves_it_without_a_second_fetch(tmp_path: Path) -> None:
    cache = HostCache(tmp_path, "digest", limit_bytes=KIB)
    for group in range(5):
        fetch = Once(batch_of(group))
        assert number_in(cache.get(group, fetch)) == group
        assert fetch.calls == 1
    assert len(list(tmp_path.rglob("*.arrow"))) == 1


@pytest.mark.usefixtures("wrong_clock")
def test_the_limit_holds_for_all_datasets_and_leaves_young_files_in_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = HostCache(tmp_path, "first")
    for group in range(10):
        first.get(group, lambda: batch_of(1))
    young, abandoned = first._path(90).with_suffix(".a.new"), first._path(91).with_suffix(".b.new")
    for each in (young, abandoned):
        each.write_bytes(bytes(9 * KIB))
    os.utime(abandoned, (young.stat().st_mtime - 7200,) * 2)
    HostCache(tmp_path, "second", limit_bytes=50 * KIB).get(0, lambda: batch_of(2))

    assert young.exists()
    assert not abandoned.exists()
    assert sum(each.stat().st_size for each in tmp_path.rglob("*.*") if each.is_file()) <= 50 * KIB


@pytest.fixture
def small_files() -> Callable[[int], None]:
    """Lets files of this process be no larger than so many bytes, until the end of the test."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)

    def limit(size: int) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))

    yield limit  # type: ignore[misc]
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_file_that_cannot_be_written_is_an_error_with_the_next_step(
    tmp_path: Path, small_files: Callable[[int], None]
) -> None:
    cache = HostCache(tmp_path, "digest")
    small_files(4 * KIB)
    with pytest.raises(DataError, match=r"8\.0 KiB of data do not fit into the cache in .*large\): free space there"):
        cache.get(0, lambda: batch_of(1))
    assert files_in(tmp_path) == []
    small_files(-1)
    assert number_in(cache.get(0, lambda: batch_of(1))) == 1


def test_what_others_have_put_in_the_place_of_the_cache_stays_and_a_private_folder_is_shared(tmp_path: Path) -> None:
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (tmp_path / f"{FOLDER}-{os.getuid()}").symlink_to(foreign)
    assert number_in(HostCache(tmp_path, "digest").get(0, lambda: batch_of(1))) == 1
    batch = HostCache(tmp_path, "digest").held(0)
    assert batch is not None, "the next process has the same folder"
    assert list(foreign.iterdir()) == []


def test_a_place_that_is_no_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(DataError, match=r"no cache of data can be kept in .*Not a directory.*set data_cache"):
        HostCache(tmp_path / "file", "digest")


def test_files_of_an_earlier_boot_are_not_used_and_go_when_room_is_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(host_cache, "_boot", lambda: "before")
        HostCache(tmp_path, "digest").get(0, lambda: batch_of(1))
    for path in tmp_path.rglob("*"):
        os.utime(path, (1, 1))
    fetch = Once(batch_of(2))
    cache = HostCache(tmp_path, "digest", limit_bytes=20 * KIB)
    assert number_in(cache.get(0, fetch)) == 2
    cache.get(1, lambda: batch_of(3))

    assert fetch.calls == 1
    assert list(tmp_path.glob("*/before-*")) == []


def test_what_a_host_that_shares_the_directory_uses_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(host_cache, "_boot", lambda: "elsewhere")
        other = HostCache(tmp_path, "digest")
        other.get(0, lambda: batch_of(1))
    cache = HostCache(tmp_path, "digest", limit_bytes=10 * KIB)
    for group in range(3):
        cache.get(group, lambda: batch_of(2))
    assert number_in(other.get(0, never)) == 1


def test_eviction_takes_what_the_cache_has_made_and_follows_no_link(tmp_path: Path) -> None:
    cache = HostCache(tmp_path, "digest", limit_bytes=10 * KIB)
    [home] = tmp_path.glob("sparktrain-data-*")
    elsewhere = tmp_path / "elsewhere"
    foreign = [
        home / "notes-2024" / "0.arrow", home / "thesis" / "lock", home / "0123456789ab-mine" / "lock",
        home / "0123456789ab-mine" / "thesis.txt", elsewhere / "lock", elsewhere / "0.arrow",
        cache._path(0).with_name("mine"),
    ]  # fmt: skip
    for path in foreign:
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(bytes(KIB))
    (home / "fedcba987654-link").symlink_to(elsewhere)
    cache._path(99).symlink_to(elsewhere / "0.arrow")
    for path in (*foreign, *(each.parent for each in foreign)):
        os.utime(path, (1, 1))
    for group in range(4):
        assert number_in(cache.get(group, lambda group=group: batch_of(group))) == group
    assert all(path.exists() for path in foreign)
    assert (home / "fedcba987654-link").is_symlink()


@pytest.mark.parametrize("size", [0, 100, 8 * KIB])
def test_a_truncated_file_is_fetched_again(tmp_path: Path, size: int, caplog: pytest.LogCaptureFixture) -> None:
    cache = HostCache(tmp_path, "digest")
    cache.get(0, lambda: batch_of(1))
    os.truncate(cache._path(0), size)

    assert number_in(cache.get(0, lambda: batch_of(2))) == 2
    assert "0.arrow is corrupt" in caplog.text
    cache.get(0, never)


def test_a_folder_that_was_cleaned_away_is_made_again(tmp_path: Path) -> None:
    cache = HostCache(tmp_path, "digest")
    mapped = cache.get(0, lambda: batch_of(1))
    shutil.rmtree(next(tmp_path.glob("sparktrain-data-*")))

    assert number_in(cache.get(0, lambda: batch_of(2))) == 2
    assert number_in(mapped) == 1
    assert cache.content(lambda: b"again", bool) == b"again"


def test_a_failed_fetch_leaves_nothing_and_releases_the_group(tmp_path: Path) -> None:
    cache = HostCache(tmp_path, "digest", wait_s=0.05)

    def fail() -> pa.RecordBatch:
        raise OSError(errno.EIO, "the store is away")

    for _ in range(2):
        with pytest.raises(OSError, match="the store is away"):
            cache.get(0, fail)
    assert files_in(tmp_path) == []
    assert number_in(cache.get(0, lambda: batch_of(1))) == 1


@pytest.mark.parametrize("limit", [None, 20 * KIB])
def test_folders_that_a_cleaner_has_deleted_come_back_for_their_user_alone(tmp_path: Path, limit: int | None) -> None:
    cache = HostCache(tmp_path / "cache", "digest", limit)

    def fetched_while_a_cleaner_runs(number: int) -> pa.RecordBatch:
        shutil.rmtree(tmp_path / "cache")
        return batch_of(number)

    shutil.rmtree(tmp_path / "cache")
    assert number_in(cache.get(0, lambda: batch_of(0))) == 0
    for number in (1, 2):
        assert number_in(cache.get(number, lambda number=number: fetched_while_a_cleaner_runs(number))) == number
        assert number_in(cache.get(number, never)) == number
    [home] = (tmp_path / "cache").iterdir()
    assert [each.stat().st_mode & 0o777 for each in (home, *home.iterdir())] == [0o700, 0o700]


# ---- bytes that have changed on the disk


TEXTS = pa.record_batch([pa.array(np.arange(1000.0)), pa.array(["ab"] * 1000)], names=["x", "s"])


def changed(path: Path, place: int) -> None:
    content = bytearray(path.read_bytes())
    content[place] ^= 0x40
    path.write_bytes(content)


@pytest.mark.parametrize("place", [0, 1, 8, 100, 0.2, 0.5, 0.8, -70, -25, -24, -16, -5, -1])
def test_a_wrong_bit_anywhere_is_found_and_the_group_fetched_again_with_one_warning(
    tmp_path: Path, place: float, caplog: pytest.LogCaptureFixture
) -> None:
    cache, fetch = HostCache(tmp_path, "digest"), Once(TEXTS)
    cache.get(0, fetch)
    path = cache._path(0)
    changed(path, int(place * path.stat().st_size) if isinstance(place, float) else int(place))
    again = [HostCache(tmp_path, "digest").get(0, fetch) for _ in range(3)]

    padding = place == -1  # the end of the trailer has no meaning
    assert fetch.calls == (1 if padding else 2)
    assert caplog.text.count("0.arrow is corrupt (") == (0 if padding else 1)
    assert all(each.equals(TEXTS) for each in again)
    assert files_in(tmp_path) == ["0.arrow"]


def test_a_change_while_a_process_runs_is_found_when_it_maps_the_group_again(tmp_path: Path) -> None:
    cache, fetch = HostCache(tmp_path, "digest"), Once(TEXTS)
    for epoch in range(1, 4):
        assert cache.get(0, fetch).equals(TEXTS)
        assert fetch.calls == epoch
        changed(cache._path(0), 2000)


def test_a_file_without_a_checksum_is_fetched_again(tmp_path: Path) -> None:
    """An earlier version has written it, or its process died in between."""
    cache, fetch = HostCache(tmp_path, "digest"), Once(TEXTS)
    with pa.OSFile(str(cache._path(0)), "wb") as sink, pa.ipc.new_stream(sink, TEXTS.schema) as writer:
        writer.write_batch(TEXTS)

    assert cache.get(0, fetch).equals(TEXTS)
    assert fetch.calls == 1


def test_offsets_that_reach_outside_are_refused_though_the_checksum_fits(tmp_path: Path) -> None:
    offsets = pa.py_buffer(np.array([0, 2, 2**30, 6], np.int32))
    wild = pa.StringArray.from_buffers(3, offsets, pa.py_buffer(b"abcdef"))
    cache, fetch = HostCache(tmp_path, "digest"), Once(TEXTS)
    write_cached(cache._path(0), pa.record_batch([wild], names=["s"]))

    assert cache.get(0, fetch).equals(TEXTS)
    assert fetch.calls == 1


def test_text_that_is_no_utf8_is_kept(tmp_path: Path) -> None:
    text = pa.array([b"\xff\xfe", b"ok"]).view(pa.string())
    cache, fetch = HostCache(tmp_path, "digest"), Once(pa.record_batch([text], names=["s"]))
    for _ in range(2):
        assert cache.get(0, fetch).column("s").view(pa.binary()).to_pylist() == [b"\xff\xfe", b"ok"]
    assert fetch.calls == 1


def test_a_slow_reader_of_a_corrupt_file_leaves_the_good_one_in_its_place(tmp_path: Path) -> None:
    """Two processes find the file corrupt; the first has replaced it when the second gets the lock."""
    slow, quick, fetch = HostCache(tmp_path, "digest"), HostCache(tmp_path, "digest"), Once(TEXTS)
    slow.get(0, fetch)
    changed(slow._path(0), 2000)
    assert slow.held(0) is None
    assert quick.get(0, fetch).equals(TEXTS)
    good = os.stat(slow._path(0)).st_ino

    assert slow.get(0, fetch).equals(TEXTS)
    assert fetch.calls == 2
    assert os.stat(slow._path(0)).st_ino == good


def test_a_manifest_that_has_changed_on_the_disk_is_read_from_its_store_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cache, reads = HostCache(tmp_path, "digest"), list[int]()

    def content() -> bytes:
        return cache.content(lambda: reads.append(1) or b"manifest", b"manifest".__eq__)  # type: ignore[func-returns-value]

    assert [content(), content()] == [b"manifest"] * 2
    [path] = tmp_path.rglob("manifest.json")
    changed(path, 3)
    assert [content(), content()] == [b"manifest"] * 2
    assert len(reads) == 2
    assert caplog.text.count("manifest.json is corrupt: it is fetched again") == 1


def test_a_file_that_a_cleaner_deletes_before_its_checksum_is_written_is_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "0.arrow"

    def checked(stream: pa.Buffer) -> int:
        path.unlink()
        return checksum(stream)

    monkeypatch.setattr(host_cache, "checksum", checked)
    with pytest.raises(FileNotFoundError):
        host_cache.write_cached(path, batch_of(1))
    assert list(tmp_path.iterdir()) == []
