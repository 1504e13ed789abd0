"""Keras 3 as a framework. Imports nothing of it."""

import sys
from typing import Any

from sparktrain.training.frameworks.contract import Framework


class Keras(Framework):
    """See base class. What concerns devices and errors is its backend's."""

    module = "keras"
    state = "sparktrain.training.frameworks.keras.keras_state"

    def keeps(self, value: object) -> bool:
        """See base class. A model on any backend."""
        return all(hasattr(value, name) for name in ("built", "variables", "metrics_variables"))

    def seed(self, value: int) -> None:
        """See base class."""
        keras = sys.modules[self.module]
        if "tensorflow" in sys.modules or _backend(keras) in ("", "tensorflow"):
            keras.utils.set_random_seed(value)
            return
        # That function would import TensorFlow, where it is installed, into a process that runs on another backend.
        from keras.src.backend.common import global_state
        from keras.src.random import seed_generator
        from keras.src.utils import rng_utils

        global_state.set_global_attribute(rng_utils.GLOBAL_RANDOM_SEED, value)
        global_state.set_global_attribute(seed_generator.GLOBAL_SEED_GENERATOR, None)

    def limit_gpu_memory(self, mib: int, total_mib: int) -> None:
        """See base class."""

    def is_out_of_memory(self, error: BaseException) -> bool:
        """See base class."""
        return False

    def is_broken_collective(self, error: BaseException) -> bool:
        """See base class."""
        return False


def _backend(keras: Any) -> str:
    """The backend that Keras runs on; empty for a package of that name which has none."""
    name = getattr(getattr(keras, "backend", None), "backend", None)
    return str(name()) if callable(name) else ""
