"""Defers what Keras imports of scikit-learn, which takes a fifth of the import of Keras, to its first use.

Keras imports its wrappers for scikit-learn whenever it is imported, and hardly any training function uses them.
"""

import functools
import threading
from types import ModuleType
from typing import Any

from sparktrain.patched_imports import ImportHook, LoaderAround


def defer() -> None:
    """Let the wrappers of Keras load when one of their names is used.

    Call it before the import of Keras; again, or later, it changes nothing. Any thread may call it. Raises nothing.
    """
    _hook().install()


@functools.cache
def _hook() -> ImportHook:
    return ImportHook(around=dict.fromkeys(("keras.wrappers", "keras._tf_keras.keras.wrappers"), _WaitingLoader))


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
