"""Models of Keras as batch inference loads them: signatures, values, mapped weights, and what is refused."""

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

from sparktrain.errors import DataError, EnvironmentMismatchError
from sparktrain.ml.inference.backend_setup import set_up_tensorflow
from sparktrain.ml.inference.loaded_model import LoadedModel
from sparktrain.ml.inference.mapped_weights import LEAST_BYTES, MappedWeights
from sparktrain.ml.inference.model_signature import TensorField
from tests.unit.datasets.data_files import flipped

CLOSE = 1e-5
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")  # Keras reads HDF5 so


def stored(model: Any, folder: Path) -> LoadedModel:
    model.save(folder / "model.keras")
    return LoadedModel(folder / "model.keras")


def dense(*units: int, inputs: int = 3) -> Any:
    x = y = keras.Input((inputs,), name="x")
    for each in units:
        y = layers.Dense(each)(y)
    return keras.Model(x, y)


def test_rows_are_those_of_the_model_in_slices_of_any_size(tmp_path: Path) -> None:
    model = dense(4, 2)
    loaded = stored(model, tmp_path)
    signature = loaded.signature()
    rows = np.random.default_rng(1).random((11, 3), np.float32)
    expected = model(rows).numpy()
    for size in (1, 4, 11, 1000):
        [found] = loaded.rows([rows], signature, size)
        assert found.shape == (11, 2)
        assert np.abs(found - expected).max() < CLOSE


def test_a_value_that_a_layer_refuses_is_named(tmp_path: Path) -> None:
    index = keras.Input((), dtype="int32")
    loaded = stored(keras.Model(index, layers.Embedding(5, 2)(index)), tmp_path)
    with pytest.raises(DataError, match=r"^the model refuses a row: .*8 is not in \[0, 5\); correct it in Spark$"):
        loaded.rows([np.array([1, 8], np.int32)], loaded.signature(), 4)


def test_few_shapes_reach_the_model(tmp_path: Path) -> None:
    loaded = stored(dense(1), tmp_path)
    signature, sizes = loaded.signature(), []
    called = loaded._function(signature.inputs)

    def record(slices: Any) -> Any:
        sizes.append(len(slices[0]))
        return called(slices)

    loaded._callable = record  # type: ignore[assignment]
    for count in (1, 3, 8, 9, 21):
        loaded.rows([np.zeros((count, 3), np.float32)], signature, 8)
    assert sizes == [1, 4, 8, 8, 1, 8, 8, 8]
    assert called._function.experimental_get_tracing_count() == 1


def field(name: str, shape: tuple[int | None, ...] = (1,), dtype: str = "float32") -> TensorField:
    return TensorField(name, shape, dtype)


def test_names_of_inputs_and_outputs(tmp_path: Path) -> None:
    a, b = keras.Input((2,), name="a"), keras.Input((), name="b", dtype="int32")
    total = layers.Add(name="total")([layers.Dense(1, name="score")(a), layers.Reshape((1,))(b)])
    listed = stored(keras.Model([a, b], [total, layers.Dense(3, name="classes")(a)]), tmp_path).signature()
    assert listed.inputs == (field("a", (2,)), field("b", (), "int32"))
    assert [each.shape for each in listed.outputs] == [(1,), (3,)]
    named = stored(keras.Model({"b": b, "a": a}, {"z": total, "y": a}), tmp_path).signature()
    assert {each.name for each in named.inputs} == {"a", "b"}
    assert {each.name: each.shape for each in named.outputs} == {"z": (1,), "y": (2,)}
    sequential = stored(keras.Sequential([keras.Input((None, 4)), layers.GlobalAveragePooling1D()]), tmp_path)
    assert [each.shape for each in sequential.signature().inputs] == [(None, 4)]
    assert [each.shape for each in sequential.signature().outputs] == [(4,)]


def test_inputs_are_fed_by_their_own_structure(tmp_path: Path) -> None:
    first, second = keras.Input((1,), name="first"), keras.Input((1,), name="second")
    model = keras.Model({"second": second, "first": first}, layers.Subtract()([first, second]))
    loaded = stored(model, tmp_path)
    signature = loaded.signature()
    values = {"first": np.full((2, 1), 5, np.float32), "second": np.full((2, 1), 3, np.float32)}
    [found] = loaded.rows([values[each.name] for each in signature.inputs], signature, 2)
    assert found.tolist() == [[2.0], [2.0]]


def test_strings_and_half_precision(tmp_path: Path) -> None:
    text = keras.Input((), name="text", dtype="string")
    lookup = layers.StringLookup(vocabulary=["a", "b"], name="number")
    loaded = stored(keras.Model(text, lookup(text)), tmp_path)
    signature = loaded.signature()
    assert (signature.inputs, signature.outputs) == ((field("text", (), "string"),), (field("number", (), "int64"),))
    assert loaded.rows([np.array([b"b", b"?", b"a"], object)], signature, 8)[0].tolist() == [2, 0, 1]
    x = keras.Input((3,), name="x")
    half = stored(keras.Model(x, layers.Dense(1, dtype="mixed_bfloat16", name="p")(x)), tmp_path)
    signature = half.signature()
    assert signature.outputs == (field("p", (1,), "bfloat16"),)
    [found] = half.rows([np.ones((2, 3), np.float32)], signature, 8)
    assert signature.outputs[0].column(found).type == "float"


def test_mapped_weights_are_the_models_own(tmp_path: Path) -> None:
    model = keras.Sequential([keras.Input((3,)), layers.Dense(600), layers.BatchNormalization(), layers.Dense(600)])
    loaded, rows = stored(model, tmp_path), np.random.default_rng(1).random((5, 3), np.float32)
    signature = loaded.signature()
    [before] = loaded.rows([rows], signature, 8)
    loaded.store_weights(tmp_path / "weights.bin")
    assert [each.shape for each in MappedWeights(tmp_path / "weights.bin")._variables] == [(600, 600)]
    for other in (loaded, LoadedModel(tmp_path / "model.keras")):
        other.share_weights(tmp_path / "weights.bin")
        assert "weights.bin" in Path("/proc/self/maps").read_text()
        [after] = other.rows([rows], signature, 8)
        assert np.array_equal(before, after)
    path = tmp_path / "weights.bin"
    assert MappedWeights.is_intact(path)
    content = path.read_bytes()
    for place in (0, 30, len(content) // 2, len(content) - 6, len(content) - 1):
        path.write_bytes(flipped(content, place))
        assert not MappedWeights.is_intact(path), place
    path.write_bytes(content[:9])
    assert not MappedWeights.is_intact(path)
    small = tmp_path / "small"
    small.mkdir()
    loaded = stored(dense(1), small)
    loaded.store_weights(small / "weights.bin")
    loaded.share_weights(small / "weights.bin")
    assert (small / "weights.bin").stat().st_size < LEAST_BYTES


@pytest.fixture
def unregistered() -> Iterator[None]:
    """Later tests in this process would send the class with their functions, as Keras has it registered."""
    yield
    sys.modules.pop("twice_layers", None)
    keras.saving.get_custom_objects().pop("own>Twice", None)


@pytest.mark.usefixtures("unregistered")
def test_modules_register_layers_of_the_users_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = "import keras\n@keras.saving.register_keras_serializable('own')\nclass Twice(keras.layers.Layer):\n"
    (tmp_path / "twice_layers.py").write_text(source + "    def call(self, x):\n        return 2 * x\n")
    monkeypatch.syspath_prepend(tmp_path)
    x = keras.Input((2,))
    twice = importlib.import_module("twice_layers").Twice
    keras.Model(x, twice()(x)).save(tmp_path / "model.keras")
    del sys.modules["twice_layers"]
    del keras.saving.get_custom_objects()["own>Twice"]
    with pytest.raises(DataError, match=r"in modules that modules=\[...\] names"):
        LoadedModel(tmp_path / "model.keras")
    loaded = LoadedModel(tmp_path / "model.keras", modules=["twice_layers"])
    assert loaded.rows([np.ones((1, 2), np.float32)], loaded.signature(), 1)[0].tolist() == [[2.0, 2.0]]
    with pytest.raises(DataError, match=r"module 'no_such_module', which modules= names, cannot be imported on host"):
        LoadedModel(tmp_path / "model.keras", modules=["no_such_module"])


class Own(keras.Model):
    def call(self, rows: Any) -> Any:
        return rows


class Odd(layers.Layer):
    def call(self, rows: Any) -> Any:
        return rows


def test_models_that_cannot_predict_rows_are_refused(tmp_path: Path) -> None:
    own = Own()
    own(np.zeros((1, 2), np.float32))
    with pytest.raises(DataError, match=r"cannot load the model: .*; layers of your own must be registered"):
        stored(own, tmp_path)
    x = keras.Input((2,))
    with pytest.raises(DataError, match=r"registered with keras.saving.register_keras_serializable"):
        stored(keras.Model(x, Odd()(x)), tmp_path)
    with pytest.raises(DataError, match=r"output .* of the model has no row for each row of its input"):
        stored(keras.Model(x, keras.ops.sum(x)), tmp_path).signature()


def test_a_gpu_that_tensorflow_does_not_see_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: [])
    with pytest.raises(EnvironmentMismatchError, match=r"assigns GPU 1 to the task, and TensorFlow sees 0 GPUs"):
        set_up_tensorflow(1, "1")
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: ["first", "second"])
    monkeypatch.setattr(tf.config.experimental, "set_memory_growth", lambda device, enable: None)
    assert [set_up_tensorflow(1, each) for each in ("0", "1")] == ["/GPU:0", "/GPU:1"]
    assert set_up_tensorflow(1, None) == "/CPU:0"
