"""The global random generators of the process that no framework has: Python's and NumPy's."""

import random
from collections.abc import Mapping
from typing import Any

import numpy as np


def generators() -> dict[str, Any]:
    """The states of Python's and NumPy's global generators, as JSON values."""
    version, internal, gauss = random.getstate()
    states: dict[str, Any] = {"python": [version, list(internal), gauss]}
    numpy_state: Any = np.random.get_state(legacy=False)
    if numpy_state["bit_generator"] == "MT19937":  # unless the function has replaced it
        key = numpy_state["state"]["key"].tolist()
        pos = numpy_state["state"]["pos"]
        states["numpy"] = [key, pos, numpy_state["has_gauss"], numpy_state["gauss"]]
    return states


def assign_generators(states: Mapping[str, Any]) -> None:
    """Set Python's and NumPy's global generators to `states`."""
    version, internal, gauss = states["python"]
    random.setstate((version, tuple(internal), gauss))
    if "numpy" in states:
        key, pos, has_gauss, cached = states["numpy"]
        np.random.set_state(("MT19937", np.array(key, "uint32"), pos, has_gauss, cached))
