"""Stages of Spark ML on two executor processes: pipelines, tuning, and errors before any job."""

import gc
import json
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.ml import Pipeline, PipelineModel
from pyspark.ml.evaluation import MulticlassClassificationEvaluator, RegressionEvaluator
from pyspark.ml.feature import StringIndexer, VectorAssembler
from pyspark.ml.tuning import CrossValidator
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

import sparktrain as st
from sparktrain.datasets.manifest import decode
from sparktrain.ml import KerasEstimator, KerasModel, prediction
from tests.spark import keras_stages

INPUTS = ["a", "b", "c"]
QUIET: dict[str, Any] = {"progress": False, "max_retries": 0}


@pytest.fixture(scope="module")
def table(spark: SparkSession) -> Iterator[DataFrame]:
    number = sql.col("id")
    kind = sql.when(number % 3 == 0, "x").when(number % 3 == 1, "y").otherwise("z")
    columns = [(number % modulus).cast("double").alias(name) for name, modulus in zip(INPUTS, (7, 5, 2), strict=True)]
    made = spark.range(0, 120, 1, 3).select(number, *columns, kind.alias("kind"), (number % 4 == 0).alias("held"))
    yield made.withColumn("label", sql.col("a") + 2 * sql.col("b")).cache()
    made.unpersist()


@pytest.fixture(autouse=True)
def _executors_examine_models(monkeypatch: pytest.MonkeyPatch) -> None:
    """They have loaded TensorFlow, which no process of the driver has to load then; test_predict.py has both ways."""
    monkeypatch.setattr(prediction, "is_installed", lambda package: False)


def records_of(runs: Path) -> list[dict[str, Any]]:
    """The results of all runs in this folder."""
    return [json.loads(path.read_text()) for path in sorted(runs.glob("*/results.json"))]


def predictions(model: Any, table: DataFrame) -> list[float]:
    return [row["prediction"] for row in model.transform(table).orderBy("id").collect()]


def test_a_pipeline_trains_predicts_saves_and_loads(spark: SparkSession, table: DataFrame, runs: Path) -> None:
    estimator = KerasEstimator(
        keras_stages.build, epochs=2, modelParams={"units": 8}, validationSplit=0.2, dir=str(runs), runOptions=QUIET
    )
    pipeline = Pipeline(stages=[VectorAssembler(inputCols=INPUTS, outputCol="features"), estimator])
    pipeline.save(str(runs / "pipeline"))
    loaded = Pipeline.load(str(runs / "pipeline"))
    assert loaded.getStages()[1].extractParamMap() == estimator.extractParamMap()
    model = loaded.fit(table)
    stage = model.stages[1]
    assert isinstance(stage, KerasModel)
    assert set(stage.training_metrics) == {"loss", "val_loss"}
    assert stage.uid == estimator.uid
    found = predictions(model, table)
    assert model.transform(table).schema["prediction"].dataType.simpleString() == "double"

    model.write().overwrite().save(str(runs / "model"))
    stage_file = stage.model_path
    assert stage_file is not None
    Path(stage_file).unlink()  # the saved model needs nothing of the run
    again = PipelineModel.load(str(runs / "model"))
    assert again.stages[1].model_path is None
    assert again.stages[1].training_metrics == stage.training_metrics
    assert predictions(again, table) == found
    with pytest.raises(st.DataError, match=r"holds a .*KerasModel.*, and KerasEstimator.load\(\) reads a KerasEst"):
        KerasEstimator.load(str(next((runs / "model" / "stages").glob("1_*"))))


@pytest.mark.all(case="a `CrossValidator` over two folds", covered_by="two param maps in one sweep")
def test_the_param_maps_of_each_fold_are_trials_of_one_sweep(table: DataFrame, runs: Path) -> None:
    estimator = KerasEstimator(keras_stages.build, inputCols=INPUTS, dir=str(runs), namePrefix="cv", runOptions=QUIET)
    maps = [{estimator.modelParams: {"units": units}} for units in (2, 6)]
    tuning = CrossValidator(
        estimator=estimator, estimatorParamMaps=maps, evaluator=RegressionEvaluator(), numFolds=2, seed=1
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # Spark's tuner leaves its pool of threads to the collector
        model = tuning.fit(table)
        gc.collect()
    swept = [each for each in records_of(runs) if len(each["trials"]) == 2]
    assert len(swept) == 2  # one for each fold
    assert len(records_of(runs)) == 3  # and the best one, on all rows
    for each in swept:
        assert [trial["params"]["model_params"] for trial in each["trials"]] == [{"units": 2}, {"units": 6}]
    assert len(model.avgMetrics) == 2
    assert model.bestModel.training_metrics.keys() == {"loss"}


def test_a_failed_param_map_raises_its_own_error_and_the_others_have_models(table: DataFrame, runs: Path) -> None:
    options = {**QUIET, "max_concurrent_trials": 1}  # one agent loads TensorFlow
    estimator = KerasEstimator(keras_stages.broken, inputCols=INPUTS, dir=str(runs), runOptions=options)
    maps = [{estimator.modelParams: {"units": units}} for units in (2, 6)]
    models = estimator.fitMultiple(table, maps)
    index, model = next(models)
    assert (index, set(model.training_metrics)) == (0, {"loss"})
    with pytest.raises(st.RunFailedError, match="6 units are too many"):
        next(models)
    with pytest.raises(StopIteration):
        next(models)
    (swept,) = records_of(runs)
    assert [(trial["params"]["model_params"], trial["status"]) for trial in swept["trials"]] == [
        ({"units": 2}, "succeeded"),
        ({"units": 6}, "failed"),
    ]


@pytest.mark.all(case="a gang trains a classifier in a pipeline", covered_by="a pipeline that one process trains")
def test_a_gang_trains_a_classifier_with_probabilities(table: DataFrame, runs: Path) -> None:
    estimator = KerasEstimator(
        keras_stages.classes,
        labelCol="index",
        probabilityCol="probability",
        validationIndicatorCol="held",
        loss="sparse_categorical_crossentropy",
        metrics=["accuracy"],
        modelParams={"count": 3},
        workers=2,
        backend="tensorflow",
        batchSize=16,
        dir=str(runs),
        runOptions=QUIET,
    )
    stages = [
        StringIndexer(inputCol="kind", outputCol="index"),
        VectorAssembler(inputCols=INPUTS, outputCol="features"),
    ]
    model = Pipeline(stages=[*stages, estimator]).fit(table)
    assert set(model.stages[2].training_metrics) == {"accuracy", "loss", "val_accuracy", "val_loss"}
    scored = model.transform(table)
    for row in scored.collect():
        assert sum(row["probability"]) == pytest.approx(1, abs=1e-6)
        assert row["prediction"] == row["probability"].toArray().argmax()
    assert 0 <= MulticlassClassificationEvaluator(labelCol="index").evaluate(scored) <= 1
    manifest = next(runs.glob("keras-*/data/validation*/manifest.json"))
    assert decode(manifest.read_bytes(), str(manifest), str(manifest)).rows == 30


@pytest.mark.all(
    case="a training function of the user in a stage",
    covered_by="`unit/ml/test_functions`: what functions are called with",
)
def test_a_function_of_the_user_trains_with_the_params_that_it_names(table: DataFrame, runs: Path) -> None:
    def train(
        ctx: Any, units: int, batch_size: int, feature_columns: list[str], label_columns: str
    ) -> dict[str, float]:
        data = ctx.dataset("train").to_tf(
            batch_size=batch_size, feature_columns=feature_columns, label_columns=label_columns, stack=True
        )
        model = keras_stages.build(units)
        model.fit(data, callbacks=ctx.keras_callbacks(), verbose=0)
        ctx.export(model)
        return {"batch": float(batch_size)}

    estimator = KerasEstimator(
        train_fn=train, inputCols=INPUTS, batchSize=24, modelParams={"units": 2}, dir=str(runs), runOptions=QUIET
    )
    model = estimator.fit(table)
    assert model.training_metrics == {"batch": 24.0}
    assert len(model.load_model().get_weights()[0][0]) == 2
    silent = estimator.copy({estimator.epochs: 1})
    silent._function = KerasEstimator(train_fn=lambda ctx: None)._function
    with pytest.raises(st.FunctionError, match=r"exported no model .* call ctx.export"):
        silent.setModelParams({}).fit(table)


def test_wrong_columns_are_refused_before_any_run(table: DataFrame, runs: Path) -> None:
    def refused(match: str, **params: Any) -> None:
        with pytest.raises(st.DataError, match=match):
            KerasEstimator(keras_stages.build, dir=str(runs), **params).fit(table)

    refused("no column 'features' for the features; its", labelCol="label")
    refused("no column 'labl' for the label; did you mean 'label'", inputCols=INPUTS, labelCol="labl")
    refused("no column 'w' for the weights", inputCols=INPUTS, weightCol="w")
    refused("has the type string, boolean is expected", inputCols=INPUTS, validationIndicatorCol="kind")
    model = KerasModel("missing.keras", inputCols=["a", "bb"], predictionCol="c")
    with pytest.raises(st.DataError, match=r"no column 'bb' for the features; .* and a column 'c' already"):
        model.transform(table)
    assert not runs.exists()


def test_a_validation_split_depends_on_rows_and_seed_alone(table: DataFrame) -> None:
    from sparktrain.ml.keras_estimator import datasets

    estimator = KerasEstimator(keras_stages.build, inputCols=INPUTS, validationSplit=0.25)

    def held(frame: DataFrame, **params: Any) -> set[tuple[float, ...]]:
        rows = {name: {tuple(row) for row in each.collect()} for name, each in datasets(estimator, frame).items()}
        assert not rows["train"] & rows["validation"]
        return rows["validation"]

    first = held(table)
    assert first == held(table.repartition(5).orderBy("c"))
    assert 5 < len(first) < 35
    estimator.setSeed(1)
    assert held(table) != first
