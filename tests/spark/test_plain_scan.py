"""DataFrames that look like plain Parquet: read in place where their rows are those of the files, else written."""

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

import sparktrain as st
from sparktrain.config.data_sources import sources_of
from sparktrain.driver.data.run_data import plan_data
from tests.support.written_data import column, written
from tests.unit.datasets.data_files import fetched

MORE_PLANS = pytest.mark.all(
    case="plans that look like plain Parquet, more of them",
    covered_by="one of each rule; `unit/cluster/dataframes/test_plain_scan`: all rules",
)

Frame = Callable[[SparkSession, str], DataFrame]
ROWS = 10


@pytest.fixture
def folder(tmp_path: Path) -> str:
    """Two Parquet files of ten rows in all, as Spark writes them, beside names that Spark passes over."""
    place = tmp_path / "in"
    place.mkdir()
    for number, rows in enumerate((range(6), range(6, ROWS))):
        pq.write_table(pa.table({"a": list(rows), "b": [float(row) for row in rows]}), place / f"part-{number}.parquet")
    (place / "_SUCCESS").touch()
    (place / ".part-8.parquet").write_bytes(b"hidden")
    (place / "_delta_log").mkdir()
    (place / "_delta_log" / "0.parquet").write_bytes((place / "part-0.parquet").read_bytes())
    return str(place)


def in_place(frame: DataFrame) -> pa.Table | None:
    """The rows that members read from the files themselves; None where Spark has to write the DataFrame."""
    manifests = plan_data(sources_of({"train": frame}), 60.0).manifests
    return fetched(manifests["train"]) if manifests else None


def _files(path: str) -> list[str]:
    return [str(each) for each in Path(path).glob("part-*")]


def _then(frame: DataFrame, change: Callable[[], object]) -> DataFrame:
    change()
    return frame


def _added(path: str) -> None:
    pq.write_table(pa.table({"a": [99], "b": [99.0]}), f"{path}/part-9.parquet")


def _shorter(path: str) -> None:
    pq.write_table(pa.table({"a": [1], "b": [0.0]}), _files(path)[0])


def _by_day(path: str) -> str:
    """The folder, after its files were moved into a folder of a partition."""
    partition = Path(path, "day=1")
    partition.mkdir()
    for each in _files(path):
        shutil.move(each, partition)
    return path


def _cached(frame: DataFrame) -> DataFrame:
    frame._jdf.queryExecution().optimizedPlan()  # the plan of this object knows nothing of the cache
    frame.cache().count()
    return frame


def _table(spark: SparkSession, path: str, buckets: int = 0) -> DataFrame:
    name, place = f"plain_{buckets}", Path(path).with_name("table")
    clustered = f"clustered by (a) into {buckets} buckets" if buckets else ""
    spark.sql(f"drop table if exists {name}")
    spark.sql(f"create table {name} (a long, b double) using parquet {clustered} location 'file:{place}'")
    if not buckets:
        shutil.copytree(path, place, dirs_exist_ok=True)
    return spark.table(name)


def _view(spark: SparkSession, path: str) -> DataFrame:
    spark.read.parquet(path).createOrReplaceTempView("plain_view")
    return spark.table("plain_view")


QUICK = {
    "a folder", "aliases", "a path twice", "a folder and its file", "cached by another", "a table of the catalog",
    "columns turned round", "a file of another size since", "mergeSchema", "spark.sql.files.ignoreCorruptFiles",
}  # fmt: skip
"""The cases of `make test`: `unit/cluster/dataframes/test_plain_scan` has the rules one by one."""


def _cases(plans: Mapping[str, Frame]) -> pytest.MarkDecorator:
    marks = {name: [] if name in QUICK else [MORE_PLANS] for name in plans}
    return pytest.mark.parametrize("make", [pytest.param(plans[name], id=name, marks=marks[name]) for name in plans])


PLAIN: dict[str, Frame] = {
    "a folder": lambda spark, path: spark.read.parquet(path),
    "the default format": lambda spark, path: spark.read.load(path),
    "option path": lambda spark, path: spark.read.format("parquet").option("path", path).load(),
    "files": lambda spark, path: spark.read.parquet(*sorted(_files(path))),
    "a pattern": lambda spark, path: spark.read.parquet(f"{path}/part-*"),
    "aliases": lambda spark, path: spark.read.parquet(path).alias("x").alias("y"),
    "the same schema": lambda spark, path: spark.read.schema("a long, b double").parquet(path),
    "the folder of a partition": lambda spark, path: spark.read.parquet(f"{_by_day(path)}/day=1"),
    "a file added since": lambda spark, path: _then(spark.read.parquet(path), lambda: _added(path)),
}


@_cases(PLAIN)
def test_plain_files_are_read_in_place(spark: SparkSession, folder: str, make: Frame) -> None:
    frame = make(spark, folder)
    rows = in_place(frame)

    assert rows is not None
    assert rows.column_names == frame.columns
    assert rows.sort_by("a").equals(frame.toArrow().sort_by("a").cast(rows.schema))


OTHER: dict[str, Frame] = {
    "a path twice": lambda spark, path: spark.read.parquet(path, path),
    "a folder and its file": lambda spark, path: spark.read.parquet(path, _files(path)[0]),
    "a folder and a pattern": lambda spark, path: spark.read.parquet(path, f"{path}/part-*"),
    "two names of a folder": lambda spark, path: spark.read.parquet(path, f"file:{path}/../in"),
    "a union with itself": lambda spark, path: spark.read.parquet(path).union(spark.read.parquet(path)),
    "a sample": lambda spark, path: spark.read.parquet(path).sample(0.5, 1),
    "a limit": lambda spark, path: spark.read.parquet(path).limit(3),
    "a filter": lambda spark, path: spark.read.parquet(path).where("a > 3"),
    "some columns": lambda spark, path: spark.read.parquet(path).select("a"),
    "distinct rows": lambda spark, path: spark.read.parquet(path).distinct(),
    "other partitions": lambda spark, path: spark.read.parquet(path).repartition(2),
    "a hint": lambda spark, path: spark.read.parquet(path).hint("broadcast"),
    "cached": lambda spark, path: _cached(spark.read.parquet(path)),
    "cached by another": lambda spark, path: spark.read.parquet(path) if _cached(spark.read.parquet(path)) else None,
    "a checkpoint": lambda spark, path: spark.read.parquet(path).localCheckpoint(),
    "a view": lambda spark, path: _view(spark, path),
    "a table of the catalog": lambda spark, path: _table(spark, path),
    "buckets": lambda spark, path: _table(spark, path, buckets=2),
    "SQL over a folder": lambda spark, path: spark.sql(f"select * from parquet.`{path}`"),
    "columns of folders": lambda spark, path: spark.read.parquet(_by_day(path)),
    "basePath": lambda spark, path: spark.read.option("basePath", path).parquet(f"{_by_day(path)}/day=1"),
    "columns turned round": lambda spark, path: spark.read.schema("b double, a long").parquet(path),
    "a schema of one column": lambda spark, path: spark.read.schema("a long").parquet(path),
    "a name in capitals": lambda spark, path: spark.read.schema("A long, b double").parquet(path),
    "a wider type": lambda spark, path: spark.read.schema("a double, b double").parquet(path),
    "one more column": lambda spark, path: spark.read.schema("a long, b double, c int").parquet(path),
    "a file of another size since": lambda spark, path: _then(spark.read.parquet(path), lambda: _shorter(path)),
    "a file deleted since": lambda spark, path: _then(spark.read.parquet(path), Path(_files(path)[0]).unlink),
    "a file that is none": lambda spark, path: _then(
        spark.read.parquet(path), lambda: Path(_files(path)[0]).write_bytes(b"none")
    ),
}  # fmt: skip
OPTIONS = {
    "mergeSchema": "true",
    "ignoreCorruptFiles": "true",
    "ignoreMissingFiles": "true",
    "recursiveFileLookup": "true",
    "pathGlobFilter": "part-0*",
    "modifiedAfter": "2020-01-01T00:00:00",
    "modifiedBefore": "2090-01-01T00:00:00",
    "datetimeRebaseMode": "LEGACY",
    "int96RebaseMode": "LEGACY",
}
SETTINGS = (
    "spark.sql.files.ignoreCorruptFiles",
    "spark.sql.files.ignoreMissingFiles",
    "spark.sql.parquet.mergeSchema",
    "spark.sql.parquet.fieldId.read.enabled",
)


def _read(**options: str) -> Frame:
    return lambda spark, path: spark.read.options(**options).parquet(path)


def _read_with(setting: str) -> Frame:
    def read(spark: SparkSession, path: str) -> DataFrame:
        session = spark.newSession()
        session.conf.set(setting, "true")
        return session.read.parquet(path)

    return read


@_cases(
    {
        **OTHER,
        **{each: _read(**{each: OPTIONS[each]}) for each in OPTIONS},
        **{each: _read_with(each) for each in SETTINGS},
    }
)
def test_everything_else_is_written_by_spark(spark: SparkSession, folder: str, make: Frame) -> None:
    frame = make(spark, folder)
    try:
        assert in_place(frame) is None
    finally:
        spark.catalog.clearCache()


def test_a_path_that_is_given_twice_gives_its_rows_twice(spark: SparkSession, folder: str, runs: Path) -> None:
    manifest = written(spark.read.parquet(folder, folder), runs)

    assert sorted(column(manifest, runs, "a")) == sorted([*range(ROWS)] * 2)


def test_a_key_or_partitions_have_plain_files_written(spark: SparkSession, folder: str) -> None:
    frame = spark.read.parquet(folder)
    for source in (st.data.dataframe(frame, key="v1"), st.data.dataframe(frame, partitions=2)):
        assert not plan_data(sources_of({"train": source}), 60.0).manifests
