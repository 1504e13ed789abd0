"""DataFrames become datasets: each row once, whatever their partitions are and whatever tasks die."""

import os
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.ml.linalg import Matrices, MatrixUDT, Vectors
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql import types as t

import sparktrain as st
from sparktrain.cluster.dataframes import frame_writer
from sparktrain.config.data_sources import sources_of
from sparktrain.config.store_address import StoreAddress
from sparktrain.driver.data import data_writing
from sparktrain.driver.data.run_data import plan_data
from sparktrain.driver.engines.spark_engine import SparkEngine
from sparktrain.errors import DataError, RunDirectoryError
from tests.support.written_data import column, data_files, origins, reader_of, written

MANY_PARTITIONS = pytest.mark.all(case="a DataFrame of 2,000 partitions", covered_by="of 1 and 7 partitions")

QUICK: dict[str, Any] = {"backend": "none", "preload": [], "progress": False}


@pytest.mark.parametrize("partitions", [1, 7, pytest.param(2000, marks=MANY_PARTITIONS)])
def test_rows_of_any_number_of_partitions_come_once_and_in_order(
    spark: SparkSession, runs: Path, partitions: int
) -> None:
    manifest = written(spark.range(0, 5000, 1, partitions), runs)

    assert column(manifest, runs).tolist() == list(range(5000))
    assert origins(manifest) == list(range(partitions))
    assert {each.path for each in manifest.files} == data_files(runs)


def test_empty_and_skewed_partitions(spark: SparkSession, runs: Path) -> None:
    key = f.when(f.col("id") < 10_000, 3).otherwise(f.col("id") % 2 + 5)
    frame = spark.range(0, 10_100, 1, 2).withColumn("key", key.cast("int"))
    spread = frame.rdd.map(lambda row: (row.key, row.id)).partitionBy(8, lambda key: key)
    skewed = spread.map(lambda pair: (pair[1],)).toDF("id long")
    manifest = written(skewed, runs)

    assert origins(manifest) == [3, 5, 6]
    assert [each.rows for each in manifest.files] == [10_000, 50, 50]
    assert sorted(column(manifest, runs)) == list(range(10_100))


def test_a_task_that_dies_after_it_has_written_leaves_one_entry_for_its_partition(
    spark: SparkSession, runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = frame_writer.WriteTask.__call__

    class Dying(frame_writer.WriteTask):
        """Dies in its first attempts: before the end of partition 1, and after that of partition 2."""

        def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            context = TaskContext.get()
            assert context is not None
            first, partition = context.attemptNumber() == 0, context.partitionId()

            def until_death() -> Iterator[pa.RecordBatch]:
                for batch in batches:
                    yield batch
                    if first and partition == 1:
                        os._exit(9)

            entries = list(whole(self, until_death()))
            if first and partition == 2:
                os._exit(9)
            yield from entries

    monkeypatch.setattr(data_writing, "WriteTask", Dying)
    manifest = written(spark.range(0, 40_000, 1, 4), runs)
    named = {each.path for each in manifest.files}

    assert origins(manifest) == [0, 1, 2, 3]
    assert column(manifest, runs).tolist() == list(range(40_000))
    assert len(data_files(runs) - named) == 1, "the lost attempt of partition 2 has published a file"
    assert named < data_files(runs)
    assert [Path(each).name.split("-")[1] for each in sorted(named)] == ["0", "1", "1", "0"]


def kinds(spark: SparkSession) -> DataFrame:
    """A column of each type that has a rule."""
    frame = spark.range(0, 6, 1, 2)
    numbers = ("tinyint", "smallint", "int", "bigint", "float", "double")
    sparse = f.udf(lambda each: Vectors.sparse(3, {each % 3: 1.0}) if each % 2 else Vectors.dense([each, 0, 0]),
                   _vector())  # fmt: skip
    return frame.select(
        "id",
        *(f.col("id").cast(kind).alias(kind) for kind in numbers),
        (f.col("id") % 2 == 0).alias("even"),
        f.concat(f.lit("row "), f.col("id")).alias("name"),
        f.encode(f.lpad(f.col("id").cast("string"), 4, "0"), "UTF-8").alias("image"),
        f.array(f.col("id").cast("float"), f.lit(1.0).cast("float")).alias("pair"),
        f.array(f.array("id"), f.array("id")).alias("matrix"),
        sparse("id").alias("features"),
        f.struct(f.col("id").alias("a"), f.struct(f.col("id").alias("c")).alias("b")).alias("nested"),
    )


def _vector() -> t.UserDefinedType:
    from pyspark.ml.linalg import VectorUDT

    return VectorUDT()


def test_each_type_with_a_rule_becomes_an_array(spark: SparkSession, runs: Path) -> None:
    manifest = written(kinds(spark), runs)
    found = reader_of(manifest, runs).span(0, 6, [each.name for each in manifest.columns])

    ids = list(range(6))
    types = {
        "tinyint": "int8",
        "smallint": "int16",
        "int": "int32",
        "bigint": "int64",
        "float": "float32",
        "double": "float64",
    }
    for name, kind in types.items():
        assert (found[name].dtype, found[name].tolist()) == (np.dtype(kind), ids)
    assert found["even"].tolist() == [each % 2 == 0 for each in ids]
    assert found["name"].tolist() == [f"row {each}".encode() for each in ids]
    assert found["image"].tolist() == [list(f"{each:04d}".encode()) for each in ids]
    assert found["pair"].tolist() == [[each, 1] for each in ids]
    assert found["matrix"].tolist() == [[[each], [each]] for each in ids]
    assert found["features"].dtype == np.float32
    assert found["features"].tolist() == [[0, 0, 0], [0, 1, 0], [2, 0, 0], [1, 0, 0], [4, 0, 0], [0, 0, 1]]
    assert found["nested.a"].tolist() == found["nested.b.c"].tolist() == ids


def test_all_types_without_a_rule_are_refused_in_one_message_before_any_job(spark: SparkSession) -> None:
    fields = {
        "price": "cast('1.5' as decimal(10,2))",
        "day": "date '2026-01-01'",
        "at": "timestamp '2026-01-01 00:00:00'",
        "local": "timestamp_ntz '2026-01-01 00:00:00'",
        "tags": "map('a', 1)",
        "nothing": "null",
        "length": "interval '1' day",
        "words": "array('a')",
        "variant": "parse_json('{}')",
    }
    frame = spark.range(1).select("id", *(f.expr(each).alias(name) for name, each in fields.items()))
    matrix = f.udf(lambda: Matrices.dense(1, 1, [1.0]), MatrixUDT())
    frame = frame.withColumn("matrix", matrix())

    with pytest.raises(DataError) as caught:
        plan_data(sources_of({"train": frame}), 60.0)
    text = str(caught.value)
    assert text.startswith("data['train'] has columns that cannot become tensors:\n")
    assert re.findall(r"column '(\w+)' is an? ", text) == [*fields, "matrix"]
    assert "\nits schema is struct<id:bigint,price:decimal(10,2)," in text
    for advice in ("cast(price as double)", "unix_date(day)", "unix_micros(at)", "tags['key']", "explode it"):
        assert advice in text


@pytest.mark.parametrize(
    ("frame", "words"),
    [
        ("select id from range(5) where id > 7", r"data\['train'\] has no rows: check its filters and joins"),
        ("select if(id = 3, null, id) as x, id as y from range(0, 8, 1, 4)",
         r"data\['train'\], partition 1: column 'x' has 1 null: a tensor has no nulls; fill them \(df.fillna\)"),
        ("select sequence(0, id) as x from range(0, 4)",
         r"data\['train'\]: column 'x' has lists of 1 to 4 values.*pad={'x': 4}"),
        ("select named_struct('a', if(id = 3, null, id)) as s from range(0, 8, 1, 4)",
         r"partition 1: column 's.a' has 1 null"),
    ],
    ids=["empty", "nulls", "ragged", "nested nulls"],
)  # fmt: skip
def test_values_without_a_rule_are_refused_with_the_next_step(
    spark: SparkSession, runs: Path, frame: str, words: str
) -> None:
    with pytest.raises(DataError, match=words):
        written(spark.sql(frame), runs)
    assert not list(runs.glob("run/data/*/manifest.json"))


def test_a_null_fails_no_task_and_prints_no_trace(
    spark: SparkSession, runs: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    tasks = runs / "tasks"
    tasks.mkdir(parents=True)

    def noted(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        (tasks / f"{context.partitionId()}-{context.attemptNumber()}").touch()
        yield from batches

    frame = spark.sql("select if(id = 3, null, id) as x from range(0, 8, 1, 8)").mapInArrow(noted, "x long")
    capfd.readouterr()
    with pytest.raises(DataError, match=r"^data\['train'\], partition 3: column 'x' has 1 null: a tensor has no nulls"):
        written(frame, runs)

    assert {path.name for path in tasks.iterdir()} >= {"3-0"}
    assert not list(tasks.glob("*-[1-9]")), "Spark has repeated a task"
    assert "Traceback" not in (printed := capfd.readouterr().err)
    assert "\tat " not in printed
    assert not list(runs.rglob("_refused*"))


def test_ragged_lists_are_padded_in_the_tasks(spark: SparkSession, runs: Path) -> None:
    frame = spark.sql("select id, sequence(1, id) as x from range(1, 5, 1, 3)")
    manifest = written(st.data.dataframe(frame, pad={"x": 5}), runs)

    assert column(manifest, runs, "x").tolist() == [[*range(1, n + 1), *[0] * (5 - n)] for n in range(1, 5)]


def test_partitions_may_be_chosen(spark: SparkSession, runs: Path) -> None:
    manifest = written(st.data.dataframe(spark.range(0, 300, 1, 6), partitions=3), runs)

    assert origins(manifest) == [0, 1, 2]
    assert sorted(column(manifest, runs)) == list(range(300))


# ---- whole runs


def rows_of(folder: Path) -> list[int]:
    """The rows that the members of a run have noted."""
    return sorted(int(each) for path in folder.glob("rows-*") for each in path.read_text().split())


def test_a_gang_trains_on_a_dataframe_and_others_find_its_rows_again(
    spark: SparkSession, runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def note(folder: str, ctx: Any) -> dict[str, float]:
        data = ctx.dataset("train")
        batches = [batch["id"] for batch in data.iter_batches(batch_size=7, shuffle=True, uneven="drop")]
        rows = [int(each) for batch in batches for each in batch]
        Path(folder, f"rows-{ctx.rank}").write_text(" ".join(map(str, rows)))
        if Path(folder, "fail").exists():
            raise ValueError("asked to fail")
        return {"rows": data.num_rows, "steps": len(batches), "validation": ctx.dataset("validation").num_rows}

    def tried(x: int, folder: str, ctx: Any) -> float:
        if x and Path(folder, "fail").exists():
            raise ValueError("asked to fail")
        return float(ctx.dataset("train").to_numpy()["id"].sum())

    frames = {"train": spark.range(0, 280, 1, 5), "validation": spark.range(0, 9).withColumn("y", f.col("id"))}
    options: dict[str, Any] = {"dir": str(runs), **QUICK}
    with st.pool(spark, agents=2, preload=[]) as pool:
        first = pool.run(note, {"folder": str(tmp_path)}, workers=2, data=frames, name="first", **options)
        assert first.metrics == {"rows": 280.0, "steps": 20.0, "validation": 9.0}
        assert rows_of(tmp_path) == list(range(280))
        again = pool.run(note, {"folder": str(tmp_path)}, workers=2, data=frames, name="second", **options)
        assert again.metrics == first.metrics

        (tmp_path / "fail").touch()
        space = {"x": [0, 1], "folder": [str(tmp_path)]}
        swept = pool.sweep(
            tried, space, metric="result", mode="max", data={"train": frames["train"]}, dir=str(runs), name="swept",
            preload=[], progress=False, max_retries=0,
        )  # fmt: skip
        assert [each.status for each in swept.trials] == ["succeeded", "failed"]
    (tmp_path / "fail").unlink()
    written_at = {path: path.stat().st_mtime_ns for path in (runs / "swept" / "data").rglob("*")}
    jobs: list[Any] = []
    monkeypatch.setattr(data_writing, "write_frame", lambda *given: jobs.append(given))
    resumed = st.resume(str(runs / "swept"), spark=spark, retry_failed=True, progress=False)
    assert [each.metrics for each in resumed.trials] == [{"result": 280 * 279 / 2}] * 2  # type: ignore[union-attr]
    assert {path: path.stat().st_mtime_ns for path in (runs / "swept" / "data").rglob("*")} == written_at
    changed = {"train": spark.range(0, 280).withColumn("y", f.lit(1))}
    with pytest.raises(st.ResumeError, match="data"):
        st.sweep(
            tried, space, metric="result", mode="max", data=changed, spark=spark, dir=str(runs), name="swept",
            preload=[], progress=False, max_retries=0,
        )  # fmt: skip
    assert jobs == []


@pytest.mark.all(
    case="a refit reads the DataFrame that its sweep has written", covered_by="`process/test_printed_commands`: a table"
)
def test_a_refit_reads_the_dataframe_that_the_sweep_has_written(spark: SparkSession, runs: Path) -> None:
    def count(lr: float, ctx: Any) -> dict[str, float]:
        return {"score": lr, "rows": len(ctx.dataset("train").to_numpy()["id"])}

    place: dict[str, Any] = {"spark": spark, "preload": [], "progress": False}
    frame = spark.range(0, 100, 1, 3)
    sweep = st.sweep(count, {"lr": [1.0]}, metric="score", data={"train": frame}, dir=str(runs), name="s", **place)
    assert st.refit(sweep, workers=1, name="again", **place).metrics["rows"] == 100


def test_another_session_of_the_same_application_may_have_made_the_dataframe(spark: SparkSession, runs: Path) -> None:
    def rows(ctx: Any) -> float:
        return float(ctx.dataset("train").to_numpy()["id"].sum())

    frame = spark.newSession().range(0, 100, 1, 3)
    trained = st.run(rows, workers=1, data={"train": frame}, spark=spark, dir=str(runs), name="other", **QUICK)
    assert trained.metrics == {"result": 4950.0}


@pytest.mark.parametrize(
    ("theirs", "words"),
    [
        (
            "/proc/version/runs",
            r"an executor on \S+ cannot write run/data/train-\w+ in /proc/version/runs \(.*\): dir= must",
        ),
        (
            "elsewhere",
            r"executors wrote \S+/runs/run/data/train-\S+\.arrow, and this driver does not see it: dir= must",
        ),
    ],
    ids=["refused", "not shared"],
)
def test_a_store_that_executors_do_not_share_is_an_error_before_agents_start(
    spark: SparkSession, runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, theirs: str, words: str
) -> None:
    whole, place = frame_writer.WriteTask.__call__, str(tmp_path / theirs)  # of an absolute path, that path

    class OnOtherHosts(frame_writer.WriteTask):
        """Sees another disk at the place of the run directory."""

        def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            return whole(replace(self, store=StoreAddress(place, timeout_s=1.0)), batches)

    started: list[Any] = []
    monkeypatch.setattr(data_writing, "WriteTask", OnOtherHosts)
    monkeypatch.setattr(SparkEngine, "batch", lambda *given, **_: started.append(given))
    with pytest.raises(RunDirectoryError, match=words):
        st.run(lambda: 1.0, workers=1, data={"train": spark.range(3)}, spark=spark, dir=str(runs), name="run", **QUICK)
    assert started == []


def test_fewer_rows_than_members_are_an_error_with_both_numbers(spark: SparkSession, runs: Path) -> None:
    def train(ctx: Any) -> float:
        return float(sum(1 for _ in ctx.dataset("train").iter_batches(batch_size=4)))

    with pytest.raises(st.UserError, match="1 row for 2 members"):
        st.run(train, workers=2, data={"train": spark.range(1)}, spark=spark, dir=str(runs), name="few", **QUICK)
