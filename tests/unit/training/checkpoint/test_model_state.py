"""Copies of variables."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from sparktrain.training.frameworks.keras.model_state import value


def variable(array: Any) -> Any:
    """Of Keras: what it reads is its own memory."""
    return SimpleNamespace(value=SimpleNamespace(read_value=lambda: array))


@pytest.mark.parametrize("shape", [(), (0,), (2, 3)])
def test_a_value_is_copied_to_memory_that_is_spare(shape: tuple[int, ...]) -> None:
    held, spare = np.ones(shape, "float32"), np.zeros(shape, "float32")
    copied = value(variable(held), spare)
    assert copied is spare
    held *= 2
    assert copied.tolist() == np.ones(shape).tolist()


@pytest.mark.parametrize("spare", [None, np.zeros(3, "float32"), np.zeros((2, 3), "float64")])
def test_a_value_is_copied_to_new_memory_where_none_fits(spare: Any) -> None:
    held = np.ones((2, 3), "float32")
    copied = value(variable(held), spare)
    assert copied is not spare
    held *= 2
    assert (copied.dtype, copied.tolist()) == (np.dtype("float32"), [[1.0] * 3] * 2)
