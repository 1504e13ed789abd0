"""What collectives on users' values ask of TensorFlow."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from sparktrain.training.collectives.user_values import UserValues


class TensorFlowValues(UserValues):
    """See base class."""

    names = ("bfloat16",)

    def _flat(self, value: Any) -> tuple[list[Any], Callable[[Sequence[Any]], Any]]:
        return tf.nest.flatten(value), partial(tf.nest.pack_sequence_as, value)

    def _tensor(self, value: Any) -> tf.Tensor:
        if isinstance(value, keras.Variable):
            return tf.convert_to_tensor(value.value)
        is_tensor = tf.is_tensor(value) or isinstance(value, tf.Variable)
        return tf.convert_to_tensor(value if is_tensor else self._array(value))

    def _kind(self, tensor: tf.Tensor) -> str:
        return "b" if tensor.dtype.is_bool else "i" if tensor.dtype.is_integer else "f"

    def _cast(self, tensor: tf.Tensor, dtype: str) -> tf.Tensor:
        return tf.cast(tensor, dtype)

    def _as(self, original: Any, tensor: tf.Tensor) -> Any:
        if isinstance(original, bool | int | float):
            return tensor.numpy().item()
        return tensor.numpy() if isinstance(original, np.ndarray | np.generic) else tensor

    def _gathered(self, original: Any, tensor: tf.Tensor) -> Any:
        return tensor if tf.is_tensor(original) or isinstance(original, keras.Variable) else tensor.numpy()


VALUES = TensorFlowValues()
