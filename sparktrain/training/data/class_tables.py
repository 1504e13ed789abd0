"""Weights by class, as arrays. Pure."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparktrain.config.param_values import described
from sparktrain.errors import SpecError


def table_of(class_weight: Any) -> NDArray[np.float32]:
    """Weights by class, and one more for all other classes. Raises SpecError for anything but numbers by class."""
    numbers = isinstance(class_weight, Mapping) and all(
        isinstance(key, int | np.integer) and key >= 0 and isinstance(value, int | float | np.number)
        for key, value in class_weight.items()
    )
    if not numbers or not class_weight:
        raise SpecError(f"class_weight is {described(class_weight)}; pass a dict such as {{0: 1.0, 1: 5.0}}")
    table = np.ones(max(class_weight) + 2, "float32")
    for key, value in class_weight.items():
        table[key] = value
    return table


def weights_of(table: NDArray[np.float32], labels: NDArray[Any]) -> NDArray[np.float32]:
    """The weight of each example, by its label: a number, or one number for each class. Raises SpecError."""
    check_labels(labels.dtype.name, labels.dtype.kind in "biuf")
    if labels.ndim > 2:
        raise SpecError(f"class_weight needs one class for each example, and y has the shape {labels.shape}")
    has_columns = labels.ndim == 2 and labels.shape[1] != 1
    classes = labels.argmax(axis=1) if has_columns else labels.reshape(-1).astype("int64")
    weights: NDArray[np.float32] = table[np.minimum(classes, len(table) - 1)]
    return weights


def check_labels(kind: str, are_numbers: bool) -> None:
    """Raises SpecError for labels of type `kind` that no number identifies."""
    if not are_numbers:
        raise SpecError(
            f"class_weight needs classes as numbers from 0, and labels are {kind}: index them, in Spark with "
            "StringIndexer, in Keras with a StringLookup layer in dataset.map(...)"
        )
