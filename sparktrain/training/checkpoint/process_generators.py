"""The global random generators of the process that no framework has: Python's and NumPy's."""

import random
from collections.abc import Mapping
from typing import Any

import numpy as np

from sparktrain.training.checkpoint.tensor_files import Array

OWN = "process_generators"
"""The name of the `packed` generators among the arrays that a member has of its own."""
_KEYS = 624
"""Numbers in the state of a Mersenne twister."""


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


def packed() -> Array:
    """The states of Python's and NumPy's global generators as numbers, of shape (1255,): equal in every process."""
    states = generators()
    version, internal, gauss = states["python"]
    # A position below 0 stands for a generator of NumPy that the function has replaced.
    key, pos, has_gauss, cached = states.get("numpy", ([0] * _KEYS, -1, 0, 0.0))
    has_python_gauss = gauss is not None
    return np.array([version, *internal, has_python_gauss, gauss or 0.0, *key, pos, has_gauss, cached], "float64")


def assign_packed(numbers: Array) -> None:
    """Set Python's and NumPy's global generators to what `packed` has returned."""
    version, *internal, has_python_gauss, python_gauss = numbers[: _KEYS + 4].tolist()
    *key, pos, has_gauss, cached = numbers[_KEYS + 4 :].tolist()
    gauss = python_gauss if has_python_gauss else None
    states: dict[str, Any] = {"python": [int(version), list(map(int, internal)), gauss]}
    if pos >= 0:
        states["numpy"] = [key, int(pos), int(has_gauss), cached]
    assign_generators(states)


def drawn_states() -> tuple[Any, Any]:
    """The states of Python's and NumPy's global generators, in a form that costs a step little."""
    return random.getstate(), np.random.get_state()


def assign_drawn(states: tuple[Any, Any]) -> None:
    """Set Python's and NumPy's global generators to what `drawn_states` has returned."""
    python, numpy = states
    random.setstate(python)
    np.random.set_state(numpy)
