"""What docs/keras3.md states: the lines of a program of 2019 that fail with Keras 3, and those to write instead."""

import warnings
from pathlib import Path
from typing import Any

import keras
import pytest
import tensorflow as tf

from sparktrain.ml.inference.saved_model_export import export
from sparktrain.ml.inference.saved_model_signature import graphs_in, signature_of
from sparktrain.tensorflowonspark import compat

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")  # Keras reads HDF5 so
PAGE = (Path(__file__).parents[2] / "docs" / "keras3.md").read_text()

FAILING = [
    ("keras.optimizers.Adam(lr=0.2)", ValueError),
    ("optimizer.lr", AttributeError),
    ("optimizer.get_weights()", AttributeError),
    ("tf.keras.optimizers.legacy.Adam(0.1)", ImportError),
    ("keras.layers.Dense(2, weights=[])", ValueError),
    ("tf.reshape(keras.Input((4,)), (-1, 2, 2))", ValueError),
    ('keras.losses.MeanSquaredError(reduction="auto")', ValueError),
    ("tf.keras.layers.CuDNNLSTM", AttributeError),
    ("tf.keras.layers.DenseFeatures", AttributeError),
    ("tf.keras.utils.multi_gpu_model", AttributeError),
    ("model.fit_generator", AttributeError),
    ("model.fit(x, y, steps_per_epoch=4 * 0.9 // 1)", TypeError),
    ("model.fit(x, y, workers=2)", TypeError),
    ("model.compile(experimental_run_tf_function=False)", TypeError),
    ("model.predict_classes", AttributeError),
    ("tf.keras.backend.set_session", AttributeError),
    ("tf.keras.backend.function", AttributeError),
    ("keras.callbacks.TensorBoard(write_grads=True)", TypeError),
    ("model.save(folder)", ValueError),
    ('model.save(folder, save_format="tf")', ValueError),
    ("tf.keras.experimental.export_saved_model", AttributeError),
    ("keras.models.load_model(folder)", ValueError),
    ('model.save_weights(f"{folder}/ckpt")', ValueError),
    ("keras.callbacks.ModelCheckpoint(folder, save_weights_only=True)", ValueError),
    ("keras.callbacks.ModelCheckpoint(folder)", ValueError),
    ('keras.callbacks.ModelCheckpoint(f"{folder}.keras", load_weights_on_restart=True)', TypeError),
    ('keras.callbacks.ModelCheckpoint(f"{folder}.keras", period=2)', TypeError),
    ('tf.io.gfile.makedirs("hdfs://localhost/x")', tf.errors.UnimplementedError),
    ("tf.estimator", AttributeError),
    ("tf.keras.estimator.model_to_estimator", AttributeError),
    ("tf.contrib", AttributeError),
    ("tf.placeholder", AttributeError),
    ("tf.Session", AttributeError),
    ("tf.train.Supervisor", AttributeError),
    ("tf.compat.v1.layers.dense", AttributeError),
]
WORKING = [
    "keras.optimizers.Adam(learning_rate=0.2).learning_rate",
    "optimizer.variables",
    "optimizer.apply",
    "keras.ops.reshape(keras.Input((4,)), (-1, 2, 2))",
    'keras.losses.MeanSquaredError(reduction="sum")',
    "keras.utils.FeatureSpace",
    "model.fit(x, y, steps_per_epoch=int(4 * 0.9 // 1), verbose=0)",
    "keras.utils.PyDataset(workers=2)",
    "model.predict(x, verbose=0).argmax(-1)",
    'keras.layers.TFSMLayer(folder, call_endpoint="serving_default")(x)',
    'model.save_weights(f"{folder}/ckpt.weights.h5")',
    'tf.train.Checkpoint(model=model).save(f"{folder}/ckpt")',
    'keras.callbacks.ModelCheckpoint(f"{folder}.weights.h5", save_weights_only=True)',
    'keras.callbacks.ModelCheckpoint(f"{folder}.keras", save_freq=10)',
    "tf.distribute.experimental.MultiWorkerMirroredStrategy",
    "tf.distribute.experimental.ParameterServerStrategy",
    "tf.data.experimental.AutoShardPolicy.OFF",
    "tf.data.experimental.TFRecordWriter",
    "tf.data.experimental.make_csv_dataset",
    "tf.data.experimental.unique",
    'tf.saved_model.save(model, f"{folder}/plain")',
    "tf.compat.v1.placeholder",
    "tf.compat.v1.train.Server",
    "tf.compat.v1.train.Supervisor",
    "tf.compat.v1.train.MonitoredTrainingSession",
    "tf.compat.v1.app.run",
]


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the lines use: a model that is fit and exported, its data and its folder."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # input_shape works, with a warning
        model = keras.Sequential([keras.layers.Dense(1, input_shape=[2])])
    model.compile(keras.optimizers.SGD(0.1), "mse", metrics=["acc"])
    x, y = tf.zeros((8, 2)), tf.zeros((8, 1))
    assert "acc" in model.fit(x, y, verbose=0).history
    folder = str(tmp_path_factory.mktemp("exported"))
    compat.export_saved_model(model, f"{folder}/nothing")
    assert not Path(folder, "nothing").exists()
    compat.export_saved_model(model, folder, is_chief=True)
    return {"keras": keras, "tf": tf, "model": model, "optimizer": model.optimizer, "x": x, "y": y, "folder": folder}


@pytest.mark.parametrize(("line", "error"), FAILING, ids=[line for line, _ in FAILING])
def test_it_fails(names: dict[str, Any], line: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        eval(line, names)
    assert error.__name__ in PAGE


@pytest.mark.parametrize("line", WORKING)
def test_it_works(names: dict[str, Any], line: str) -> None:
    eval(line, names)


def test_data_can_stay_as_it_is_under_a_strategy() -> None:
    options = tf.data.Options()
    compat.disable_auto_shard(options)
    assert options.experimental_distribute.auto_shard_policy == tf.data.experimental.AutoShardPolicy.OFF
    assert not compat.is_gpu_available()


def signature(model: Any, folder: Path) -> tuple[list[str], list[str]]:
    """The names of inputs and outputs as TensorFlow reads them, which the reader without TensorFlow must find too."""
    export(model, f"file://{folder}")
    export(model, str(folder))  # in place of the one before
    found = tf.saved_model.load(str(folder)).signatures["serving_default"]
    read = signature_of(graphs_in((folder / "saved_model.pb").read_bytes(), "m"), "serve", None, "m")
    given = read.model_signature(list(read.outputs))
    for fields, specs in (
        (given.inputs, found.structured_input_signature[1]),
        (given.outputs, found.structured_outputs),
    ):
        assert {each.name: (each.shape, each.dtype) for each in fields} == {
            name: (tuple(spec.shape[1:]), spec.dtype.name) for name, spec in specs.items()
        }
    return list(read.inputs), list(read.outputs)


def test_exports_have_the_names_of_keras_2(tmp_path: Path) -> None:
    one = keras.Sequential([keras.layers.Dense(3, name="first"), keras.layers.Dense(1, name="last")])
    with pytest.raises(Exception, match="has no fixed inputs, so it cannot be exported: call fit"):
        export(one, str(tmp_path / "none"))
    one.build((None, 2))
    assert signature(one, tmp_path / "one") == (["first_input"], ["last"])

    named, other = keras.Input((2,), name="named"), keras.Input((3, 4), dtype="int32")
    both = keras.layers.Concatenate(name="both")([named, keras.layers.Flatten()(keras.ops.cast(other, "float32"))])
    pair = keras.Model([named, other], [keras.layers.Dense(1, name="a")(both), keras.layers.Dense(2, name="b")(both)])
    assert signature(pair, tmp_path / "pair") == (["input_2", "named"], ["a", "b"])
    twice = keras.Model({"named": named}, [both_of := keras.layers.Dense(2, name="d")(named), both_of])
    assert signature(twice, tmp_path / "twice") == (["named"], ["d", "d_1"])


def test_a_model_in_a_store_is_whole(tmp_path: Path) -> None:
    model = keras.Sequential([keras.Input((2,), name="x"), keras.layers.Dense(1, name="y")])
    model.compile()
    from sparktrain.ml.inference.saved_model_files import saved_model_at

    for _ in range(2):
        export(model, "memory://exports/model")
    files, _ = saved_model_at("memory://exports/model")
    assert {"saved_model.pb", "variables/variables.index"} <= set(files.paths)
    place = tmp_path / "fetched"
    files._fetch_to(place)
    assert float(tf.saved_model.load(str(place)).signatures["serving_default"](x=tf.zeros((1, 2)))["y"][0, 0]) == 0.0
