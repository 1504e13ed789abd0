"""Predictions of stored models in real executors: values, loads, columns, SQL, the command line, and refusals."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.ml.linalg import Vectors, VectorUDT
from pyspark.sql import DataFrame, SparkSession, functions
from pyspark.sql.types import IntegerType, StructField, StructType

import sparktrain as st
from sparktrain import cli
from sparktrain.cluster import spark_session
from sparktrain.ml import prediction
from sparktrain.ml.inference.model_file import model_at
from sparktrain.ml.inference.signature_of_file import SIGNATURE
from tests.spark.scoring_models import FLOATS, ROWS, features, make, pixels
from tests.spark.test_submit import submitted

CLOSE = 1e-5
Capture = pytest.CaptureFixture[str]


class Models:
    """The models of `scoring_models`, and what they give."""

    def __init__(self, folder: Path) -> None:
        make(folder)
        self.folder = folder
        self.expected = np.load(folder / "expected.npz")
        self._signatures = json.loads((folder / "signatures.json").read_text())
        # `churn` goes the whole way; for the others no process of the driver has to load TensorFlow.
        self._held = [self._hold(name) for name in ("pair", "wide")]

    def path(self, name: str) -> str:
        return str(self.folder / f"{name}.keras")

    def _hold(self, name: str) -> Any:
        _, folder = model_at(self.path(name))
        folder.file(SIGNATURE, lambda path: path.write_text(self._signatures[name]))
        return folder

    def remove(self) -> None:
        """Delete their files on this host."""
        for folder in [*self._held, model_at(self.path("churn"))[1]]:
            folder.release()
            shutil.rmtree(folder.path)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Models]:
    made = Models(tmp_path_factory.mktemp("models"))
    yield made
    made.remove()


@pytest.fixture(scope="module")
def table(spark: SparkSession) -> DataFrame:
    """Rows with the features of all models, and columns that no tensor has a rule for."""
    rows = [
        (i, features()[i].tolist(), {"i": i}, None if i % 5 == 0 else float(i), bytearray(pixels()[i].tobytes()))
        for i in range(ROWS)
    ]
    schema = "id int, features array<double>, tags map<string,int>, gap double, image binary"
    made = spark.createDataFrame(rows, schema).withColumn("age", functions.col("id").cast("double"))
    return made.withColumn("price", functions.col("id").cast("decimal(9,2)"))


def loads(spark: SparkSession) -> dict[int, int]:
    """How many models each Python worker has loaded, by process."""

    def count(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from sparktrain.ml.inference import worker

        for _ in batches:
            yield pa.RecordBatch.from_pydict({"pid": [os.getpid()], "loads": [worker.loads]})

    rows = spark.range(0, 8, 1, 8).mapInArrow(count, "pid long, loads long").collect()
    return {row.pid: row.loads for row in rows}


def by_id(frame: DataFrame) -> list[Any]:
    return sorted(frame.collect(), key=lambda row: row.id)


def test_each_worker_loads_the_model_once_and_other_columns_stay(
    spark: SparkSession, models: Models, table: DataFrame, tmp_path: Path
) -> None:
    copy = tmp_path / "copy.keras"
    shutil.copy(models.path("churn"), copy)
    split = table.repartitionByRange(5, "id").unionAll(table.where("id < 0"))  # the last partitions are empty
    before = loads(spark)
    scored = st.predict(split, copy, columns="features", batch_size=4)
    copy.unlink()  # the host has the file: workers do not read the store
    rows = by_id(scored)
    assert np.abs(np.array([row.prediction for row in rows]) - models.expected["churn"]).max() < CLOSE
    assert [row[:-1] for row in rows] == [tuple(row) for row in by_id(table)]
    assert scored.schema.fields[:-1] == table.schema.fields
    assert scored.schema["prediction"].dataType.simpleString() == "float"
    after = loads(spark)
    assert after
    assert {after[pid] - before.get(pid, 0) for pid in after} <= {0, 1}
    assert sum(after.values()) > sum(before.values())
    assert len(by_id(scored)) == ROWS
    again = loads(spark)
    assert {pid: again[pid] for pid in again if pid in after} == {pid: after[pid] for pid in after if pid in again}


def test_several_inputs_and_outputs(models: Models, table: DataFrame) -> None:
    rows = by_id(st.predict(table, models.path("pair"), output="found", keep=["id"]))
    assert list(rows[0].asDict()) == ["id", "found"]
    assert list(rows[0].found.asDict()) == ["classes", "score"]
    assert np.abs(np.array([row.found.classes for row in rows]) - models.expected["classes"]).max() < CLOSE
    columns = st.predict(table.coalesce(1), models.path("pair"), output={"score": "risk"}, keep=["id"])
    assert columns.columns == ["id", "risk"]
    assert np.abs(np.array([row.risk for row in by_id(columns)]) - models.expected["score"]).max() < CLOSE


def test_vectors_of_spark_ml_and_columns_side_by_side(spark: SparkSession, models: Models, table: DataFrame) -> None:
    dense = [(i, Vectors.dense(features()[i])) for i in range(0, ROWS, 2)]
    sparse = [(i, Vectors.sparse(FLOATS, list(range(FLOATS)), features()[i])) for i in range(1, ROWS, 2)]
    schema = StructType([StructField("id", IntegerType()), StructField("v", VectorUDT())])
    rows = by_id(st.predict(spark.createDataFrame([*dense, *sparse], schema), models.path("churn")))
    assert np.abs(np.array([row.prediction for row in rows]) - models.expected["churn"]).max() < CLOSE
    assert rows[1].v == Vectors.dense(features()[1])
    parts = table.select("id", *(functions.col("features")[i].alias(f"f{i}") for i in range(FLOATS)))
    nested = parts.select("id", functions.struct("f1", "f2").alias("s"), "f0", "f3")
    scored = st.predict(nested, models.path("churn"), columns=["f0", "s.f1", "s.f2", "f3"], keep=["id"])
    assert np.abs(np.array([row.prediction for row in by_id(scored)]) - models.expected["churn"]).max() < CLOSE


def test_columns_may_have_any_name(models: Models, table: DataFrame) -> None:
    odd = table.select(functions.col("features").alias("in.put `1`"), functions.col("id").alias("row.id"))
    found = st.predict(odd, models.path("churn"), columns="in.put `1`", keep=["row.id"])
    plain = st.predict(table, models.path("churn"), columns="features", keep=["id"])
    assert found.columns == ["row.id", "prediction"]
    assert sorted(map(tuple, found.collect())) == sorted(map(tuple, plain.collect()))


def test_rows_with_nulls_give_nulls_where_that_is_asked_for(models: Models, table: DataFrame) -> None:
    feeds = {"image": "image", "age": "gap"}
    rows = by_id(st.predict(table, models.path("pair"), columns=feeds, output={"score": "risk"}, on_null="null"))
    assert [row.id for row in rows if row.risk is None] == [i for i in range(ROWS) if i % 5 == 0]
    some = [i for i in range(ROWS) if i % 5]
    assert np.abs(np.array([rows[i].risk for i in some]) - models.expected["score"][some]).max() < CLOSE


def test_large_weights_are_mapped_by_the_worker(spark: SparkSession, models: Models, table: DataFrame) -> None:
    def look(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            with open("/proc/self/maps", encoding="utf-8") as maps:
                yield pa.RecordBatch.from_pydict({"mapped": ["weights.bin" in maps.read()] * len(batch)})

    whole = table.coalesce(1)
    scored = st.predict(whole, models.path("wide"), columns="features", keep=["id"])
    assert np.abs(np.array([row.prediction for row in by_id(scored)]) - models.expected["wide"]).max() < CLOSE
    assert any(row.mapped for row in spark.range(0, 8, 1, 8).mapInArrow(look, "mapped boolean").collect())


def test_sql_functions(spark: SparkSession, models: Models, table: DataFrame, monkeypatch: pytest.MonkeyPatch) -> None:
    table.createOrReplaceTempView("customers")
    st.register_predict(spark, "churn", models.path("churn"))
    pair = st.register_predict(spark, "pair", models.path("pair"), on_null="null")
    rows = spark.sql(
        "SELECT id, churn(features) AS p, churn(features[0], features[1], features[2], features[3]) AS q, "
        "pair(age, image).score AS s FROM customers ORDER BY id"
    ).collect()
    for name, values in (("p", "churn"), ("q", "churn"), ("s", "score")):
        assert np.abs(np.array([row[name] for row in rows]) - models.expected[values]).max() < CLOSE, name
    [first] = table.where("id = 0").select(pair("gap", "image").alias("found")).collect()
    assert first.found.score is None
    monkeypatch.delattr(functions, "arrow_udf", raising=False)  # as PySpark 4.0 is
    st.register_predict(spark, "series", models.path("churn"))
    st.register_predict(spark, "frames", models.path("pair"))
    rows = spark.sql("SELECT series(features) AS p, frames(age, image) AS f FROM customers ORDER BY id").collect()
    assert np.abs(np.array([row.p for row in rows]) - models.expected["churn"]).max() < CLOSE
    assert np.abs(np.array([row.f.classes for row in rows]) - models.expected["classes"]).max() < CLOSE


def test_a_driver_without_tensorflow_asks_an_executor(
    models: Models, table: DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prediction, "is_installed", lambda package: False)
    rows = by_id(st.predict(table, models.path("churn"), columns="features"))
    assert np.abs(np.array([row.prediction for row in rows]) - models.expected["churn"]).max() < CLOSE


def test_calls_that_cannot_work_are_refused_before_a_job_starts(models: Models, table: DataFrame) -> None:
    churn, pair = models.path("churn"), models.path("pair")
    with pytest.raises(st.DataError, match=r"no column 'feature' for .*'features' \(float32 of shape \(rows, 4\)\);"):
        st.predict(table, churn, columns="feature")
    with pytest.raises(st.DataError, match=r"df has a column 'Price' already: pass another output="):
        st.predict(table, churn, output="Price")
    with pytest.raises(st.DataError, match=r"column 'price' is a decimal.*cast\(price as double\)"):
        st.predict(table, pair, columns={"age": "price", "image": "image"})
    with pytest.raises(st.SpecError, match=r"output names 'scor', which the model does not give; did you mean 'score'"):
        st.predict(table, pair, output={"scor": "risk"})
    with pytest.raises(st.DataError, match=r"no column 'idd', which keep names; did you mean 'id'"):
        st.predict(table, churn, keep=["idd"])
    with pytest.raises(st.SpecError, match=r"batch_size \(0\)"):
        st.predict(table, churn, batch_size=0)
    with pytest.raises(st.SpecError, match="a Spark DataFrame is expected"):
        st.predict([1, 2], churn)


@pytest.fixture
def shared(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command line uses the session of the tests."""

    @contextmanager
    def session(*arguments: object) -> Iterator[SparkSession]:
        yield spark

    monkeypatch.setattr(spark_session, "local_session", session)


def test_the_command_writes_a_table(
    spark: SparkSession,
    models: Models,
    table: DataFrame,
    tmp_path: Path,
    shared: None,
    capfd: Capture,
) -> None:
    source, target = str(tmp_path / "rows"), str(tmp_path / "scored")
    table.write.parquet(source)
    words = ["predict", models.path("pair"), "--input", source, "--output", target, "--keep", "id,tags"]
    assert cli.main([*words, "--output-column", "p", "--batch-size", "7"]) == 0
    assert capfd.readouterr().err == f"predictions of {models.path('pair')} are in {target}\n"
    rows = by_id(spark.read.parquet(target))
    assert rows[3].asDict(recursive=True)["tags"] == {"i": 3}
    assert np.abs(np.array([row.p.score for row in rows]) - models.expected["score"]).max() < CLOSE
    assert cli.main(words) == 2
    assert "already exists" in capfd.readouterr().err
    assert cli.main([*words, "--overwrite", "--columns", "gap,image", "--quiet", "--on-null", "null"]) == 0
    assert spark.read.parquet(target).where("prediction is null").count() == 0, "the fields are null"
    assert spark.read.parquet(target).where("prediction.score is null").count() == ROWS // 5
    assert cli.main([*words[:3], str(tmp_path / "nothing"), *words[4:]]) == 2
    assert "Spark refuses the call" in capfd.readouterr().err


def test_rows_that_a_model_cannot_take_end_the_command(
    spark: SparkSession, models: Models, table: DataFrame, tmp_path: Path, shared: None, capfd: Capture
) -> None:
    source = str(tmp_path / "rows")
    table.write.parquet(source)
    words = ["predict", models.path("pair"), "--input", source, "--output", str(tmp_path / "scored")]
    assert cli.main([*words, "--columns", "gap,image"]) == 2
    shown = capfd.readouterr().err
    assert re.search(rf"error: the input \({source}\) \(partition [01]\): column 'gap' has ", shown)


@pytest.mark.all(case="predictions as a job of spark-submit", covered_by="the command on a classic session")
def test_spark_submit_runs_the_job(models: Models, table: DataFrame, spark: SparkSession, tmp_path: Path) -> None:
    source, target = str(tmp_path / "rows"), str(tmp_path / "scored")
    table.write.parquet(source)
    code, out, stderr = submitted(
        tmp_path, "predict.py", models.path("pair"), "--input", source, "--output", target, "--keep", "id"
    )
    assert code == 0, out.decode() + stderr
    rows = by_id(spark.read.parquet(target))
    assert np.abs(np.array([row.prediction.score for row in rows]) - models.expected["score"]).max() < CLOSE


@pytest.mark.all(case="predictions on Spark Connect", covered_by="on a classic session")
def test_predictions_on_a_connect_session(models: Models, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.spark.connect_predictions", str(tmp_path), models.path("churn")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=110, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    seen = json.loads(done.stdout.splitlines()[-1])
    assert seen["session"] == "pyspark.sql.connect.session"
    for way in ("frame", "sql"):
        assert np.abs(np.array(seen[way]) - models.expected["churn"]).max() < CLOSE, way
    assert seen["refused"].startswith("df has no column 'feature' for the model's input")
