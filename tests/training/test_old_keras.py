"""Calls for Keras 2 in a member of a TFCluster: each gives what Keras 2 gave."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from sparktrain.tensorflowonspark import old_keras
from sparktrain.training.frameworks.keras.keras_patches import put_back
from tests.training.test_old_programs import PAGE

pytestmark = [
    pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning"),  # Keras writes HDF5 so
    pytest.mark.filterwarnings("ignore:`shuffle=True` was passed:UserWarning"),  # the default of fit, with a generator
]
X, Y = np.arange(16, dtype="float32").reshape(8, 2) / 16, np.arange(8, dtype="float32").reshape(8, 1) / 8
ADDED = [(keras.Model, f"{name}_generator") for name in ("fit", "evaluate", "predict")]


@pytest.fixture(autouse=True)
def accepted() -> Iterator[None]:
    with put_back():
        old_keras.accept()
        old_keras.accept()
        yield
    for owner, name in [*ADDED, (old_keras.BaseOptimizer, "lr")]:
        delattr(owner, name)
    vars(tf).pop("__getattr__")


def model(optimizer: Any = "sgd") -> Any:
    made = keras.Sequential([keras.Input((2,), name="x"), keras.layers.Dense(1, name="y")])
    made.compile(optimizer, "mse")
    return made


def rows(batches: int) -> Iterator[tuple[Any, Any]]:
    for _ in range(batches):
        yield X, Y


def test_an_optimizer_takes_its_rate_as_lr() -> None:
    optimizer = keras.optimizers.Adam(lr=0.2, epsilon=1e-3)
    assert float(optimizer.learning_rate) == pytest.approx(0.2)
    assert optimizer.epsilon == 1e-3
    optimizer.lr = 0.1
    assert float(optimizer.lr) == pytest.approx(0.1)
    assert float(keras.optimizers.SGD(0.3, momentum=0.9).learning_rate) == pytest.approx(0.3)
    again = keras.optimizers.Adam.from_config(optimizer.get_config())
    assert float(again.learning_rate) == pytest.approx(0.1)
    with pytest.raises(ValueError, match=r"not recognized: \{'rate': 1\}"):
        keras.optimizers.Adam(rate=1)


def test_decay_lowers_the_rate_of_each_update_as_keras_2_did() -> None:
    optimizer = keras.optimizers.SGD(lr=0.5, decay=0.25)
    variable, rates = keras.Variable(0.0), []
    for _ in range(4):
        before = float(variable)
        optimizer.apply([keras.ops.ones(())], [variable])
        rates.append(before - float(variable))
    assert rates == pytest.approx([0.5 / (1 + 0.25 * updates) for updates in range(4)])
    assert float(keras.optimizers.SGD(0.5, decay=0.0).learning_rate) == pytest.approx(0.5)


def test_steps_may_be_floats() -> None:
    made = model()
    made.fit(X, Y, batch_size=2, steps_per_epoch=8 * 0.9 // 2, verbose=0)
    assert int(made.optimizer.iterations) == 3
    data = tf.data.Dataset.from_tensor_slices((X, Y)).repeat().batch(2)
    made.fit(data, steps_per_epoch=2.5, validation_data=data, validation_steps=1.0, verbose=0)
    assert int(made.optimizer.iterations) == 6, "Keras 2 makes steps as long as fewer are done"
    assert made.predict(data, steps=2.0, verbose=0).shape == (4, 1)


def test_generators_feed_fit_evaluate_and_predict() -> None:
    made = model()
    made.fit_generator(rows(6), 2, epochs=3, verbose=0, workers=4, use_multiprocessing=True)
    assert int(made.optimizer.iterations) == 6
    assert made.evaluate_generator(rows(3), 3, verbose=0) == pytest.approx(made.evaluate(X, Y, verbose=0), rel=1e-4)
    assert made.predict_generator((x for x, _ in rows(2)), 2, verbose=0).shape == (16, 1)
    with pytest.raises(TypeError, match="fit_generator takes the generator and steps_per_epoch by position"):
        made.fit_generator(rows(1), 1, 3)


@pytest.mark.parametrize("options", [{}, {"save_format": "tf"}])
def test_a_folder_gets_a_saved_model(tmp_path: Path, options: dict[str, str]) -> None:
    made = model()
    made.save(tmp_path / "export", **options)
    found = tf.saved_model.load(str(tmp_path / "export")).signatures["serving_default"](x=tf.constant(X))["y"]
    np.testing.assert_allclose(found, made.predict(X, verbose=0), rtol=1e-5)


def test_a_file_stays_a_file(tmp_path: Path) -> None:
    made = model()
    made.save(tmp_path / "model.keras")
    np.testing.assert_array_equal(keras.models.load_model(tmp_path / "model.keras").weights[0], made.weights[0])
    made.save(tmp_path / "unzipped", zipped=False)
    np.testing.assert_array_equal(keras.models.load_model(tmp_path / "unzipped").weights[0], made.weights[0])
    made.save_weights(tmp_path / "parts.weights.json", max_shard_size=1)
    assert (tmp_path / "parts.weights.json").exists()


@pytest.mark.parametrize("name", ["ckpt", "ckpt.h5", "ckpt.weights.h5"])
def test_weights_are_saved_and_found_under_the_old_name(tmp_path: Path, name: str) -> None:
    made, other = model(), model()
    made.save_weights(tmp_path / name)
    assert os.listdir(tmp_path) == ["ckpt.weights.h5"]
    other.load_weights(tmp_path / name)
    np.testing.assert_array_equal(other.weights[0], made.weights[0])
    with pytest.raises((ValueError, OSError), match="none"):
        other.load_weights(tmp_path / "none")


@pytest.mark.parametrize(
    ("name", "options", "files"),
    [
        ("w-{epoch}", {"save_weights_only": True, "period": 2}, ["w-2.weights.h5", "w-4.weights.h5"]),
        ("m-{epoch}", {"period": 3}, ["m-3.keras"]),
        ("w-{epoch}.h5", {"save_weights_only": True, "period": 5}, []),
        ("m-{epoch}.keras", {}, [f"m-{epoch}.keras" for epoch in range(1, 5)]),
    ],
)
def test_checkpoints_have_the_ending_of_keras_3_and_a_period(
    tmp_path: Path, name: str, options: dict[str, Any], files: list[str]
) -> None:
    callback = keras.callbacks.ModelCheckpoint(str(tmp_path / name), **options)
    model().fit(X, Y, epochs=4, verbose=0, callbacks=[callback])
    assert sorted(os.listdir(tmp_path)) == files


def test_a_period_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match=r"period=0\): pass a whole number of epochs"):
        keras.callbacks.ModelCheckpoint("m.keras", period=0)


@pytest.mark.parametrize("name", ["estimator", "contrib", "placeholder", "Session", "gfile"])
def test_names_that_are_gone_say_what_to_write(name: str) -> None:
    assert not hasattr(tf, name)
    with pytest.raises(AttributeError, match=rf"no attribute '{name}': .*(write|use) "):
        getattr(tf, name)
    with pytest.raises(AttributeError, match=r"no attribute 'other'$"):
        _ = tf.other


def test_a_name_that_is_missing_while_tensorflow_is_imported_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(vars(tf), "compat")
    for name in ("compat", "placeholder"):
        with pytest.raises(AttributeError, match=f"no attribute '{name}'$"):
            getattr(tf, name)


FIRST_KERAS = pytest.mark.all(
    case="an old program that imports Keras first", covered_by="one that imports TensorFlow first"
)


@pytest.mark.parametrize("framework", [pytest.param("keras", marks=FIRST_KERAS), "tensorflow"])
def test_keras_accepts_it_right_after_its_import_where_it_was_not_imported_before(framework: str) -> None:
    program = (
        "import sys\n"
        "from sparktrain.tensorflowonspark import old_programs\n"
        "old_programs.accept()\n"
        "assert not {'keras', 'tensorflow'} & sys.modules.keys()\n"
        f"import {framework}, keras, tensorflow as tf\n"
        "print(float(tf.keras.optimizers.Adam(lr=0.5).lr), hasattr(tf, 'contrib'))\n"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=90, check=False)
    assert ran.stdout == "0.5 False\n", ran.stderr


def test_the_page_lists_what_is_accepted() -> None:
    part = PAGE.partition("## In a member of a TFCluster")[2].partition("\n## ")[0]
    for name in ("lr=", "decay=", "steps_per_epoch", "fit_generator", "save_format", "period=", ".weights.h5"):
        assert name in part, name
