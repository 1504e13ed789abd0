"""Groups that sparktrain has written, and what all formats share in a fetch."""

import os
from pathlib import Path
from threading import Thread
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest
from msgspec.structs import replace

from sparktrain import data
from sparktrain.datasets.arrow_columns import columns_of
from sparktrain.datasets.file_plans import plan_files
from sparktrain.datasets.group_fetch import GroupFetcher
from sparktrain.datasets.group_file import GroupWriter
from sparktrain.datasets.host_cache import HostCache
from sparktrain.datasets.manifest import DataFile, Manifest
from sparktrain.errors import DataError
from sparktrain.store.base import Store
from sparktrain.store.localfs import LocalStore
from sparktrain.store.url import open_store
from tests.unit.datasets.data_files import (
    GROUP,
    MAKERS,
    ROWS,
    Format,
    content,
    flipped,
    numbers,
    parquet_bytes,
    put,
    replace_file,
)


@pytest.fixture(params=["local", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return open_store(str(tmp_path) if request.param == "local" else f"memory://{uuid4().hex}/data")


def written(store: Store) -> Manifest:
    """A dataset of one file of groups."""
    table = numbers()
    file = store.create("data/train/part-0")
    writer = GroupWriter(file, table.schema)
    for batch in table.to_batches(GROUP):
        writer.write(batch)
    writer.finish()
    file.publish()
    part = DataFile("data/train/part-0", writer.size, tuple(writer.groups), origin="partition 0")
    columns = tuple(
        replace(each, shape=(5,)) if each.name == "image" else each for each in columns_of(table.schema, "data")
    )
    schema = table.schema.serialize().to_pybytes()
    return Manifest(name="train", format="groups", columns=columns, files=(part,), schema=schema)


def test_groups_come_back(store: Store) -> None:
    manifest = written(store)
    fetcher = GroupFetcher(manifest, store)
    groups = [fetcher.fetch(0, number) for number in range(len(manifest.files[0].groups))]
    assert pa.Table.from_batches(groups).equals(numbers())


def test_only_files_of_groups_in_a_folder_have_a_path(tmp_path: Path) -> None:
    local, remote = LocalStore(tmp_path), open_store(f"memory://{uuid4().hex}/data")
    path = GroupFetcher(written(local), local).local_path(0)
    assert path == str(tmp_path / "data/train/part-0")
    with pa.ipc.open_stream(pa.memory_map(path)) as reader:
        assert reader.read_all().num_rows == ROWS
    assert GroupFetcher(written(remote), remote).local_path(0) is None
    put(local, "in/a", parquet_bytes(numbers()))
    manifest = plan_files(data.parquet(local.where("in")), "train")
    assert GroupFetcher(manifest, open_store(manifest.root)).local_path(0) is None


def test_a_wrong_bit_anywhere_in_a_group_is_found(store: Store) -> None:
    manifest = written(store)
    whole = store.read("data/train/part-0")
    group = manifest.files[0].groups[1]
    for place in range(group.offset, group.offset + group.size, 61):
        replace_file(store, "data/train/part-0", flipped(whole, place))
        where = r"part-0 \(partition 0\), row group 1"
        with pytest.raises(DataError, match=rf"{where}: the bytes are corrupt: .*CRC-32C.*put a good copy back$"):
            GroupFetcher(manifest, store).fetch(0, 1)
        assert GroupFetcher(manifest, store).fetch(0, 2).num_rows == GROUP


def test_a_cut_file_is_found(store: Store) -> None:
    manifest = written(store)
    replace_file(store, "data/train/part-0", store.read("data/train/part-0")[:-300])
    with pytest.raises(DataError, match=r"row group 3: the bytes are corrupt: it ends at byte .*, and bytes up to"):
        GroupFetcher(manifest, store).fetch(0, 3)


def test_threads_fetch_at_once(store: Store) -> None:
    for number in range(3):
        put(store, f"in/{number}", parquet_bytes(numbers(start=number * ROWS), group=7))
    manifest = plan_files(data.parquet(store.where("in")), "train")
    fetcher = GroupFetcher(manifest, open_store(manifest.root))
    places = [(file, group) for file in range(3) for group in range(len(manifest.files[file].groups))]
    found: dict[tuple[int, int], pa.RecordBatch] = {}

    def fetch(mine: list[tuple[int, int]]) -> None:
        for place in mine:
            found[place] = fetcher.fetch(*place)

    threads = [Thread(target=fetch, args=(places[number::4],)) for number in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(30)
    ids = pa.Table.from_batches([found[each] for each in places])["id"].to_pylist()
    assert ids == list(range(3 * ROWS))


def test_a_footer_is_read_once_and_a_file_checked_after_each_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = LocalStore(tmp_path)
    put(store, "in/a", parquet_bytes(numbers()))
    manifest = plan_files(data.parquet(store.where("in"), columns=["id"]), "train")
    calls: list[str] = []
    for name in ("stat", "read_range"):
        real = getattr(LocalStore, name)

        def counted(store: LocalStore, *given: object, name: str = name, real: object = real) -> object:
            calls.append(name)
            return real(store, *given)  # type: ignore[operator]

        monkeypatch.setattr(LocalStore, name, counted)
    fetcher = GroupFetcher(manifest, open_store(manifest.root))
    for number in (0, 1, 2, 3, 0):
        assert fetcher.fetch(0, number).num_rows
    assert (calls.count("stat"), calls.count("read_range")) == (5, 1 + 5)


# ---- files of the user that are replaced while members read them

FORMATS: list[Format] = ["parquet", "arrow", "stream", "tfrecord"]
COLUMN = {"tfrecord": "record"}


def alike(format: Format) -> tuple[bytes, bytes]:
    """Two files of equal size with other values. Checksums of Parquet's pages take more bytes or fewer."""
    plain: dict[str, Any] = {"use_dictionary": False, "compression": "none"} if format == "parquet" else {}

    def whole(start: int) -> bytes:
        table = numbers(start=start)
        return parquet_bytes(table, **plain) if format == "parquet" else content(format, table)

    first = whole(0)
    return first, next(other for other in map(whole, range(ROWS, 50 * ROWS, 3)) if len(other) == len(first))


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("moment", ["between groups", "while a group is read", "before the footer is read"])
def test_no_rows_of_a_file_that_replaces_another_are_read_or_cached(
    format: Format, moment: str, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = alike(format)
    put(store, "in/a", old)
    manifest = plan_files(MAKERS[format](store.where("in")), "train")
    opened = open_store(manifest.root)
    fetcher, cache = GroupFetcher(manifest, opened), HostCache(tmp_path / "cache", manifest.digest)
    groups = range(len(manifest.files[0].groups))
    if moment != "before the footer is read":
        cache.get(0, lambda: fetcher.fetch(0, 0))
    whole = type(opened).read_range

    def replacing(read: Store, path: str, start: int, length: int) -> bytes:
        monkeypatch.undo()
        replace_file(store, "in/a", new)
        return whole(read, path, start, length)

    if moment == "while a group is read":
        monkeypatch.setattr(type(opened), "read_range", replacing)
    else:
        replace_file(store, "in/a", new)
    for _ in range(2):
        with pytest.raises(DataError, match=r"in/a was replaced after the dataset was planned: it has .* put the old"):
            cache.get(9, lambda: fetcher.fetch(0, groups[-1]))
    assert cache.held(9) is None, "later trials would read it unchecked"


@pytest.mark.parametrize("format", ["parquet", "arrow"])
def test_a_file_with_the_size_and_time_of_another_is_known_by_its_footer(format: Format, tmp_path: Path) -> None:
    """A new process finds it when it opens the file, and a running one because it is another file."""
    store = LocalStore(tmp_path)
    whole, other = alike(format)
    put(store, "in/a", whole)
    manifest = plan_files(MAKERS[format](store.where("in")), "train")
    running = GroupFetcher(manifest, open_store(manifest.root))
    running.fetch(0, 0)
    if format == "arrow":  # its footer has no statistics: only another schema, or other places of batches, differ
        other = content(format, numbers().rename_columns(["ID", "x", "image"]))
    put_with_times_of(store, "in/a", other)

    for fetcher in (running, GroupFetcher(manifest, open_store(manifest.root))):
        with pytest.raises(
            DataError, match=r"in/a was replaced .*: it has another footer, though the same size and time"
        ):
            fetcher.fetch(0, 1)


@pytest.mark.parametrize("format", FORMATS)
def test_a_file_that_is_put_back_with_its_time_is_the_file_of_the_plan(format: Format, tmp_path: Path) -> None:
    store, (whole, _) = LocalStore(tmp_path), alike(format)
    put(store, "in/a", whole)
    manifest = plan_files(MAKERS[format](store.where("in")), "train")
    running = GroupFetcher(manifest, open_store(manifest.root))
    column = COLUMN.get(format, "image")
    first = running.fetch(0, 0).column(column)
    put_with_times_of(store, "in/a", whole)

    for fetcher in (running, running, GroupFetcher(manifest, open_store(manifest.root))):
        assert fetcher.fetch(0, 0).column(column).equals(first)


def put_with_times_of(store: LocalStore, path: str, content: bytes) -> None:
    """Put another file in the place of one, with its time, as `cp -p` does."""
    before = os.stat(store.where(path))
    kept = store.where(path) + ".kept"
    os.rename(store.where(path), kept)  # its inode stays in use
    put(store, path, content)
    os.utime(store.where(path), ns=(before.st_atime_ns, before.st_mtime_ns))


def test_a_file_that_is_gone_while_members_read_is_named(store: Store) -> None:
    put(store, "in/a", alike("parquet")[0])
    manifest = plan_files(data.parquet(store.where("in")), "train")
    fetcher = GroupFetcher(manifest, open_store(manifest.root))
    fetcher.fetch(0, 0)
    store.delete("in/a")
    with pytest.raises(DataError, match="in/a is gone, and the dataset was planned with it: put it back"):
        fetcher.fetch(0, 1)
