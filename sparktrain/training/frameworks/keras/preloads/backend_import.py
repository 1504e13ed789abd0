"""Imports Keras on a backend that its process has not chosen: for a zygote of members that train on it.

`on_jax` and `on_torch` are the modules that a zygote is asked to import by their names.
"""

import os
import sys

from sparktrain.config.environment import KERAS_BACKEND, TORCH
from sparktrain.training.own_devices import has_torch_devices


def import_keras(backend: str) -> None:
    """Import Keras, and have this process and its children run it on `backend`.

    Raises ImportError, with nothing imported, where Keras is imported already, and where it would use a device.
    """
    if "keras" in sys.modules:
        raise ImportError(f"Keras is imported already, before it was asked to run on {backend}")
    # On PyTorch its import asks CUDA for devices, which no child could use then, and keeps the answer, whichever
    # devices a child sees.
    if backend == TORCH and has_torch_devices():
        raise ImportError("this host may have devices for PyTorch, which the import of Keras would look up")
    os.environ[KERAS_BACKEND] = backend
    import keras  # noqa: F401 # for its children
