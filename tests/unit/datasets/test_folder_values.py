"""Values of folders have the types that Spark 4.3 infers, or are refused."""

import math
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sparktrain.config.data_sources import FileSource
from sparktrain.datasets.file_plans import plan_files
from sparktrain.datasets.folder_values import column_of, differently_spelled, value_of
from sparktrain.datasets.group_fetch import GroupFetcher
from sparktrain.errors import DataError
from sparktrain.store.url import open_store

NUMBERS = [
    (["01", "2"], "int64", [1, 2]),
    (["+1", "-01"], "int64", [1, -1]),
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
]


@pytest.mark.parametrize(("texts", "dtype", "values"), NUMBERS)
def test_values_are_those_of_spark(texts: list[str], dtype: str, values: list[object]) -> None:
    column = column_of("k", texts, "data['train']")
    assert (column.dtype, [value_of(text, column) for text in texts]) == (dtype, values)


@pytest.mark.parametrize(
    "texts",
    [
        ["2026-01-02"],
        ["2026-01-02 10:00:00", "2026-01-02"],
        ["10:00:00"],
        ["1e3", "2"],
        ["9223372036854775808"],
        ["5."],
    ],
)
def test_what_no_tensor_holds_is_refused(texts: list[str]) -> None:
    with pytest.raises(DataError, match=r"^data\['train'\]: column 'k' comes from folders such as k=.*columns="):
        column_of("k", texts, "data['train']")


def test_names_that_differ_in_case_are_one_for_spark() -> None:
    assert differently_spelled(["K"], ["k", "x"]) == ("K", "k")
    assert differently_spelled(["k"], ["k", "x"]) is None


def _plan(root: Path, folder: str, table: pa.Table, columns: tuple[str, ...] | None = None) -> dict[str, list[object]]:
    (root / folder).mkdir()
    pq.write_table(table, root / folder / "part.parquet")
    manifest = plan_files(FileSource(format="parquet", paths=(str(root),), columns=columns), "train")
    return GroupFetcher(manifest, open_store(manifest.root)).fetch(0, 0).to_pydict()


def test_a_column_of_folder_and_file_is_that_of_the_folder(tmp_path: Path) -> None:
    assert _plan(tmp_path, "k=0.5", pa.table({"k": [7, None], "x": [1, 2]})) == {"x": [1, 2], "k": [0.5, 0.5]}


def test_a_date_of_folders_may_be_left_out(tmp_path: Path) -> None:
    assert _plan(tmp_path, "day=2026-01-02", pa.table({"x": [1]}), ("x",)) == {"x": [1]}


def test_columns_that_differ_in_case_alone_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="'K' of its folders and 'k' in the file"):
        _plan(tmp_path, "K=1", pa.table({"k": [7]}))
