"""Loads the training function in a member, and what comes with it: only here objects of the user are unpickled."""

import importlib
import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import cloudpickle

from sparktrain.protocol import sent_script
from sparktrain.training.patched_import import PatchingLoader


def load(code_path: str, by_reference: bool) -> Callable[..., Any]:
    """The training function in a file, or the one that is named there. Raises what the user's code raises."""
    code = Path(code_path).read_bytes()
    function = _referred(code.decode()) if by_reference else cloudpickle.loads(code)
    if not callable(function):
        raise TypeError(f"a function was expected, not {type(function).__name__}")
    if sent_script.registered:
        _register_on_import()
    return cast(Callable[..., Any], function)


def _referred(reference: str) -> Any:
    module, _, path = reference.partition(":")
    referent: Any = importlib.import_module(module)
    for name in path.split("."):
        referent = getattr(referent, name)
    return referent


def _register_on_import() -> None:
    """Register with Keras what the user's code has registered in the driver; once it is imported, if it is not yet."""
    waiting = set()
    for library in sent_script.registered:
        if library in sys.modules:
            _register(sys.modules[library])
        else:
            waiting.add(library)
    if waiting:
        sys.meta_path.insert(0, _Finder(frozenset(waiting)))


class _Finder(MetaPathFinder):
    """Finds Keras as Python does, and gives it a loader that registers the user's classes and functions."""

    def __init__(self, libraries: frozenset[str]) -> None:
        self._libraries = libraries

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """See base class."""
        spec = PathFinder.find_spec(fullname, path, target) if fullname in self._libraries else None
        if spec is not None and spec.loader is not None:
            spec.loader = PatchingLoader(spec.loader, _register)
        return spec


def _register(library: ModuleType) -> None:
    """Never fails a trial that may not need it: Keras has its own error for a class that it does not find."""
    for name, value in sent_script.registered[library.__name__].items():
        try:
            custom_object = cloudpickle.loads(value) if isinstance(value, bytes) else value
            package, separator, short = name.rpartition(">")
            if separator:
                library.utils.register_keras_serializable(package, short)(custom_object)
            else:
                library.utils.get_custom_objects()[name] = custom_object
        except Exception as error:
            print(f"[sparktrain] {name} cannot be registered with Keras: {error}", file=sys.stderr)
