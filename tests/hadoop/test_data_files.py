"""Datasets of files in HDFS."""

from pathlib import Path

import pytest

from sparktrain import data
from sparktrain.errors import DataError
from tests.hadoop.stores import opened
from tests.support.hadoop import Hdfs
from tests.unit.datasets.data_files import ROWS, numbers, parquet_bytes, planned, put, replace_file


def test_files_in_hdfs_are_found_and_read_by_ranges(hdfs_cluster: Hdfs, tmp_path: Path) -> None:
    store = opened(hdfs_cluster, "hdfs", tmp_path)
    for day in (1, 2):
        put(store, f"in/day={day}/part-0.parquet", parquet_bytes(numbers(start=ROWS * day)))
    put(store, "in/_SUCCESS", b"")
    source = data.parquet(f"{hdfs_cluster.url}{tmp_path}/in/*/*.parquet", columns=["id", "day"])
    manifest, rows = planned(source)
    assert manifest.root == f"{hdfs_cluster.url}{tmp_path}/in"
    assert rows["id"].to_pylist() == list(range(ROWS, 3 * ROWS))
    assert rows["day"].to_pylist() == [1] * ROWS + [2] * ROWS
    replace_file(store, "in/day=2/part-0.parquet", b"another file")
    with pytest.raises(DataError, match=r"day=2/part-0.parquet is corrupt: it does not end as a Parquet file does"):
        planned(source)
