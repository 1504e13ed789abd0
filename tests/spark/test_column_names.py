"""Columns of DataFrames with names that Spark parses: written, and fed to a model."""

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from sparktrain.cluster.dataframes.frame_schema import frame_columns
from sparktrain.cluster.dataframes.frame_writer import WriteTask, write_frame
from sparktrain.config.store_address import StoreAddress
from sparktrain.datasets.arrow_columns import columns_of
from sparktrain.datasets.spark_names import map_in_arrow
from sparktrain.errors import DataError

NAMES = ["a.b", "tick`", "`", "two words", "select", "größe", "_0"]


def test_columns_of_any_name_are_written(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.createDataFrame([tuple(range(row, row + len(NAMES))) for row in range(3)], NAMES).repartition(2)
    columns = frame_columns(frame, "data['train']")
    parts = write_frame(frame, WriteTask(StoreAddress(str(tmp_path)), "data", columns, "data['train']"))

    files = [tmp_path / file.path for part in parts for file in part.files]
    tables = [pa.ipc.open_stream(each.read_bytes()).read_all() for each in files]
    found = sorted(pa.concat_tables(tables).to_pylist(), key=lambda row: row["_0"])
    assert [each.name for each in columns] == NAMES
    assert found == [dict(zip(NAMES, range(row, row + len(NAMES)), strict=True)) for row in range(3)]


def test_tasks_get_the_names_of_the_dataframe(spark: SparkSession) -> None:
    def named(batches):  # type: ignore[no-untyped-def]
        for batch in batches:
            yield pa.RecordBatch.from_pydict({"names": ["|".join(batch.schema.names)]})

    frame = spark.createDataFrame([(1, 2)], ["a.b", "c"])
    assert {row.names for row in map_in_arrow(frame.coalesce(1), named, "names string").collect()} == {"a.b|c"}


def test_columns_that_differ_in_case_alone(spark: SparkSession, tmp_path: Path) -> None:
    """Refused by name where Spark ignores case. Tasks that know the columns write them by their places."""
    rows, names = [(1, 2), (3, 4)], "Age int, age int"
    with pytest.raises(DataError, match=r"data\['train'\] .*\n    columns 'Age' and 'age' differ in case alone"):
        frame_columns(spark.createDataFrame(rows, names), "data['train']")
    minding = spark.newSession()
    minding.conf.set("spark.sql.caseSensitive", "true")
    for session, folder in ((minding, "minding"), (spark, "ignoring")):
        frame = session.createDataFrame(rows, names).coalesce(1)
        columns = columns_of(pa.schema([("Age", pa.int32()), ("age", pa.int32())]), "d")
        [part] = write_frame(frame, WriteTask(StoreAddress(str(tmp_path)), folder, columns, "data['train']"))
        table = pa.ipc.open_stream((tmp_path / part.files[0].path).read_bytes()).read_all()
        assert table.to_pydict() == {"Age": [1, 3], "age": [2, 4]}
    assert [each.name for each in frame_columns(minding.createDataFrame(rows, names), "d")] == ["Age", "age"]
