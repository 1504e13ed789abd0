"""Weights examples by their class, as `fit(class_weight=...)` does for data without other weights."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from sparktrain.config.param_values import shown
from sparktrain.errors import SpecError
from sparktrain.training.data.class_tables import check_labels, table_of, weights_of
from sparktrain.training.frameworks.tensorflow.data.pipeline import plain


def by_class(data: Any, class_weight: Mapping[int, float] | None) -> Any:
    """Multiply the weights of examples in `data`, arrays or a dataset of batches, by that of their class, by default 1.

    A class is an integer, or the index of the largest of several outputs. Raises SpecError for data other than
    `(x, y)`, for several outputs with classes of their own, for labels that are texts, and for weights that are not
    numbers by class.
    """
    if class_weight is None:
        return data
    table = table_of(class_weight)
    structure = data.element_spec if isinstance(data, tf.data.Dataset) else data
    if not isinstance(structure, tuple) or len(structure) not in (2, 3) or len(tf.nest.flatten(structure[1])) != 1:
        raise SpecError(f"class_weight needs (x, y) with classes of one output, not {shown(structure)}")
    labels = tf.nest.flatten(structure[1])[0]
    kind = tf.as_dtype(getattr(labels, "dtype", None) or np.asarray(labels).dtype)
    check_labels(kind.name, kind.is_integer or kind.is_floating or kind.is_bool)
    if isinstance(data, tf.data.Dataset):
        weights = tf.constant(table)
        last = len(table) - 1

        @plain
        def weigh(x: Any, y: Any, *example_weights: Any) -> Any:
            return x, y, _times(tf.gather(weights, tf.minimum(_classes(y), last)), *example_weights)

        return data.map(weigh)
    x, y, *sample_weights = data
    return x, y, _times(weights_of(table, np.asarray(y)), *sample_weights)


def _classes(y: Any) -> Any:
    """The class of each example, from numbers or from one number for each class."""
    if len(y.shape) > 2:
        raise SpecError(f"class_weight needs one class for each example, and y has the shape {tuple(y.shape)}")
    if len(y.shape) == 2 and y.shape[1] != 1:
        return tf.argmax(y, axis=1)
    return tf.cast(tf.reshape(y, (-1,)), tf.int64)


def _times(weights: Any, example_weights: Any = None) -> Any:
    return weights if example_weights is None else weights * example_weights
