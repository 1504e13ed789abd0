"""Gives a training function this package's modules where it imports Horovod's. Imports no framework itself."""

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import TYPE_CHECKING, Any

from sparktrain.base.patched_imports import ImportHook, patching
from sparktrain.config.backends import Backend
from sparktrain.errors import SpecError

if TYPE_CHECKING:
    from sparktrain.state.topology import Formation
    from sparktrain.training.collectives.ring import Ring
    from sparktrain.training.context import TrainContext
    from sparktrain.training.gang_join import JoinedGang

TENSORFLOW = "horovod.tensorflow"
"""Horovod's own module, with a few names replaced."""
_PACKAGE = __package__
_REPLACEMENTS = {
    f"{parent}{module}": f"{_PACKAGE}.{home}"
    for parent in ("horovod.keras", "horovod.tensorflow.keras")
    for module, home in (("", "keras_names"), (".callbacks", "keras_callbacks"), (".elastic", "elastic"))
} | {f"{TENSORFLOW}.elastic": f"{_PACKAGE}.elastic"}
"""Modules with other content than Horovod's, and where it is."""


_replaced: dict[str, Any] = {}
"""Horovod's own functions that others stand in for."""


class _Current:
    """What the names work with: the gang of this process."""

    gang: "JoinedGang | None" = None
    backend = Backend.NONE
    trial: "TrainContext | None" = None


def prepare(*_: object) -> None:
    """Have later imports in this process give the names, and replace modules that are loaded. Call it once."""
    _hook().install()
    _replace_loaded()


def _replace_loaded() -> None:
    # A package comes before its modules, which are attributes of the one that replaces it.
    for name in sorted(_REPLACEMENTS):
        if sys.modules.pop(name, None) is not None:
            _put(name, importlib.import_module(name))
    if TENSORFLOW in sys.modules:
        _replace_names(sys.modules[TENSORFLOW])


@contextmanager
def installed() -> Iterator[None]:
    """Give the names within this context, as `prepare` does; Horovod's own modules are back after it."""
    horovod_modules = {name: sys.modules[name] for name in _REPLACEMENTS if name in sys.modules}
    try:
        with _hook().installed():
            _replace_loaded()
            yield
    finally:
        _Current.gang = _Current.trial = None
        for name in _REPLACEMENTS:
            sys.modules.pop(name, None)
        for name, module in sorted(horovod_modules.items()):
            _put(name, module)
        if TENSORFLOW in sys.modules:
            vars(sys.modules[TENSORFLOW]).update(_replaced)


def connect(gang: "JoinedGang", backend: Backend) -> None:
    """Have the names use this gang. Call it before the training function."""
    _Current.gang = gang
    _Current.backend = backend


def provide(trial: "TrainContext") -> None:
    """Have the names save and resume by `trial`, the context of this process. Call it before the training function."""
    _Current.trial = trial


def current_trial(name: str) -> "TrainContext":
    """The trial of this process, for the function `name` of Horovod.

    Raises SpecError outside of a training function.
    """
    if _Current.trial is None:
        raise SpecError(f"{name} was called outside of a training function, which alone can save and resume")
    return _Current.trial


def current_ring(name: str) -> "Ring":
    """The ring for the function `name` of Horovod. Its first use connects it, on all members, and blocks until they do.

    Raises SpecError outside of a training function, and in a gang of another backend; FormError.
    """
    return _current_gang(name).ring


def current_formation(name: str) -> "Formation":
    """Who is in the gang, for the function `name` of Horovod. Does not block. Raises as `current_ring`."""
    return _current_gang(name).read_rank()


def _current_gang(name: str) -> "JoinedGang":
    if _Current.gang is None:
        raise SpecError(
            f"{name} was called before this process has joined its gang: call it in the training function, and not "
            "where a module is imported"
        )
    if _Current.gang.formation.size > 1 and _Current.backend is not Backend.HOROVOD:
        raise SpecError(
            f"{name} needs a gang that is connected by Horovod, and this one has backend {_Current.backend.value!r}: "
            "pass backend='horovod' (--backend horovod)"
        )
    return _Current.gang


def _replace_names(module: ModuleType) -> None:
    names: dict[str, Any] = importlib.import_module(f"{_PACKAGE}.tensorflow_names").REPLACED
    _replaced.update((name, vars(module)[name]) for name in names if name in vars(module))
    vars(module).update(names)


def _put(name: str, module: ModuleType) -> None:
    """Make `module` what imports of `name` find, also as an attribute of its package."""
    sys.modules[name] = module
    parent, _, attribute = name.rpartition(".")
    if parent in sys.modules:
        setattr(sys.modules[parent], attribute, module)


def _hook() -> ImportHook:
    """A new one each time: a call within a member ends with the hook of the member still in its place."""
    return ImportHook(filled=dict.fromkeys(_REPLACEMENTS, _fill), around={TENSORFLOW: patching(_replace_names)})


def _fill(module: ModuleType) -> None:
    """Fill a module with the public names of the one that replaces it."""
    home = importlib.import_module(_REPLACEMENTS[module.__name__])
    vars(module).update({name: getattr(home, name) for name in home.__all__})
    vars(module).update({"__all__": home.__all__, "__doc__": home.__doc__, "__getattr__": home.__getattr__})
