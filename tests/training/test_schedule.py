"""Learning rates that rise while a gang starts."""

import re
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import sparktrain
from sparktrain.errors import SpecError
from sparktrain.training.frameworks.keras.lr_schedule import Warmup
from sparktrain.training.learning_rates import scale_lr
from tests.unit import test_public_names

schedules = keras.optimizers.schedules


def rates(schedule: Any, steps: int) -> list[float]:
    """In a graph, as an optimizer calls it."""
    call = tf.function(schedule)
    return [float(call(tf.constant(step, tf.int64))) for step in range(steps)]


def test_warmup_is_a_public_name() -> None:
    assert sparktrain.Warmup is Warmup
    test_public_names.test_classes_in_signatures_are_public("Warmup")
    test_public_names.test_errors_that_a_docstring_names_are_public("Warmup")
    test_public_names.test_each_public_name_is_documented("Warmup")


def test_scales_with_the_members() -> None:
    assert scale_lr(0.1, 4) == 0.4
    with pytest.raises(SpecError, match=re.escape("lr is '0.1' (str); pass a learning rate")):
        scale_lr("0.1", 4)  # type: ignore[arg-type]


def test_rises_in_a_line_and_stays() -> None:
    assert rates(Warmup(0.4, 4, start=0.2), 6) == pytest.approx([0.2, 0.25, 0.3, 0.35, 0.4, 0.4])
    assert rates(Warmup(0.4, 4), 6) == pytest.approx([0.1, 0.175, 0.25, 0.325, 0.4, 0.4])


def test_then_follows_another_schedule_from_its_start() -> None:
    decay = schedules.CosineDecay(0.4, 10)
    found = rates(Warmup(decay, 3, start=0.1), 13)

    assert found[:3] == pytest.approx([0.1, 0.2, 0.3])
    assert found[3:] == pytest.approx(rates(decay, 10))


@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")  # Keras with NumPy 2.4
@pytest.mark.parametrize("target", [0.4, schedules.ExponentialDecay(0.4, 5, 0.9)])
def test_a_saved_model_keeps_it(tmp_path: Path, target: Any) -> None:
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(Warmup(target, 4, start=0.2)), "mse")
    model.fit(np.ones((8, 1)), np.ones((8, 1)), batch_size=4, epochs=2, verbose=0)
    assert float(model.optimizer.learning_rate) == pytest.approx(rates(Warmup(target, 4, start=0.2), 5)[4])
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")

    assert rates(again.optimizer._learning_rate, 9) == pytest.approx(rates(Warmup(target, 4, start=0.2), 9))


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"target": -1.0, "warmup_steps": 2}, "target is -1.0 (float); pass a learning rate"),
        ({"target": 0.1, "warmup_steps": 0}, "warmup_steps is 0 (int); pass a number of steps"),
        ({"target": 0.1, "warmup_steps": 2, "start": float("nan")}, "start is nan (float)"),
    ],
)
def test_wrong_rates_are_errors(wrong: dict[str, Any], words: str) -> None:
    with pytest.raises(SpecError, match=re.escape(words)):
        Warmup(**wrong)
