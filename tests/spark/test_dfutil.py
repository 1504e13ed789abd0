"""DataFrames as TFRecord files and back, by the names of TensorFlowOnSpark: its own test, and what it leaves out."""

import re
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as f

from sparktrain.cluster.dataframes.record_files import SaveTask, save_partition
from sparktrain.config.store_address import StoreAddress
from sparktrain.errors import DataError
from sparktrain.tensorflowonspark import dfutil

ROW = ("text string", 1, [2, 3, 4, 5], -1.1, [-2.2, -3.3, -4.4, -5.5], bytearray(b"\xff\xfe\xfd\xfc"))


def test_the_types_of_the_original_come_back(spark: SparkSession, tmp_path: Path) -> None:
    saved = spark.createDataFrame(spark.sparkContext.parallelize([ROW]), ["a", "b", "c", "d", "e", "f"])
    folder = str(tmp_path / "records")
    dfutil.saveAsTFRecords(saved, folder)
    loaded = dfutil.loadTFRecords(spark.sparkContext, folder, binary_features=["f"])
    found = loaded.take(1)[0]

    assert (found["a"], found["b"], found["c"], found["f"]) == (ROW[0], ROW[1], ROW[2], ROW[5])
    assert found["d"] == pytest.approx(ROW[3])
    assert found["e"] == pytest.approx(ROW[4])
    assert dfutil.isLoadedDF(loaded)
    assert not dfutil.isLoadedDF(saved)
    assert not dfutil.isLoadedDF(loaded.filter(loaded.a == "text string"))


def test_all_rows_of_all_partitions_come_once(spark: SparkSession, tmp_path: Path) -> None:
    rows = spark.range(0, 5000, 1, 7).where("id >= 1000").select("id", f.array_repeat("id", 2).alias("twice"))
    dfutil.saveAsTFRecords(rows, f"file://{tmp_path}/records")
    names = sorted(each.name for each in (tmp_path / "records").iterdir() if not each.name.startswith("."))
    loaded = dfutil.loadTFRecords(spark, str(tmp_path / "records"))

    assert names[0] == "_SUCCESS"
    assert all(re.fullmatch(r"part-r-0000[1-6]", each) for each in names[1:])
    assert loaded.schema.simpleString() == "struct<id:bigint,twice:array<bigint>>"
    assert sorted(row.id for row in loaded.where("twice[0] = twice[1]").collect()) == list(range(1000, 5000))


def test_rdds_of_examples(spark: SparkSession) -> None:
    frame = spark.createDataFrame([Row(x=1, y=[1.5, 2.5], z="a"), Row(x=2, y=[], z="b")])
    records = frame.rdd.mapPartitions(dfutil.toTFExample(frame.dtypes))
    back = records.mapPartitions(lambda each: dfutil.fromTFExample(each)).collect()
    assert back == [Row(x=1, y=[1.5, 2.5], z="a"), Row(x=2, y=None, z="b")]


def test_features_that_some_records_lack_are_null(spark: SparkSession, tmp_path: Path) -> None:
    for number, columns in enumerate((["x"], ["x", "y"])):
        dfutil.saveAsTFRecords(
            spark.createDataFrame([(number, number)], ["x", "y"]).select(*columns), f"{tmp_path}/{number}"
        )
    found = dfutil.loadTFRecords(spark, f"{tmp_path}/*").collect()
    assert sorted((row.x, row.y) for row in found if row.y is not None) == [(1, 1)]
    assert [row.x for row in found if row.y is None] == [0]


def test_what_cannot_be_saved_is_refused_before_a_job(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.sql("SELECT 1 AS x, current_date() AS day, map('a', 1) AS m")
    with pytest.raises(DataError, match=r"columns 'day' \(date32\[day\]\), 'm' \(map<.*are no features") as caught:
        dfutil.saveAsTFRecords(frame, f"{tmp_path}/records")
    assert "struct<x:int,day:date,m:map<string,int>>" in str(caught.value)
    assert not (tmp_path / "records").exists()
    with pytest.raises(DataError, match="Unsupported dtype: date of column 'day'"):
        dfutil.toTFExample(frame.dtypes)


def test_a_folder_with_files_and_nulls_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.createDataFrame([(1,), (None,)], "x int")
    with pytest.raises(DataError, match="column 'x' has 1 nulls, and a feature has none"):
        dfutil.saveAsTFRecords(frame.coalesce(1), f"{tmp_path}/nulls")
    (tmp_path / "kept").write_text("")
    with pytest.raises(DataError, match="the folder has 'kept': choose a new one, or delete it first"):
        dfutil.saveAsTFRecords(frame.dropna(), str(tmp_path))


def test_a_second_attempt_of_a_task_counts_what_the_first_has_published(spark: SparkSession, tmp_path: Path) -> None:
    task = SaveTask(StoreAddress(str(tmp_path)), "records", "records")
    batches = spark.range(10).toArrow().to_batches()
    first = save_partition(task, iter(batches), 3)
    content = (tmp_path / first[0]).read_bytes()
    assert save_partition(task, iter(batches), 3) == first == ("records/part-r-00003", 10)
    assert (tmp_path / first[0]).read_bytes() == content
    assert save_partition(task, iter([]), 4) == ("", 0)


@pytest.mark.all(
    case="a corrupt file of TFRecords in a job of Spark", covered_by="`unit/datasets/test_tfrecord`: a corrupt file"
)
def test_a_corrupt_file_is_named(spark: SparkSession, tmp_path: Path) -> None:
    dfutil.saveAsTFRecords(spark.range(3).coalesce(1), f"{tmp_path}/records")
    file = tmp_path / "records" / "part-r-00000"
    frame = dfutil.loadTFRecords(spark, f"{tmp_path}/records")
    file.write_bytes(file.read_bytes()[:-3])
    with pytest.raises(PySparkException, match=rf"{re.escape(str(file))}, record 2: the record at byte \d+ is cut"):
        frame.collect()
    with pytest.raises(DataError, match="record 2: the record at byte"):
        dfutil.loadTFRecords(spark, f"{tmp_path}/records")


def test_a_schema_of_the_callers_own(spark: SparkSession, tmp_path: Path) -> None:
    dfutil.saveAsTFRecords(spark.createDataFrame([(1, b"\xff")], "x int, raw binary"), f"{tmp_path}/records")
    schema = spark.createDataFrame([], "raw binary, x array<bigint>").schema
    assert dfutil.loadTFRecords(spark, f"{tmp_path}/records", schema=schema).collect() == [Row(raw=b"\xff", x=[1])]
