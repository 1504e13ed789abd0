"""Finds objects that a module of Python or of an installed library holds, such as `os.environ`: a process has one.

A copy would bring what the driver has in it, and nothing else would see what a trial changes in it.
"""

import itertools
import sys
from collections.abc import Callable, Iterable
from functools import cached_property
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType

from sparktrain.usercode.imports import find_local

_STREAMS = ("stdout", "stderr", "stdin", "__stdout__", "__stderr__", "__stdin__")
_CONTAINERS = (dict, list, set)
_NAMED = (type, FunctionType, BuiltinFunctionType, MethodType, ModuleType)
"""What a pickle names by itself."""
_NOT_STATE = frozenset({"argv", "last_exc", "last_traceback", "last_type", "last_value", "ps1", "ps2", "orig_argv"})
"""What a module has from the program or its user: a copy of the value is what a function expects."""
_UNKNOWN = frozenset({"builtins", "__main__", "__mp_main__", "sparktrain"})
"""Top-level modules with names of anyone."""

Home = tuple[str, str]
"""The name of a module, and its name for an object."""


class LibraryObjects:
    """The objects that loaded modules hold, as one call of the user sees them. For one thread."""

    def __init__(self) -> None:
        self._homes: dict[str, dict[int, list[Home]]] = {}
        self._tops: dict[type, str | None] = {}
        self._containers: dict[int, list[Home]] | None = None

    def homes_of(self, value: object) -> list[Home]:
        """Where a library holds `value`, which has an identity; none for a value of the user's, or one that is equal to
        any copy of it.

        Not for dicts, lists and sets: see `homes_of_container`.
        """
        if (stream := next((name for name in _STREAMS if value is getattr(sys, name)), None)) is not None:
            return [("sys", stream)]
        kind = type(value)
        if kind not in self._tops:
            self._tops[kind] = _top(kind)
        top = self._tops[kind]
        if top is None:
            return []
        if top not in self._homes:
            self._homes[top] = _indexed(self._modules.get(top, ()), lambda held: not isinstance(held, _NAMED))
        return self._homes[top].get(id(value), [])

    def homes_of_container(self, value: object) -> list[Home]:
        """Where modules of Python's own hold this dict, list or set; none for any other."""
        if type(value) not in _CONTAINERS:
            return []
        if self._containers is None:
            of_python = (self._modules.get(top, ()) for top in sorted(sys.stdlib_module_names))
            self._containers = _indexed(itertools.chain(*of_python), lambda held: type(held) in _CONTAINERS)
        return self._containers.get(id(value), [])

    @cached_property
    def _modules(self) -> dict[str, list[ModuleType]]:
        return _loaded()


def _top(kind: type) -> str | None:
    """The top-level module that may hold objects of this class; None for a class of the user's, or one of values."""
    hashes: object = kind.__hash__
    if hashes not in (None, object.__hash__):  # it is equal to its copies
        return None
    if issubclass(kind, _NAMED):
        return None
    top = str(kind.__module__).partition(".")[0]
    return None if top in _UNKNOWN or find_local(top) is not None else top


def _loaded() -> dict[str, list[ModuleType]]:
    """The loaded modules by their top-level ones, but for those of anyone; those with short names first."""
    modules_by_top: dict[str, list[ModuleType]] = {}
    # A copy, because a thread that imports meanwhile adds modules.
    loaded: list[tuple[str, object]] = list(sys.modules.items())
    for name, module in loaded:
        top = name.partition(".")[0]
        if isinstance(module, ModuleType) and top not in _UNKNOWN:
            modules_by_top.setdefault(top, []).append(module)
    for modules in modules_by_top.values():
        modules.sort(key=lambda module: (module.__name__.count("."), module.__name__))
    return modules_by_top


def _indexed(modules: Iterable[ModuleType], predicate: Callable[[object], bool]) -> dict[int, list[Home]]:
    homes: dict[int, list[Home]] = {}
    for module in modules:
        for name, held in list(vars(module).items()):
            if name not in _NOT_STATE and not name.startswith("__") and predicate(held):
                homes.setdefault(id(held), []).append((module.__name__, name))
    return homes
