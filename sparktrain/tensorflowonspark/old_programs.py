"""Has a member of a TFCluster accept what programs of 2019 write for Keras, once it is there. Imports no framework."""

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType

from sparktrain.training.patched_import import PatchingLoader

_KERAS = "keras"


def accept() -> None:
    """Have Keras 3 accept it in this process: at once where Keras is imported, else right after its import.

    Keras 2 itself, the package `tf_keras`, stays as it is. Call it before the user's function, in a process of its own.
    """
    if _KERAS in sys.modules:
        _accept(sys.modules[_KERAS])
    else:
        sys.meta_path.insert(0, _Finder())


class _Finder(MetaPathFinder):
    """Finds Keras as Python does, and gives it a loader that changes it."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """See base class."""
        spec = PathFinder.find_spec(fullname, path, target) if fullname == _KERAS else None
        if spec is not None and spec.loader is not None:
            spec.loader = PatchingLoader(spec.loader, _accept)
        return spec


def _accept(_: ModuleType) -> None:
    from sparktrain.tensorflowonspark import old_keras  # it needs Keras

    old_keras.accept()
