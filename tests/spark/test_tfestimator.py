"""The pipeline test of TensorFlowOnSpark, with the lines that Keras 3 needs: a cluster trains, its model predicts."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from sparktrain.errors import RunFailedError
from sparktrain.ml.inference.model_folder import models_folder
from sparktrain.ml.inference.saved_model_files import saved_model_at
from sparktrain.tensorflowonspark.pipeline import TFEstimator, TFModel

WEIGHTS = (3.14, 1.618)
ROWS = 1000
QUIET: dict[str, Any] = {"max_retries": 0}


def train(args: Any, ctx: Any) -> None:
    """A linear regression under a strategy, by `fit` on a generator over the feed."""
    import keras
    import tensorflow as tf

    from sparktrain.tensorflowonspark import TFNode, compat

    with tf.distribute.MultiWorkerMirroredStrategy().scope():
        model = keras.Sequential([keras.layers.Dense(1, activation="linear", input_shape=[2])])
        model.compile(optimizer=tf.keras.optimizers.Adam(lr=0.2), loss="mse", metrics=["mse"])
    feed = TFNode.DataFeed(ctx.mgr, input_mapping=args.input_mapping)

    def rows() -> Any:
        while not feed.should_stop():
            batch = feed.next_batch(1)
            if len(batch["x"]) == 0:
                return
            yield batch["x"][0], batch["y_"][0]

    shapes = (tf.TensorSpec((2,)), tf.TensorSpec((1,)))
    options = tf.data.Options()
    compat.disable_auto_shard(options)
    dataset = tf.data.Dataset.from_generator(rows, output_signature=shapes).with_options(options).batch(args.batch_size)
    steps = ROWS * 0.9 // (args.batch_size * ctx.num_workers)
    tf.io.gfile.makedirs(args.model_dir)
    path = args.model_dir + "/weights-{epoch:04d}"
    callbacks = [tf.keras.callbacks.ModelCheckpoint(filepath=path, save_weights_only=True)]
    model.fit(dataset, epochs=args.epochs, steps_per_epoch=steps, callbacks=callbacks, verbose=0)
    compat.export_saved_model(model, args.export_dir, ctx.job_name == "chief")
    feed.terminate()


def fails(args: Any, ctx: Any) -> None:
    """Takes some rows, and then fails."""
    ctx.get_data_feed(input_mapping=args.input_mapping).next_batch(10)
    raise ValueError(f"{ctx.job_name} {args.own}")


def estimator(function: Any, folder: Path) -> TFEstimator:
    made = TFEstimator(function, {"own": 7}, dir=str(folder / "runs"), **QUIET)
    made.setInputMapping({"col1": "x", "col2": "y_"}).setModelDir(str(folder / "model"))
    return made.setExportDir(str(folder / "export")).setBatchSize(5).setEpochs(1)  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def table(spark: SparkSession) -> Any:
    points = [[number % 37 / 37, number % 11 / 11] for number in range(ROWS)]
    rows = [(point, [sum(a * b for a, b in zip(point, WEIGHTS, strict=True))]) for point in points]
    return spark.createDataFrame(rows, "col1 array<double>, col2 array<double>").repartition(2)


@pytest.fixture(scope="module")
def fitted(table: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[TFModel, Path]]:
    folder = tmp_path_factory.mktemp("fitted")
    yield estimator(train, folder).fit(table), folder
    shutil.rmtree(models_folder() / saved_model_at(str(folder / "export"))[0].sha256, ignore_errors=True)


@pytest.mark.all(
    case="the error of a member", covered_by="a fit and a prediction; `spark/test_tfcluster`: errors of members"
)
def test_the_error_of_a_member_is_raised(table: Any, tmp_path: Path) -> None:
    with pytest.raises(RunFailedError, match="ValueError: chief 7"):
        estimator(fails, tmp_path).fit(table)


def test_a_cluster_trains_and_exports_a_model(fitted: tuple[TFModel, Path]) -> None:
    model, folder = fitted
    assert (folder / "model" / "weights-0001.weights.h5").exists()
    assert (folder / "export" / "saved_model.pb").exists()
    assert model.getExportDir() == str(folder / "export")


def test_the_model_predicts(spark: SparkSession, fitted: tuple[TFModel, Path]) -> None:
    model = fitted[0].setTagSet("serve").setSignatureDefKey("serving_default").setInputMapping({"c1": "dense_input"})
    rows = spark.createDataFrame([([1.0, 1.0], [0.0])], ["c1", "c2"])
    found = model.setOutputMapping({"dense": "cout"}).transform(rows)
    assert found.columns == ["cout"]
    assert found.head().cout[0] == pytest.approx(sum(WEIGHTS), abs=0.02)
