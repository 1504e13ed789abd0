"""`TFParallel.run` exports models in executors, and `TFModel` predicts with them in Spark's Python workers."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from sparktrain.errors import DataError, FunctionError, MissingFileError, ResourceError, RunFailedError, SpecError
from sparktrain.ml import prediction
from sparktrain.ml.inference.model_folder import models_folder
from sparktrain.ml.inference.saved_model_files import saved_model_at
from sparktrain.tensorflowonspark import TFParallel
from sparktrain.tensorflowonspark.pipeline import Namespace, TFModel

WEIGHTS = [3.14, 1.618]
QUIET: dict[str, Any] = {"progress": False}


def export_models(args: Any, ctx: Any) -> None:
    """A model of one layer, by the names of Keras 2, and one with two inputs, two outputs and other types."""
    import keras
    import numpy as np
    import tensorflow as tf

    from sparktrain.tensorflowonspark import compat

    assert (ctx.worker_num, ctx.executor_id, ctx.num_workers) == (0, 0, 1)
    model = keras.Sequential([keras.layers.Dense(1, use_bias=False, input_shape=[2])])
    model.set_weights([np.array(args.weights).reshape(2, 1)])
    for is_chief in (False, True):
        compat.export_saved_model(model, ctx.absolute_path(f"{args.folder}/0"), is_chief)
    model.save(f"{args.folder}/model.keras")
    module = tf.Module()

    def call(image: Any, name: Any) -> dict[str, Any]:
        total = tf.reduce_sum(image, axis=[1, 2])
        return {"total": total, "image": image * 2, "greeting": tf.strings.join(["hello ", name]), "scalar": total[0]}

    specs = [tf.TensorSpec((None, 2, 2), tf.int32, "image"), tf.TensorSpec((None,), tf.string, "name")]
    tf.saved_model.save(module, f"{args.folder}/1", {"own": tf.function(call, input_signature=specs)})


@pytest.fixture(scope="module")
def folder(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    made = tmp_path_factory.mktemp("models")
    args = Namespace({"folder": str(made / "exported"), "weights": WEIGHTS})
    (made / "exported").mkdir()
    TFParallel.run(spark.sparkContext, export_models, args, 1, dir=str(made), **QUIET)
    yield made / "exported"
    for number in ("0", "1"):
        shutil.rmtree(models_folder() / saved_model_at(str(made / "exported" / number))[0].sha256, ignore_errors=True)


@pytest.fixture(scope="module")
def table(spark: SparkSession) -> DataFrame:
    rows = [(number, [float(number), 1.0], [number] * 4, f"n{number}") for number in range(7)]
    frame = spark.createDataFrame(rows, "id long, c1 array<double>, pixels array<int>, c2 string").coalesce(1)
    return frame.cache()


@pytest.fixture(autouse=True)
def _executors_examine_models(monkeypatch: pytest.MonkeyPatch) -> None:
    """They have loaded TensorFlow, which no process of the driver has to load then."""
    monkeypatch.setattr(prediction, "is_installed", lambda package: False)


def linear(folder: Path, column: str = "c1", tensor: str = "dense_input", output: str = "dense") -> TFModel:
    made: TFModel = TFModel({}).setExportDir(str(folder / "0")).setInputMapping({column: tensor})
    return made.setOutputMapping({output: "cout"}).setBatchSize(2)  # type: ignore[no-any-return]


def test_only_the_outputs_come_back_as_lists_of_doubles(table: DataFrame, folder: Path) -> None:
    model = linear(folder).setTagSet("serve").setSignatureDefKey("serving_default")
    scored = model.transform(table)
    assert scored.schema.simpleString() == "struct<cout:array<double>>"
    found = sorted(row.cout[0] for row in scored.collect())
    assert found == pytest.approx([number * WEIGHTS[0] + WEIGHTS[1] for number in range(7)], rel=1e-6)


@pytest.mark.all(
    case="other columns, and a `.keras` file", covered_by="one input and output; `unit/ml/inference/test_saved_models`"
)
def test_columns_can_stay_and_a_keras_file_predicts_too(table: DataFrame, folder: Path) -> None:
    kept = linear(folder).setKeepColumns(True).transform(table)
    assert kept.columns == ["id", "c1", "pixels", "c2", "cout"]
    expected = {row.id: row.cout[0] for row in kept.collect()}
    keras = linear(folder, tensor="x").setExportDir(str(folder / "model.keras")).setKeepColumns(True)
    found = {row.id: row.cout for row in keras.transform(table).collect()}
    assert found == pytest.approx(expected)


@pytest.mark.all(
    case="several inputs and outputs", covered_by="one input and output; `unit/ml/inference/test_saved_models`"
)
def test_several_inputs_and_outputs_of_other_types(table: DataFrame, folder: Path) -> None:
    model = TFModel({}).setExportDir(f"file://{folder}/1").setSignatureDefKey("own")
    model.setInputMapping({"pixels": "image", "c2": "name"})
    model.setOutputMapping({"total": "t", "image": "i", "greeting": "g"})
    scored = model.transform(table.orderBy("id"))
    assert scored.schema.simpleString() == "struct<g:binary,i:array<array<bigint>>,t:bigint>"
    assert [tuple(row) for row in scored.collect()] == [
        (bytearray(f"hello n{number}", "utf-8"), [[2 * number] * 2] * 2, 4 * number) for number in range(7)
    ]
    empty = model.transform(table.where("id > 100"))
    assert empty.collect() == []


@pytest.mark.all(
    case="an input and an output of any name", covered_by="one input and output; `unit/ml/inference/test_saved_models`"
)
def test_the_only_input_and_output_go_by_any_name(
    table: DataFrame, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    scored = linear(folder, tensor="x", output="y").transform(table)
    assert [row.cout[0] for row in scored.where("cout[0] < 2").collect()] == pytest.approx([WEIGHTS[1]])
    assert "input_mapping names 'x', and the only input of signature 'serving_default'" in caplog.text
    assert "is 'dense': that one is taken" in caplog.text


def test_what_the_model_does_not_fit_is_refused_before_a_job(table: DataFrame, folder: Path) -> None:
    two = TFModel({}).setExportDir(str(folder / "1")).setSignatureDefKey("own").setOutputMapping({"total": "t"})
    cases: list[tuple[Any, type[Exception], str]] = [
        (linear(folder).setTagSet("gpu"), SpecError, "tag_set is 'gpu', and the model .* has the graphs 'serve'"),
        (linear(folder).setSignatureDefKey("serv"), SpecError, "has the signatures 'serve', 'serving_default'"),
        (linear(folder, "c3"), DataError, "input_mapping names the column 'c3', which the DataFrame lacks"),
        (linear(folder, "c2"), DataError, "column 'c2' is of type string, and the model's input is 'dense_input'"),
        (linear(folder).setExportDir(None), SpecError, "TFModel has no export_dir"),
        (linear(folder).setExportDir(str(folder)), MissingFileError, f"there is one in {folder}/1: pass that"),
        (linear(folder).setOutputMapping({}), SpecError, "TFModel has no output_mapping"),
        (linear(folder).setInputMapping({}), SpecError, "input_mapping is empty"),
        (linear(folder).setBatchSize(0), SpecError, r"batch_size \(0\) must be at least 1"),
        (two.copy().setInputMapping({"c2": "name"}), SpecError, "no column for the input 'image' of signature 'own'"),
        (two.copy().setInputMapping({"c2": "nam", "pixels": "image"}), SpecError, "names 'nam', .* mean 'name'"),
        (
            two.copy().setInputMapping({"c2": "name", "pixels": "image"}).setOutputMapping({"scalar": "s"}),
            DataError,
            "output 'scalar' of signature 'own' of .* has no row for each row of the data",
        ),
        (linear(folder).setOutputMapping({"dense": "ID"}).setKeepColumns(True), DataError, "two columns 'ID'"),
    ]
    for model, error, message in cases:
        with pytest.raises(error, match=message):
            model.transform(table)


@pytest.mark.all(
    case="values that are refused", covered_by="one input and output; `unit/ml/inference/test_saved_models`"
)
def test_values_that_the_model_refuses_are_named(spark: SparkSession, folder: Path) -> None:
    rows = spark.createDataFrame([([1.0, 2.0, 3.0],)], "c1 array<double>")
    with pytest.raises(PySparkException, match=r"rows of column 'c1' have the shape \(3,\), and the model's input is"):
        linear(folder).transform(rows).collect()


def ends(args: Any, ctx: Any) -> None:
    if ctx.worker_num == args["fails"]:
        raise ValueError(f"copy {ctx.executor_id} of {ctx.num_workers}")
    assert ctx.cluster_spec == {}
    assert not hasattr(ctx, "get_data_feed")


@pytest.mark.all(
    case="a copy of TFParallel fails", covered_by="all copies run; `process/test_gang_runs`: a member that raises"
)
def test_the_first_failure_of_a_copy_is_raised(spark: SparkSession, runs: Path) -> None:
    with pytest.raises(RunFailedError, match=r"copy 1 of 2 failed: ValueError: copy 1 of 2; see ") as caught:
        TFParallel.run(spark, ends, {"fails": 1}, 2, dir=str(runs), **QUIET)
    assert 'raise ValueError(f"copy' in str(caught.value.traceback)
    assert Path(str(caught.value.directory)).parent == runs


def test_all_copies_must_find_slots_unless_some_may_wait(spark: SparkSession, runs: Path) -> None:
    with pytest.raises(ResourceError, match="num_executors is 3, and 2 copies can run at a time"):
        TFParallel.run(spark.sparkContext, ends, {"fails": None}, 3, dir=str(runs), **QUIET)
    TFParallel.run(spark.sparkContext, ends, {"fails": None}, 3, use_barrier=False, dir=str(runs), **QUIET)
    for wrong in (lambda ctx: None, "train", lambda args, ctx, more: None):
        with pytest.raises(FunctionError, match="map_fn"):
            TFParallel.run(spark, wrong, {}, 2)  # type: ignore[arg-type]
    for count in (0, True, "2"):
        with pytest.raises(SpecError, match=r"num_executors is .*; pass a whole number from 1"):
            TFParallel.run(spark, ends, {}, count)  # type: ignore[arg-type]
    with pytest.raises(SpecError, match=r"sc is 'yarn'.*; pass a SparkContext"):
        TFParallel.run("yarn", ends, {}, 1)
