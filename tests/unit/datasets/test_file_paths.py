"""Which files a path names, in any store, and the columns of folders."""

from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pytest

from sparktrain.datasets.columns import ColumnKind
from sparktrain.datasets.file_paths import folder_array, folder_columns, located, named_files
from sparktrain.errors import DataError
from sparktrain.store.base import Store
from sparktrain.store.url import open_store

FILES = [
    "top.parquet",
    "day1/part-0.parquet",
    "day1/part-1.parquet",
    "day1/_SUCCESS",
    "day1/.part-0.parquet.crc",
    "day1/part-2.parquet._COPYING_",
    "day2/deep/part-0.parquet",
    "day2/notes.txt",
    "_temporary/0/part-9.parquet",
]


@pytest.fixture(params=["local", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return open_store(str(tmp_path) if request.param == "local" else f"memory://{uuid4().hex}/data")


@pytest.fixture
def find(store: Store) -> Callable[..., list[str]]:
    """Finds files by paths relative to the store's root; answers in the same form."""
    for path in FILES:
        store.put_if_absent(path, b"")

    def found(*paths: str) -> list[str]:
        root, patterns = located([store.where() + f"/{each}" for each in paths], "data['train']")
        opened = open_store(root)
        names = [opened.where(each.path) for each in named_files(opened, patterns, "data['train']")]
        return [each.removeprefix(store.where() + "/") for each in names]

    return found


@pytest.mark.parametrize(
    ("path", "files"),
    [
        ("top.parquet", ["top.parquet"]),
        ("day1", ["day1/part-0.parquet", "day1/part-1.parquet"]),
        ("day1/", ["day1/part-0.parquet", "day1/part-1.parquet"]),
        ("day1/_SUCCESS", ["day1/_SUCCESS"]),
        ("*.parquet", ["top.parquet"]),
        ("day1/part-[1-9].parquet", ["day1/part-1.parquet"]),
        ("day?/*.parquet", ["day1/part-0.parquet", "day1/part-1.parquet"]),
        ("day?/deep", ["day2/deep/part-0.parquet"]),
        ("day2/*", ["day2/deep/part-0.parquet", "day2/notes.txt"]),
        ("**/part-0.parquet", ["day1/part-0.parquet", "day2/deep/part-0.parquet"]),
        ("_temp*/0", ["_temporary/0/part-9.parquet"]),
    ],
)
def test_a_path_names_files(find: Callable[..., list[str]], path: str, files: list[str]) -> None:
    assert find(path) == files


def test_the_whole_store_is_a_folder(find: Callable[..., list[str]]) -> None:
    assert len(find("")) == 5


def test_several_paths_name_each_file_once_in_order(find: Callable[..., list[str]]) -> None:
    assert find("top.parquet", "day1/part-1.parquet", "day1") == [
        "day1/part-0.parquet",
        "day1/part-1.parquet",
        "top.parquet",
    ]


@pytest.mark.parametrize("path", ["day3", "day1/part-7.parquet", "day2/*.parquet", "_temporary/*/_*"])
def test_a_path_without_files_is_refused_with_what_is_there(find: Callable[..., list[str]], path: str) -> None:
    with pytest.raises(DataError, match=r"data\['train'\]: no files for .*folder .* holds .*"):
        find(path)


def test_the_nearest_name_is_suggested(find: Callable[..., list[str]]) -> None:
    with pytest.raises(
        DataError, match=r"holds _temporary/, day1/, day2/, top.parquet; .* do not count; did you mean 'top.parquet'\?"
    ):
        find("topp.parquet")


def test_paths_of_one_store_share_a_root() -> None:
    root, patterns = located(["s3://bucket/a/b/x.parquet", "s3://bucket/a/c/*.parquet"], "data")
    assert root == "s3://bucket/a"
    assert [each.parts for each in patterns] == [("b", "x.parquet"), ("c", "*.parquet")]
    assert located(["hdfs://ns/x.parquet"], "data")[0] == "hdfs://ns/"
    assert located(["file:///data/a%20b/x"], "data")[0] == "/data/a b"


def test_paths_of_different_stores_are_refused() -> None:
    with pytest.raises(DataError, match="different stores, 's3://one/x' and 's3://two/y'"):
        located(["s3://one/x", "s3://two/y"], "data['train']")


def test_a_path_that_no_store_takes_is_refused() -> None:
    with pytest.raises(DataError, match=r"'s3://one/a/\.\./b' must be relative and without"):
        located(["s3://one/a/../b"], "data['train']")


def _files(store: Store, *paths: str) -> tuple[Store, list[str], object]:
    for path in paths:
        store.put_if_absent(path, b"")
    root, patterns = located([store.where()], "data['train']")
    files = named_files(open_store(root), patterns, "data['train']")
    return open_store(root), [each.path for each in files], folder_columns(files, "data['train']")


def test_folders_give_columns(store: Store) -> None:
    _, paths, columns = _files(store, "n=1/name=a%20b/x", "n=-20/name=7/x")
    assert [(each.name, each.kind) for each in columns] == [("n", ColumnKind.NUMBER), ("name", ColumnKind.TEXT)]  # type: ignore[attr-defined]
    values = [[folder_array(path, column, 2).to_pylist() for column in columns] for path in paths]  # type: ignore[attr-defined]
    assert values == [[[-20, -20], ["7", "7"]], [[1, 1], ["a b", "a b"]]]
    assert folder_array(paths[0], columns[0], 2).type == pa.int32()  # type: ignore[index]


def test_folders_above_the_named_one_give_no_columns(store: Store) -> None:
    store.put_if_absent("day=1/n=2/x", b"")
    root, patterns = located([f"{store.where()}/day=1"], "data")
    assert [each.values for each in named_files(open_store(root), patterns, "data")] == [(("n", "2"),)]


def test_files_in_folders_of_different_columns_are_refused(store: Store) -> None:
    with pytest.raises(DataError, match="folders of different columns, 'n' and 'm'"):
        _files(store, "n=1/x", "m=1/x")


def test_a_folder_of_nulls_is_refused(store: Store) -> None:
    with pytest.raises(DataError, match=r"column 'n' is null in .*n=__HIVE_DEFAULT_PARTITION__/x"):
        _files(store, "n=1/x", "n=__HIVE_DEFAULT_PARTITION__/x")
