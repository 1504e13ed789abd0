"""The contract of a framework, with the real ones that are installed here."""

from collections.abc import Callable
from typing import Any

import pytest

from sparktrain.training.frameworks.contract import Framework
from sparktrain.training.frameworks.imported import ALL, imported
from sparktrain.training.frameworks.keras.keras_framework import Keras
from sparktrain.training.frameworks.tensorflow.tensorflow_framework import TensorFlow

TOO_MUCH = 2**50
"""Bytes that no host has."""


class TensorFlowUse:
    """A draw and two errors of TensorFlow."""

    framework = TensorFlow()

    @staticmethod
    def draw() -> float:
        import tensorflow as tf

        return float(tf.random.uniform([]))

    @staticmethod
    def take_too_much() -> Any:
        import tensorflow as tf

        return tf.zeros([TOO_MUCH], tf.uint8)

    @staticmethod
    def fail() -> Any:
        import tensorflow as tf

        return tf.reshape(tf.zeros([2]), [3])


class KerasUse(TensorFlowUse):
    """The same with Keras on TensorFlow, which raises the errors."""

    framework = Keras()  # type: ignore[assignment]

    @staticmethod
    def draw() -> float:
        import keras

        return float(keras.random.uniform([]))


USES = pytest.mark.parametrize("use", [TensorFlowUse, KerasUse], ids=lambda use: use.framework.module)


def raised(call: Callable[[], Any]) -> BaseException:
    with pytest.raises(Exception) as caught:  # noqa: PT011 - of any framework
        call()
    return caught.value


@USES
def test_the_same_seed_gives_the_same_numbers(use: type[TensorFlowUse]) -> None:
    use.draw()
    draws = []
    for seed in (5, 6, 5):
        use.framework.seed(seed)
        draws.append(use.draw())
    assert draws[0] == draws[2] != draws[1]


@USES
def test_a_lack_of_memory_is_known_and_no_other_error(use: type[TensorFlowUse]) -> None:
    assert use.framework.module in [framework.module for framework in imported()]
    assert any(framework.is_out_of_memory(raised(use.take_too_much)) for framework in ALL)
    assert not any(framework.is_out_of_memory(raised(use.fail)) for framework in ALL)


@pytest.mark.parametrize("framework", ALL, ids=lambda framework: framework.module)
def test_errors_of_others_are_none_of_a_framework(framework: Framework) -> None:
    class MuteError(RuntimeError):
        def __str__(self) -> str:
            raise SystemExit

    for error in (MuteError(), ValueError("RESOURCE_EXHAUSTED"), KeyboardInterrupt(), MemoryError()):
        assert not framework.is_out_of_memory(error)
        assert not framework.is_broken_collective(error)
