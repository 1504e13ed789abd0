"""Keras 3 as a framework. Imports nothing of it."""

import importlib
import os
import sys
from collections.abc import Callable
from typing import Any

from sparktrain.base.model_kinds import KERAS_MODEL, KERAS_OPTIMIZER, kind_of, named_kind
from sparktrain.config.environment import TENSORFLOW, TORCH, keras_backend
from sparktrain.errors import SpecError
from sparktrain.training.data.feed_cursors import cursor_of
from sparktrain.training.frameworks.contract import Framework

_UNDISTRIBUTED = "sparktrain.training.frameworks.keras.undistributed"


class Keras(Framework):
    """See base class. What concerns devices and errors is its backend's."""

    module = "keras"
    distribution = "sparktrain.training.frameworks.keras.keras_distribution"
    joins = ("sparktrain.training.frameworks.keras.keras_guard",)
    data = "sparktrain.training.frameworks.keras.array_feeds"
    loops = "sparktrain.training.frameworks.tensorflow.healing.keras_loop"
    state = "sparktrain.training.frameworks.keras.keras_state"

    def keeps(self, value: object) -> bool:
        """See base class. A model on any backend, and feeds, which have a position."""
        return cursor_of(value) is not None or all(
            hasattr(value, name) for name in ("built", "variables", "metrics_variables")
        )

    def seed(self, value: int) -> None:
        """See base class."""
        keras = sys.modules[self.module]
        if TENSORFLOW in sys.modules or _backend(keras) in ("", TENSORFLOW):
            keras.utils.set_random_seed(value)
            return
        # That function would import TensorFlow, where it is installed, into a process that runs on another backend.
        from keras.src.backend.common import global_state
        from keras.src.random import seed_generator
        from keras.src.utils import rng_utils

        global_state.set_global_attribute(rng_utils.GLOBAL_RANDOM_SEED, value)
        global_state.set_global_attribute(seed_generator.GLOBAL_SEED_GENERATOR, None)

    def is_out_of_memory(self, error: BaseException) -> bool:
        """See base class."""
        return False

    def watch(self, ring: Any) -> Callable[[], None] | None:
        """See base class. For a function that uses Keras on the ring's framework."""
        if ring.size == 1 and ring.local_steps is None:
            return None
        has_keras = self.module in sys.modules and backend_in_use() == ring.framework
        # TensorFlow's ring has imported TensorFlow: on all members alike, as the function's modules do with Keras.
        if not (has_keras or (ring.framework == TENSORFLOW and TENSORFLOW in sys.modules)):
            return None
        end: Callable[[], None] = importlib.import_module(_UNDISTRIBUTED).watched(ring)
        return end


def backend_in_use() -> str:
    """The backend that Keras runs on in this process, or would take if it were imported now.

    Blocks on the local disk where Keras is not imported.
    """
    if "keras" in sys.modules:
        return _backend(sys.modules["keras"]) or TENSORFLOW
    setting = keras_backend(os.environ)
    return setting[0] if setting is not None else TENSORFLOW


def check_optimizer(optimizer: object, call: str) -> None:
    """Raise SpecError for anything but an optimizer of Keras 3. Imports no framework."""
    if kind_of(optimizer) == KERAS_OPTIMIZER:
        return
    step = "in a loop of your own, average by ctx.allreduce"
    if kind_of(optimizer) == KERAS_MODEL:
        step = "pass the optimizer that the model is compiled with"
    elif type(optimizer).__module__.startswith(f"{TORCH}."):
        step = "pass the model that it belongs to"
    raise SpecError(
        f"{call} got {named_kind(optimizer)}; a Keras 3 optimizer is expected, such as keras.optimizers.SGD(0.01), or "
        f"a model of PyTorch: {step}"
    )


def _backend(keras: Any) -> str:
    """The backend that Keras runs on; empty for a package of that name which has none."""
    name = getattr(getattr(keras, "backend", None), "backend", None)
    return str(name()) if callable(name) else ""
