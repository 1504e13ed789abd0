"""Plans of files, and their groups as members fetch them: what holds for every format and store, and bad input."""

import logging
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pytest

from sparktrain.config.data_sources import FileSource
from sparktrain.datasets.file_plans import plan_files
from sparktrain.datasets.manifest import decode
from sparktrain.errors import DataError
from sparktrain.store.base import Store
from sparktrain.store.url import open_store
from tests.unit.datasets.data_files import (
    MAKERS,
    ROWS,
    Format,
    arrow_bytes,
    content,
    fetched,
    flipped,
    numbers,
    parquet_bytes,
    planned,
    put,
    replace_file,
    shapes,
)

FORMATS: list[Format] = ["parquet", "arrow", "stream", "tfrecord"]
each_format = pytest.mark.parametrize("format", FORMATS)


@pytest.fixture(params=["local", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return open_store(str(tmp_path) if request.param == "local" else f"memory://{uuid4().hex}/data")


@pytest.fixture
def local(tmp_path: Path) -> Store:
    return open_store(str(tmp_path))


def source(store: Store, format: Format, *paths: str, **options: object) -> FileSource:
    make: Callable[..., FileSource] = MAKERS[format]
    return make(*(store.where(each) for each in paths or ("in",)), **options)


def image_column(format: Format) -> str:
    return "record" if format == "tfrecord" else "image"


@each_format
def test_all_rows_of_all_files_are_there_in_the_order_of_names(format: Format, store: Store) -> None:
    put(store, "in/b", content(format, numbers(20, start=ROWS)))
    put(store, "in/a", content(format, numbers()))
    manifest, rows = planned(source(store, format))
    assert manifest.rows == rows.num_rows == ROWS + 20
    assert rows[image_column(format)].to_pylist() == [bytes([each % 256] * 5) for each in range(ROWS + 20)]
    assert shapes(manifest)[image_column(format)] == (5,)
    assert decode(manifest.encode(), "here", "run/data/x/manifest.json") == manifest


@each_format
def test_a_file_without_rows_counts_for_nothing(format: Format, store: Store) -> None:
    put(store, "in/a", content(format, numbers(0)))
    put(store, "in/b", content(format, numbers(3)))
    assert planned(source(store, format))[1].num_rows == 3


@each_format
def test_a_dataset_without_rows_is_refused(format: Format, store: Store) -> None:
    put(store, "in/a", content(format, numbers(0)))
    with pytest.raises(DataError, match=r"data\['train'\] has no rows: its 1 file hold none; check the job that wrote"):
        plan_files(source(store, format), "train")


@each_format
def test_a_file_that_was_replaced_is_refused(format: Format, store: Store) -> None:
    put(store, "in/a", content(format, numbers()))
    manifest = plan_files(source(store, format), "train")
    replace_file(store, "in/a", content(format, numbers(start=1)) + b"longer")
    with pytest.raises(DataError, match=r"in/a was replaced after the dataset was planned: it has .* put the old"):
        fetched(manifest)
    store.delete("in/a")
    with pytest.raises(DataError, match="in/a is gone, and the dataset was planned with it"):
        fetched(manifest)


@each_format
@pytest.mark.parametrize("state", ["cut", "garbage", "empty"])
def test_a_file_that_is_none_is_refused(format: Format, state: str, store: Store) -> None:
    whole = content(format, numbers())
    put(store, "in/a", whole)
    wrong = {"cut": whole[: len(whole) // 2 + 3], "garbage": b"no data at all" * 100, "empty": b""}[state]
    put(store, "in/b", wrong)
    if (format, state) == ("tfrecord", "empty"):
        assert plan_files(source(store, format), "train").rows == ROWS
        return
    with pytest.raises(DataError, match=r"in/b is corrupt: .*; put a good copy back, or pass on_error='skip'"):
        plan_files(source(store, format), "train")


def place_of_images(format: Format, whole: bytes) -> int:
    """A byte in the middle of the values of a row, of a group that is not the first."""
    value = 50
    return whole.index(bytes([value] * 5)) + 2


@pytest.mark.parametrize("format", ["parquet", "tfrecord"])
def test_a_corrupt_group_in_the_middle_is_named(format: Format, local: Store) -> None:
    table = numbers() if format == "tfrecord" else numbers().select(["image"])
    whole = (
        parquet_bytes(table, use_dictionary=False, compression="none")
        if format == "parquet"
        else content(format, table)
    )
    put(local, "in/a", flipped(whole, place_of_images(format, whole)))
    put(local, "in/b", whole)
    manifest = plan_files(source(local, format), "train")
    number = 1 if format == "parquet" else 0
    with pytest.raises(DataError, match=rf"in/a, row group {number}: the bytes are corrupt: .*on_error='skip'"):
        fetched(manifest)


@pytest.mark.parametrize("format", ["parquet", "tfrecord"])
def test_corrupt_groups_are_skipped_and_counted(format: Format, local: Store, caplog: pytest.LogCaptureFixture) -> None:
    table = numbers().select(["image"])
    whole = (
        parquet_bytes(table, use_dictionary=False, compression="none")
        if format == "parquet"
        else content(format, table)
    )
    put(local, "in/a", flipped(whole, place_of_images(format, whole)))
    put(local, "in/b", whole)
    put(local, "in/c", b"garbage" * 10)
    lost = 30 if format == "parquet" else ROWS
    with caplog.at_level(logging.WARNING, "sparktrain"):
        manifest, rows = planned(source(local, format, on_error="skip"))
    assert manifest.rows == rows.num_rows == 2 * ROWS - lost
    assert shapes(manifest) == {image_column(format): (5,)}
    logged = caplog.text
    total = 4 if format == "parquet" else 1
    assert f"in/a: 1 of {total} row groups with {lost} rows are corrupt and skipped: " in logged
    assert "in/c is corrupt: " in logged
    assert "all its rows are skipped" in logged


def test_the_rest_of_a_cut_file_is_skipped(local: Store, caplog: pytest.LogCaptureFixture) -> None:
    whole = arrow_bytes(numbers(), stream=True)
    put(local, "in/a", whole[: len(whole) // 2])
    with caplog.at_level(logging.WARNING, "sparktrain"):
        manifest, rows = planned(source(local, "stream", on_error="skip"))
    assert rows["id"].to_pylist() == list(range(manifest.rows))
    assert 0 < manifest.rows < ROWS
    assert f"all rows after the first {manifest.rows} are skipped" in caplog.text


def test_a_dataset_of_corrupt_groups_alone_is_refused(local: Store) -> None:
    whole = content("tfrecord", numbers())
    put(local, "in/a", flipped(whole, place_of_images("tfrecord", whole)))
    with pytest.raises(DataError, match="has no row group that is not corrupt"):
        plan_files(source(local, "tfrecord", on_error="skip"), "train")


def test_schemas_that_differ_are_refused_with_both(local: Store) -> None:
    put(local, "in/a", parquet_bytes(pa.table({"x": [1.0], "y": [1], "same": [1]})))
    put(local, "in/b", parquet_bytes(pa.table({"same": [1], "x": pa.array([1.0], pa.float32()), "z": ["t"]})))
    with pytest.raises(DataError) as raised:
        plan_files(source(local, "parquet"), "train")
    first, *lines = str(raised.value).splitlines()
    assert "files of different schemas" in first
    assert local.where("in/a") in first
    assert local.where("in/b") in first
    assert lines == [
        "    column 'x': double and float",
        "    column 'y': int64 and missing",
        "    column 'z': missing and string",
    ]
    manifest = plan_files(source(local, "parquet", columns=["same"]), "train")
    assert fetched(manifest).column_names == ["same"]


def test_misspelt_columns_are_refused_with_the_nearest(local: Store) -> None:
    put(local, "in/a", parquet_bytes(pa.table({"age": [1], "s": [{"price": 1.0}]})))
    with pytest.raises(DataError, match=r"in/a has no column 'agee'; did you mean 'age'\?.*'s.prize'; did you mean"):
        plan_files(source(local, "parquet", columns=["agee", "s.prize"]), "train")


def test_types_without_a_rule_are_refused_unless_other_columns_are_chosen(local: Store) -> None:
    table = pa.table(
        {
            "when": pa.array([1], pa.timestamp("us", "UTC")),
            "cost": pa.array([1]).cast(pa.decimal128(25, 2)),
            "x": [1],
        }
    )
    put(local, "in/a", parquet_bytes(table))
    with pytest.raises(DataError, match=r"(?s)'when' is a timestamp.*unix_micros\(when\).*'cost' is a decimal"):
        plan_files(source(local, "parquet"), "train")
    assert planned(source(local, "parquet", columns=["x"]))[1].to_pydict() == {"x": [1]}


def test_nulls_are_counted_by_the_statistics_of_each_file(local: Store) -> None:
    table = pa.table({"age": [1, None, None], "s": [{"b": 1}, {"b": None}, None], "ok": [1, 2, 3]})
    put(local, "in/a", parquet_bytes(table, group=2))
    put(local, "in/b", parquet_bytes(table.slice(1, 1)))
    with pytest.raises(DataError) as raised:
        plan_files(source(local, "parquet"), "train")
    assert str(raised.value).splitlines()[1:] == [
        f"    column 'age' has 2 nulls in {local.where('in/a')}",
        f"    column 's.b' has 2 nulls in {local.where('in/a')}",
        f"    column 'age' has 1 null in {local.where('in/b')}",
        f"    column 's.b' has 1 null in {local.where('in/b')}",
    ]


def test_nulls_without_statistics_are_found_where_they_are_read(local: Store) -> None:
    put(local, "in/a", arrow_bytes(pa.table({"x": [1, 2, None]}), group=2))
    manifest = plan_files(source(local, "arrow"), "train")
    with pytest.raises(DataError, match=r"in/a, row group 1: column 'x' has 1 null: a tensor has no nulls"):
        fetched(manifest)


def test_nested_and_stored_types_become_plain_columns(store: Store) -> None:
    vectors = [{"type": 1, "size": None, "indices": None, "values": [1.0, 0.0, 2.0]}] * 2 + [
        {"type": 0, "size": 3, "indices": [1], "values": [5.0]}
    ]
    vector = pa.struct(
        [
            ("type", pa.int8()),
            ("size", pa.int32()),
            ("indices", pa.list_(pa.int32())),
            ("values", pa.list_(pa.float64())),
        ]
    )
    table = pa.table(
        {
            "v": pa.array(vectors, vector),
            "s": [{"a": 1, "deep": {"b": "x"}}] * 3,
            "d": pa.array(["p", "q", "p"]).dictionary_encode(),
            "big": pa.array(["r"] * 3, pa.large_string()),
            "bytes": pa.array([b"12"] * 3, pa.large_binary()),
            "lists": pa.array([[[1, 2], [3, 4]]] * 3, pa.large_list(pa.list_(pa.int16()))),
        }
    )
    kinds: list[Format] = ["parquet", "arrow", "stream"]
    for kind in kinds:
        put(store, f"{kind}/a", content(kind, table))
        manifest, rows = planned(source(store, kind, kind))
        expected = {"v": (3,), "s.a": (), "s.deep.b": (), "d": (), "big": (), "bytes": (2,), "lists": (2, 2)}
        assert shapes(manifest) == expected
        row = ([0.0, 5.0, 0.0], 1, "x", "p", "r", b"12", [[1, 2], [3, 4]])
        assert rows.to_pylist()[2] == dict(zip(expected, row, strict=True))
    manifest, rows = planned(source(store, "parquet", "parquet", columns=["s.deep.b", "v"]))
    assert rows.column_names == ["s.deep.b", "v"]


@pytest.mark.parametrize("compression", [None, "lz4", "zstd"])
def test_arrow_files_may_be_compressed(compression: str | None, local: Store) -> None:
    put(local, "in/a", arrow_bytes(numbers(), compression=compression))
    assert planned(source(local, "arrow"))[1]["id"].to_pylist() == list(range(ROWS))


def test_dictionaries_of_a_stream_may_be_replaced(local: Store) -> None:
    parts = [pa.table({"d": pa.array(each).dictionary_encode()}) for each in (["a", "b"], ["c"], ["d", "c"])]
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, parts[0].schema) as writer:
        for part in parts:
            writer.write_table(part)
    put(local, "in/a", sink.getvalue().to_pybytes())
    assert planned(source(local, "stream"))[1]["d"].to_pylist() == ["a", "b", "c", "d", "c"]


def test_ragged_lists_are_refused_and_padded(local: Store) -> None:
    put(local, "in/a", parquet_bytes(pa.table({"tokens": [[1, 2], [3], [4, 5, 6]], "x": [1, 2, 3]})))
    with pytest.raises(DataError, match=r"column 'tokens' has lists of 1 to 3 values.*pad=\{'tokens': 3\}"):
        plan_files(source(local, "parquet"), "train")
    manifest, rows = planned(source(local, "parquet", pad={"tokens": 4}))
    assert shapes(manifest)["tokens"] == (4,)
    assert rows["tokens"].to_pylist() == [[1, 2, 0, 0], [3, 0, 0, 0], [4, 5, 6, 0]]
    with pytest.raises(DataError, match=r"pad of .*column 'x' is int64, and only lists are padded"):
        plan_files(source(local, "parquet", pad={"x": 4}), "train")
    with pytest.raises(DataError, match=r"pad of .* has no column 'token'; did you mean 'tokens'\?"):
        plan_files(source(local, "parquet", pad={"token": 4}), "train")


def test_rows_of_another_shape_in_a_later_group_are_refused(local: Store) -> None:
    """Of seven groups of one row, the plan looks at the first, third, fifth and last."""
    lists: list[list[int]] = [[1, 2]] * 7
    images = [b"12"] * 7
    lists[1], images[1] = [1], b"1"
    put(local, "in/a", parquet_bytes(pa.table({"x": lists, "image": images}), group=1))
    manifest = plan_files(source(local, "parquet"), "train")
    assert shapes(manifest) == {"x": (2,), "image": (2,)}
    with pytest.raises(
        DataError, match=r"in/a, row group 1: column 'x' has lists of length 1, and of 2 .*; column 'image' has bytes"
    ):
        fetched(manifest)
    with pytest.raises(DataError, match="lists of 1 to 2 values"):
        plan_files(source(local, "parquet", on_error="skip"), "train")
    manifest, rows = planned(source(local, "parquet", columns=["image"], on_error="skip"))
    assert shapes(manifest) == {"image": None}
    assert rows["image"].to_pylist() == images


def test_folders_of_values_are_columns(store: Store) -> None:
    for day in (1, 2):
        put(store, f"in/day={day}/part-0.parquet", parquet_bytes(numbers(2, start=10 * day)))
    manifest, rows = planned(source(store, "parquet", columns=["day", "id"]))
    assert rows.to_pydict() == {"day": [1, 1, 2, 2], "id": [10, 11, 20, 21]}
    assert manifest.columns[0].dtype == "int32"


def test_a_footer_larger_than_the_first_read_is_found(local: Store) -> None:
    wide = pa.table({f"column{number}": np.arange(50) for number in range(200)})
    put(local, "in/a", parquet_bytes(wide, group=10))
    manifest, rows = planned(source(local, "parquet", columns=["column7", "column199"]))
    assert manifest.files[0].footer > 2**16
    assert rows["column199"].to_pylist() == list(range(50))


def test_encrypted_and_old_files_are_refused_by_name(local: Store) -> None:
    put(local, "in/a", b"PAR1" + b"x" * 20 + b"PARE")
    with pytest.raises(DataError, match="is encrypted, which sparktrain cannot read"):
        plan_files(source(local, "parquet"), "train")
    put(local, "old/a", b"FEA1" + b"x" * 20)
    with pytest.raises(DataError, match="in version 1 of Feather: write it as Arrow IPC"):
        plan_files(source(local, "arrow", "old"), "train")
