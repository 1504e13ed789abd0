"""Keras 3 as a framework. Imports nothing of it."""

import os
import sys
from typing import Any

from sparktrain.base.model_kinds import KERAS_MODEL, KERAS_OPTIMIZER, kind_of, named_kind
from sparktrain.config.environment import KERAS_BACKEND, TENSORFLOW, TORCH, keras_backend
from sparktrain.errors import SpecError
from sparktrain.training.data.feed_cursors import cursor_of
from sparktrain.training.frameworks.contract import Framework


class Keras(Framework):
    """See base class. What concerns devices and errors is its backend's."""

    module = "keras"
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

    def limit_gpu_memory(self, mib: int, total_mib: int) -> None:
        """See base class."""

    def is_out_of_memory(self, error: BaseException) -> bool:
        """See base class."""
        return False

    def is_broken_collective(self, error: BaseException) -> bool:
        """See base class."""
        return False


def backend_in_use() -> str:
    """The backend that Keras runs on in this process, or would take if it were imported now.

    Blocks on the local disk where Keras is not imported.
    """
    if "keras" in sys.modules:
        return _backend(sys.modules["keras"]) or TENSORFLOW
    setting = keras_backend(os.environ)
    return setting[0] if setting is not None else TENSORFLOW


def fit_feeds() -> str:
    """The package with the feeds that `fit` reads: TensorFlow, or Keras itself where that runs on another backend.

    Blocks on the local disk where Keras is not imported.
    """
    return TENSORFLOW if backend_in_use() == TENSORFLOW else Keras.module


def check_backend(call: str, framework: str) -> None:
    """Raise SpecError where Keras runs on another framework than the one that connects the gang. `call` is for Keras.

    Blocks on the local disk where Keras is not imported.
    """
    if (backend := backend_in_use()) == framework:
        return
    ways = {TENSORFLOW: "backend='horovod' or 'tensorflow'"}.get(backend, f"backend={backend!r}")
    raise SpecError(
        f"{call} trains Keras on {backend}, and this gang is connected by {framework}: let Keras run on {framework} by "
        f"env={{'{KERAS_BACKEND}': {framework!r}}}, or pass {ways}"
    )


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
