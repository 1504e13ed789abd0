"""Values are checked while another thread of the driver imports NumPy: the module is there, and lacks its classes."""

import sys
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from sparktrain.config.param_values import native


@pytest.mark.parametrize("value", [3, "text", [1, 2], 0.5])
def test_a_plain_value_stays_as_it_is(monkeypatch: pytest.MonkeyPatch, value: Any) -> None:
    monkeypatch.setitem(sys.modules, "numpy", ModuleType("numpy"))
    assert native(value) == value


def test_values_of_numpy_become_plain_ones() -> None:
    assert native(np.float32(2)) == 2.0
    assert native(np.arange(3)) == [0, 1, 2]
