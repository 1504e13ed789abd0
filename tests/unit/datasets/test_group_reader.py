"""Groups of rows in files, and their rows by number: in any order, from any thread, with flat memory."""

import ctypes
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparktrain.config.data_sources import TableSource
from sparktrain.datasets import group_file, group_reader, permuted_rows
from sparktrain.datasets.group_fetch import GroupFetcher
from sparktrain.datasets.group_file import END, GroupWriter, checksum, read_group, regrouped
from sparktrain.datasets.group_reader import GroupReader, array_specs
from sparktrain.datasets.host_cache import HostCache
from sparktrain.datasets.manifest import DataFile, Group, Manifest, decode
from sparktrain.datasets.row_arrays import Stack
from sparktrain.driver.data.run_data import plan_data, write_data
from sparktrain.errors import DataError
from sparktrain.rundir.layout import RunLayout
from sparktrain.store.localfs import LocalStore
from tests.unit.datasets.data_files import flipped


def table_of(rows: int) -> pa.Table:
    """A column of each kind, all with the number of the row."""
    ids = np.arange(rows)
    return pa.table(
        {
            "id": ids,
            "even": ids % 2 == 0,
            "name": [f"row {each}" for each in ids],
            "image": pa.array([int(each).to_bytes(4, "little") for each in ids]),
            "blob": pa.array([b"x" * (int(each) % 3) for each in ids]),
            "list": pa.array([[each, -each] for each in ids.tolist()]),
            "matrix": pa.array([[[each], [each + 1]] for each in ids.tolist()]),
        }
    )


# ---- files of groups


@given(st.lists(st.integers(0, 40), min_size=1, max_size=12), st.integers(1, 30), st.integers(8, 400))
def test_groups_hold_all_rows_in_order_within_both_bounds(batches: list[int], most_rows: int, most_bytes: int) -> None:
    table = pa.table({"x": np.arange(sum(batches))})
    starts = np.cumsum([0, *batches])
    parts = [table.slice(at, rows).combine_chunks().to_batches() for at, rows in zip(starts, batches, strict=False)]
    groups = list(regrouped((each for part in parts for each in part), most_rows, most_bytes))

    assert [row for each in groups for row in each.column("x").to_pylist()] == list(range(sum(batches)))
    assert all(0 < each.num_rows <= most_rows and each.nbytes <= max(8, most_bytes) for each in groups)
    fitting = min(most_rows, max(1, most_bytes // 8))
    assert all(each.num_rows == fitting for each in groups[:-1])


def test_a_row_larger_than_a_group_is_a_group() -> None:
    batch = pa.record_batch([pa.array([b"a" * 1000, b"b", b"c" * 1000, b"d"])], names=["x"])
    groups = list(regrouped([batch], 10, 100))

    assert [row for each in groups for row in each.column("x").to_pylist()] == batch.column("x").to_pylist()
    assert len(groups) >= 3


class Kept:
    """A new file, in memory."""

    def __init__(self) -> None:
        self.content = b""

    def write(self, data: bytes) -> None:
        self.content += data


def test_a_file_is_an_arrow_stream_with_groups_at_known_offsets() -> None:
    table, kept = table_of(50), Kept()
    writer = GroupWriter(kept, table.schema)  # type: ignore[arg-type]
    for batch in regrouped(table.slice(3).to_batches(), 20):
        writer.write(batch)
    writer.finish()

    assert pa.ipc.open_stream(kept.content).read_all().equals(table.slice(3))
    assert kept.content.endswith(END)
    assert writer.size == len(kept.content)
    assert [each.rows for each in writer.groups] == [20, 20, 7]
    for number, group in enumerate(writer.groups):
        data = kept.content[group.offset : group.offset + group.size]
        assert checksum(data) == checksum(pa.py_buffer(data)) == group.checksum
        found = read_group(pa.py_buffer(data), table.schema)
        assert found.column("id").to_pylist() == list(range(3 + 20 * number, min(50, 23 + 20 * number)))
    with pytest.raises(DataError, match="a group of rows is corrupt"):
        read_group(pa.py_buffer(kept.content[7:90]), table.schema)


@pytest.mark.parametrize("library", ["called without the lock", "of another build"])
def test_checksums_are_those_of_the_library(monkeypatch: pytest.MonkeyPatch, library: str) -> None:
    if library == "of another build":
        monkeypatch.setattr(ctypes, "CDLL", lambda path: object())
    monkeypatch.setattr(group_file, "_extend", group_file._extension())
    data = np.random.default_rng(0).bytes(9 * 2**20 + 5)

    assert checksum(data) == google_crc32c.value(data)
    assert checksum(b"") == 0


# ---- rows by number


def written(folder: Path, rows: int, group: int) -> tuple[Manifest, LocalStore]:
    """A dataset of two files in the format `groups`."""
    table, store = table_of(rows), LocalStore(folder)
    plan = plan_data({"train": TableSource(table)}, 60.0)
    ref = write_data(plan, plan.documents, store, RunLayout("run"), lambda _: None)["train"]
    manifest = decode(store.read(ref.path), "", ref.path, ref.digest)
    files = []
    for number, (start, length) in enumerate(((0, rows // 3), (rows // 3, rows - rows // 3))):
        path = f"run/file-{number}.arrow"
        new = store.create(path)
        writer = GroupWriter(new, table.schema)
        for batch in regrouped(table.slice(start, length).combine_chunks().to_batches(), group):
            writer.write(batch)
        writer.finish()
        new.publish()
        files.append(DataFile(path, writer.size, tuple(writer.groups), f"partition {number}"))
    return Manifest(name="train", format="groups", columns=manifest.columns, files=tuple(files),
                    schema=table.schema.serialize().to_pybytes()), store  # fmt: skip


class Remote(GroupFetcher):
    """Fetches like the fetcher of a store that this host cannot map; counts the groups, and may fail."""

    def __init__(self, manifest: Manifest, store: LocalStore) -> None:
        super().__init__(manifest, store)
        self.fetched: list[tuple[int, int]] = []
        self.failures: list[Exception] = []

    def fetch(self, file_index: int, group_index: int) -> pa.RecordBatch:
        self.fetched.append((file_index, group_index))
        if self.failures:
            raise self.failures.pop()
        return super().fetch(file_index, group_index)

    def local_path(self, file_index: int) -> str | None:
        return None


ROWS, GROUP = 90, 8


@pytest.fixture
def dataset(tmp_path: Path) -> tuple[Manifest, LocalStore]:
    return written(tmp_path / "store", ROWS, GROUP)


@pytest.fixture(params=["mapped", "cached"])
def reader(request: pytest.FixtureRequest, dataset: tuple[Manifest, LocalStore], tmp_path: Path) -> Any:
    manifest, store = dataset
    fetcher: Any = GroupFetcher(manifest, store) if request.param == "mapped" else Remote(manifest, store)
    made = GroupReader(manifest, fetcher, lambda: HostCache(tmp_path / "cache", "digest"))
    yield made
    made.close()


NAMES = ("id", "even", "name", "image", "blob", "list", "matrix")


def checked(found: dict[str, Any], rows: Any) -> None:
    """Every column has the values of these rows."""
    ids = np.asarray(rows, np.int64)
    assert found["id"].tolist() == ids.tolist()
    assert found["even"].tolist() == (ids % 2 == 0).tolist()
    assert found["name"].tolist() == [f"row {each}".encode() for each in ids]
    assert found["image"].view("<u4").reshape(-1).tolist() == ids.tolist() if len(ids) else True
    assert found["blob"].tolist() == [b"x" * (each % 3) for each in ids]
    assert found["list"].tolist() == [[each, -each] for each in ids]
    assert found["matrix"].tolist() == [[[each], [each + 1]] for each in ids]


def test_rows_come_in_the_order_asked_for(reader: GroupReader) -> None:
    rng = np.random.default_rng(0)

    assert (reader.rows, sum(reader.group_rows), set(reader.group_rows[:3])) == (ROWS, ROWS, {GROUP})
    for rows in (
        np.arange(ROWS),
        np.arange(ROWS)[::-1],
        rng.permutation(ROWS),
        rng.integers(0, ROWS, 200),
        np.array([5]),
        np.array([3, 3, 3]),
        np.arange(10, 14),
        np.array([13, 12, 11]),
        np.array([0, 40, 1, 41, 89]),
    ):
        checked(reader.take(rows.astype(np.int64), NAMES), rows)
    checked(reader.span(5, 77, NAMES), range(5, 77))
    assert list(reader.take(np.array([4, 60]), ["name"])) == ["name"]


@pytest.mark.parametrize("narrow", [permuted_rows.NARROW_BYTES, 4], ids=["narrow", "wide"])
def test_permuted_groups_have_the_same_rows_and_a_stack(
    reader: GroupReader, monkeypatch: pytest.MonkeyPatch, narrow: int
) -> None:
    """Columns of 8 and 16 bytes are in order in memory, or are gathered from the files of their groups."""
    monkeypatch.setattr(permuted_rows, "NARROW_BYTES", narrow)
    names, stack = ("id", "even", "image", "list", "matrix"), Stack(("even",), "float32")
    groups = [5, 0, 7]
    starts = np.cumsum([0, *reader.group_rows])
    order = np.random.default_rng(0).permutation(3 * GROUP)
    rows = np.concatenate([np.arange(starts[each], starts[each + 1]) for each in groups])[order]
    permuted = reader.permuted(groups, order, names, stack)

    assert permuted is not None
    for places in (slice(0, len(rows)), slice(3, 9), np.array([0, 1, 7, 8, 2]), np.array([4]), slice(0, 0)):
        for found in (permuted.take(places), reader.take(rows[places], names, stack)):
            ids = rows[places].tolist()
            assert [*found] == [*names, Stack.KEY]
            assert found["id"].tolist() == ids
            assert found["even"].tolist() == [each % 2 == 0 for each in ids]
            assert found["list"].tolist() == [[each, -each] for each in ids]
            assert found["matrix"].tolist() == [[[each], [each + 1]] for each in ids]
            assert found["image"].tobytes() == np.array(ids, "<u4").tobytes()
            assert found[Stack.KEY].dtype == np.float32
            assert found[Stack.KEY].tolist() == [[each % 2 == 0] for each in ids]


def test_rows_that_are_permuted_belong_to_the_caller(reader: GroupReader) -> None:
    permuted = reader.permuted([1, 2], np.arange(2 * GROUP), ("id", "list"))
    assert permuted is not None
    permuted.take(slice(0, 4))["id"][:] = -1

    assert permuted.take(slice(0, 4))["id"].tolist() == [8, 9, 10, 11]


def test_strings_and_more_than_the_limit_are_not_permuted(reader: GroupReader, monkeypatch: pytest.MonkeyPatch) -> None:
    order = np.arange(2 * GROUP)
    assert reader.permuted([1, 2], order, ("id", "name")) is None
    monkeypatch.setattr(group_reader, "PERMUTED_BYTES", 8 * 2 * GROUP)

    assert reader.permuted([1, 2], order, ("id",)) is not None
    assert reader.permuted([1, 2], order, ("id", "even")) is None
    monkeypatch.setattr(group_reader, "NARROW_BYTES", 8)
    assert reader.permuted([1, 2], order, ("id", "list")) is not None, "wide rows take no memory of their own"


@pytest.mark.parametrize("at_once", [True, False])
def test_groups_open_also_where_the_pool_is_busy(reader: GroupReader, at_once: bool) -> None:
    release = threading.Event()
    for _ in range(group_reader.AHEAD_THREADS):
        reader.soon(lambda: release.wait(20))
    try:
        reader.open(range(5), at_once=at_once)
        assert {0, 1, 2, 3, 4} <= set(reader._open)
    finally:
        release.set()


def test_specs_are_those_of_the_arrays(reader: GroupReader, dataset: tuple[Manifest, LocalStore]) -> None:
    found = reader.take(np.array([1, 70, 2]), NAMES)

    assert {name: (str(each.dtype), each.shape[1:]) for name, each in found.items()} == array_specs(
        dataset[0].columns, NAMES
    )
    assert all(len(each) == 3 for each in found.values())


@pytest.mark.long
def test_feeds_in_several_threads_share_a_reader_with_little_memory(
    reader: GroupReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_reader, "OPEN_BYTES", 1)  # one group is open: threads evict each other's
    start = threading.Barrier(6)

    def feed(number: int) -> None:
        rng = np.random.default_rng(number)
        start.wait(10)
        for _ in range(20):
            rows = rng.permutation(ROWS)
            reader.ahead(range(len(reader.group_rows)))
            checked(reader.take(rows, NAMES), rows)

    with ThreadPoolExecutor(6) as pool:
        for each in [pool.submit(feed, number) for number in range(6)]:
            each.result(60)


def test_open_groups_take_no_more_than_the_limit(
    reader: GroupReader, dataset: tuple[Manifest, LocalStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    reader.take(np.arange(3), NAMES)
    [(first, _)] = reader._open.values()
    one = first.nbytes
    monkeypatch.setattr(group_reader, "OPEN_BYTES", 3 * one + one // 2)
    for seed in range(3):
        reader.take(np.random.default_rng(seed).permutation(ROWS), NAMES)
        assert len(reader._open) == 3
        assert reader._open_bytes == sum(batch.nbytes for batch, _ in reader._open.values())


def remote(dataset: tuple[Manifest, LocalStore], folder: Path) -> tuple[GroupReader, Remote]:
    fetcher = Remote(*dataset)
    return GroupReader(dataset[0], fetcher, lambda: HostCache(folder, "digest")), fetcher


def test_groups_are_fetched_ahead_once_and_those_of_earlier_calls_are_dropped(
    dataset: tuple[Manifest, LocalStore], tmp_path: Path
) -> None:
    reader, fetcher = remote(dataset, tmp_path / "cache")
    for _ in range(2):
        reader.ahead([2, 0, 1])
    rows = np.concatenate([np.arange(sum(reader.group_rows[:2])), [17, 16]])
    checked(reader.take(rows, NAMES), rows)
    reader.ahead([4, 5])
    checked(reader.take(np.arange(40, 44), NAMES), range(40, 44))
    reader.ahead([6])

    assert set(reader._ahead) <= {4, 5, 6}, "an abandoned group stays no longer than its fetch"
    reader.close()
    assert len(fetcher.fetched) == len(set(fetcher.fetched))
    other, again = remote(dataset, tmp_path / "cache")
    checked(other.take(rows, NAMES), rows)
    assert again.fetched == []


def test_a_failure_ahead_is_raised_where_the_group_is_needed_and_tried_again(
    dataset: tuple[Manifest, LocalStore], tmp_path: Path
) -> None:
    reader, fetcher = remote(dataset, tmp_path / "cache")
    fetcher.failures = [OSError("the store is away")]
    reader.ahead([1])
    rows = np.arange(GROUP, 2 * GROUP)

    assert str(reader._ahead[1].exception(10)) == "the store is away"
    with pytest.raises(OSError, match="the store is away"):
        reader.take(rows, NAMES)
    checked(reader.take(rows, NAMES), rows)


@pytest.mark.parametrize("how", ["mapped", "fetched"])
def test_a_corrupt_group_is_named(dataset: tuple[Manifest, LocalStore], tmp_path: Path, how: str) -> None:
    manifest, store = dataset
    path, group = Path(store.where("run/file-1.arrow")), manifest.files[1].groups[2]
    content = path.read_bytes()
    fetcher: Any = GroupFetcher(manifest, store) if how == "mapped" else Remote(manifest, store)

    def read() -> None:
        reader = GroupReader(manifest, fetcher, lambda: HostCache(tmp_path / "cache", "digest"))
        checked(reader.take(np.arange(30), NAMES), range(30))
        reader.take(np.arange(30 + 2 * GROUP, 30 + 3 * GROUP), NAMES)

    read()
    for broken in (flipped(content, group.offset + group.size - 20), content[: group.offset + 50]):
        path.unlink()
        path.write_bytes(broken)
        for each in tmp_path.rglob("cache/*/*/*.arrow"):
            each.unlink()
        with pytest.raises(DataError, match=r"file-1\.arrow.*group 2.*put a (good )?copy back"):
            read()
    path.unlink()
    for each in tmp_path.rglob("cache/*/*/*.arrow"):
        each.unlink()
    with pytest.raises((DataError, FileNotFoundError), match=r"file-1\.arrow"):
        read()


def test_groups_with_other_rows_than_announced_are_refused(dataset: tuple[Manifest, LocalStore]) -> None:
    manifest, store = dataset
    group = manifest.files[0].groups[0]
    wrong = Group(group.offset, group.size, group.rows + 1, group.checksum)
    lying = Manifest(
        name="train", format="groups", columns=manifest.columns, schema=manifest.schema,
        files=(DataFile(manifest.files[0].path, manifest.files[0].size, (wrong,)),),
    )  # fmt: skip

    with pytest.raises(DataError, match="row group 0: the bytes are corrupt: it has 8 rows, and 9 were announced"):
        GroupFetcher(lying, store).fetch(0, 0)


def test_a_manifest_of_other_content_or_version_is_refused(dataset: tuple[Manifest, LocalStore]) -> None:
    content = dataset[0].encode()
    folder = dataset[0].files[0].path.rpartition("/")[0]

    assert decode(content, "here", f"{folder}/manifest.json", dataset[0].digest) == dataset[0]
    for broken, words in (
        (content.replace(b'"version":1', b'"version":2'), "here has version 2, and this sparktrain reads version 1"),
        (content.replace(b"partition 0", b"partition 1"), "here is corrupt: its digest is"),
        (content[:100], "here is no manifest of a dataset"),
    ):
        with pytest.raises(DataError, match=words):
            decode(broken, "here", "", dataset[0].digest)
