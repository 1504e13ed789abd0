"""Defers what Keras imports of scikit-learn, and what Keras and TensorFlow import of JAX, to its first use.

Keras imports its wrappers for scikit-learn whenever it is imported, which takes a fifth of its import. Where JAX is
installed, TensorFlow imports it for its converter to LiteRT, and Keras for checkpoints by Orbax, whatever it runs on.
Hardly any training function uses one of them.
"""

import functools
import importlib
import sys
import threading
from importlib.machinery import PathFinder
from types import ModuleType, SimpleNamespace
from typing import Any

from sparktrain.base.patched_imports import ImportHook, LoaderAround


def defer() -> None:
    """Let the wrappers of Keras, and the JAX of TensorFlow, load when one of their names is used.

    Call it before the import of both; again, or later, it changes nothing. Any thread may call it. Raises nothing.
    """
    _hook().install()


_OF_JAX = ("keras.src.callbacks.orbax_checkpoint", "tensorflow.lite.python.util")
"""The first one changes old versions of JAX, which lack `jax.monitoring.record_scalar`, the second one takes `jit`."""
_JAX = "jax"


@functools.cache
def _hook() -> ImportHook:
    wrappers = dict.fromkeys(("keras.wrappers", "keras._tf_keras.keras.wrappers"), _WaitingLoader)
    return ImportHook(around={**wrappers, **dict.fromkeys(_OF_JAX, _WithoutJax)})


class _WaitingLoader(LoaderAround):
    """Executes a module when a name is looked up that it lacks; until then, it is as if it were empty."""

    def __init__(self, loader: Any) -> None:
        super().__init__(loader)
        self._lock = threading.RLock()

    def exec_module(self, module: ModuleType) -> None:
        """See base class. The module gets a `__getattr__` of its own (PEP 562) in place of its names."""
        names = vars(module)

        def look_up(name: str) -> Any:
            with self._lock:
                # What looks at all modules, such as `inspect` and pickle, asks for names like `__warningregistry__`.
                if not name.startswith("__") and names.get("__getattr__") is look_up:
                    self._loader.exec_module(module)
                    del names["__getattr__"]
            if name in names:
                return names[name]
            raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}")

        names["__getattr__"] = look_up


class _WithoutJax(LoaderAround):
    """Executes a module with a `jax` that has only what the module names, and imports JAX when `jit` is called."""

    def exec_module(self, module: ModuleType) -> None:
        """See base class. A JAX that is imported already, or not installed, stays as it is."""
        if _JAX in sys.modules or PathFinder.find_spec(_JAX) is None:
            super().exec_module(module)
            return
        with ImportHook(filled={_JAX: _fill}).installed():
            try:
                super().exec_module(module)
            finally:
                sys.modules.pop(_JAX, None)


def _fill(module: ModuleType) -> None:
    vars(module).update(jit=_jit, monitoring=SimpleNamespace(record_scalar=None))


def _jit(*args: Any, **options: Any) -> Any:
    return importlib.import_module(_JAX).jit(*args, **options)
