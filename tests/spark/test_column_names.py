"""Columns of DataFrames with names that Spark parses: written, and fed to a model."""

from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

from sparktrain.config.store_address import StoreAddress
from sparktrain.dataframes.frame_schema import frame_columns
from sparktrain.dataframes.frame_writer import WriteTask, write_frame
from sparktrain.datasets.spark_names import map_in_arrow

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
