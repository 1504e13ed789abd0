"""Defers what Keras imports of scikit-learn, which takes a fifth of the import of Keras, to its first use.

Keras imports its wrappers for scikit-learn whenever it is imported, and hardly any training function uses them.
"""

import sys
import threading
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

_DEFERRED = frozenset({"keras.wrappers", "keras._tf_keras.keras.wrappers"})


def defer() -> None:
    """Let the wrappers of Keras load when one of their names is used.

    Call it before the import of Keras; again, or later, it changes nothing. Any thread may call it. Raises nothing.
    """
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


class _Finder(MetaPathFinder):
    """Finds the wrappers as Python does, with a loader that waits."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """See base class."""
        spec = PathFinder.find_spec(fullname, path) if fullname in _DEFERRED else None
        if spec is not None and spec.loader is not None:
            spec.loader = _WaitingLoader(spec.loader)
        return spec


class LoaderAround(Loader):
    """Does what `loader` does. Modules of a zip archive share one loader, which stays as it is."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """See base class."""
        created: ModuleType | None = self._loader.create_module(spec)
        return created


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
