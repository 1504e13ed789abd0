"""Values of folders have the types that Spark 4.3 infers, or are refused."""

import math
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from msgspec.structs import replace

from sparktrain.config.data_sources import FileSource
from sparktrain.datasets.arrow_columns import columns_of
from sparktrain.datasets.columns import Column, ColumnKind
from sparktrain.datasets.file_paths import NamedFile, folder_columns
from sparktrain.datasets.file_plans import plan_files
from sparktrain.datasets.folder_values import OF_FOLDERS, differently_spelled, value_of
from sparktrain.datasets.group_fetch import GroupFetcher
from sparktrain.datasets.manifest import digest_of
from sparktrain.errors import DataError
from sparktrain.store.url import open_store

NUMBERS = [
    (["01", "2"], "int32", [1, 2]),
    (["+1", "-01", "٣"], "int32", [1, -1, 3]),
    (["1", "2147483648"], "int64", [1, 2147483648]),
    (["0.5", "1"], "float64", [0.5, 1.0]),
    ([".5", "2D"], "float64", [0.5, 2.0]),
    (["1.5", "1.0E-400"], "float64", [1.5, 0.0]),
    (["1.10", "+1.5"], "float64", [1.1, 1.5]),
    (["Infinity", "-1.5e-3"], "float64", [math.inf, -0.0015]),
    (["2147483648", "0.5"], "object", ["2147483648", "0.5"]),
    (["1", "x"], "object", ["1", "x"]),
    (["2026-01-02", "x"], "object", ["2026-01-02", "x"]),
    (["2026-02-30"], "object", ["2026-02-30"]),
    (["inf", "1_0"], "object", ["inf", "1_0"]),
    (["%201", "1%2E5", "a%20b"], "object", [" 1", "1.5", "a b"]),
    (["2026-01-02 10:00:00.12", "10:00", "24:00:00"], "object", ["2026-01-02 10:00:00.12", "10:00", "24:00:00"]),
]


@pytest.mark.parametrize(("texts", "dtype", "values"), NUMBERS)
def test_values_are_those_of_spark(texts: list[str], dtype: str, values: list[object]) -> None:
    (column,) = _columns(*texts)
    assert (column.dtype, [value_of(text, column) for text in texts]) == (dtype, values)


@pytest.mark.parametrize(
    ("texts", "kind"),
    [
        (["2026-01-02", "0000-02-29"], pa.date32()),
        (["2026-01-02 10%3A00%3A00", "2026-01-02"], pa.timestamp("us", "UTC")),
        (["10:00:00", "10:00:00.123456"], pa.time64("ns")),
        (["1e3", "2"], pa.decimal128(10, 0)),
        (["9223372036854775808"], pa.decimal128(19, 0)),
        (["5."], pa.decimal128(1, 0)),
    ],
)
def test_what_no_tensor_holds_is_refused_in_the_words_for_a_table(texts: list[str], kind: pa.DataType) -> None:
    with pytest.raises(DataError) as of_table:
        columns_of(pa.schema([("k", kind)]), "data['train']")
    with pytest.raises(DataError) as of_folders:
        _columns(*texts)
    assert str(of_folders.value) == (
        f"{of_table.value}\nthey come from folders such as k={texts[0]}: leave them out with columns="
    )


def _columns(*texts: str) -> tuple[Column, ...]:
    return folder_columns([NamedFile(f"k={text}/part", (("k", text),)) for text in texts], "data['train']")


def test_names_that_differ_in_case_are_one_for_spark() -> None:
    assert differently_spelled(["K"], ["k", "x"]) == ("K", "k")
    assert differently_spelled(["k"], ["k", "x"]) is None


def _written(root: Path, folder: str, table: pa.Table) -> str:
    (root / folder).mkdir()
    pq.write_table(table, root / folder / "part.parquet")
    return str(root)


def _plan(root: Path, folder: str, table: pa.Table, columns: tuple[str, ...] | None = None) -> dict[str, list[object]]:
    manifest = plan_files(
        FileSource(format="parquet", paths=(_written(root, folder, table),), columns=columns), "train"
    )
    return GroupFetcher(manifest, open_store(manifest.root)).fetch(0, 0).to_pydict()


def test_a_column_of_folder_and_file_is_that_of_the_folder(tmp_path: Path) -> None:
    assert _plan(tmp_path, "k=0.5", pa.table({"k": [7, None], "x": [1, 2]})) == {"x": [1, 2], "k": [0.5, 0.5]}


@pytest.mark.parametrize("value", ["2026-01-02", "__HIVE_DEFAULT_PARTITION__", ""])
def test_folders_without_a_column_may_be_left_out(tmp_path: Path, value: str) -> None:
    assert _plan(tmp_path, f"day={value}", pa.table({"x": [1]}), ("x",)) == {"x": [1]}


@pytest.mark.parametrize(("value", "kind", "dtype"), [("1", "number", "int64"), ("0.5", "text", "object")])
def test_a_run_of_an_older_version_has_the_same_data(tmp_path: Path, value: str, kind: str, dtype: str) -> None:
    manifest = plan_files(
        FileSource(format="parquet", paths=(_written(tmp_path, f"k={value}", pa.table({"x": [1]})),)), "k"
    )
    older = replace(manifest, columns=(manifest.columns[0], Column("k", ColumnKind(kind), dtype, OF_FOLDERS)))
    assert digest_of(older.encode()) == older.digest == manifest.digest != digest_of(manifest.encode())


def test_columns_that_differ_in_case_alone_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="'K' of its folders and 'k' in the file"):
        _plan(tmp_path, "K=1", pa.table({"k": [7]}))
