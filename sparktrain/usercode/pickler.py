"""Pickles the user's function by value, with what cloudpickle leaves in the script, without what is the driver's.

In comes a function of a script, a notebook or a module. `reducer_override` decides for each object: what a library
holds once in a process goes by its name there, code of the script goes by value, and everything else as it reduces
itself. What goes out is one pickle that calls `sent_script` in the member: with the function, with what the script
calls the functions and classes that were pickled with it, and with what they are in Keras's registry.

What must hold: the pickle loads in a process without the script. So an object that would be found only by its name in
`__main__` is refused here, in the driver, and not in each trial. The limit is one of size: `Sink` ends the pickling
when it is exceeded.
"""

import functools
import sys
import weakref
from collections.abc import Callable, Iterator
from io import BytesIO
from types import CellType, FunctionType, ModuleType
from typing import Any, NewType, ParamSpec, TypeVarTuple

import cloudpickle
from cloudpickle import cloudpickle as internals

from sparktrain.protocol import sent_script
from sparktrain.usercode.imports import CACHED, MAIN, goes_by_value, uses_of_globals
from sparktrain.usercode.keras_objects import check_known, of_keras
from sparktrain.usercode.library_objects import Home, LibraryObjects

_PYTHONS_OWN = ("__name__", "__package__", "__path__", "__file__")


class TooLargeError(Exception):
    """The bytes exceeded a limit."""


class Sink(BytesIO):
    """Accepts at most `limit` bytes; keeps them or only counts."""

    def __init__(self, limit: int, keep: bool = False) -> None:
        super().__init__()
        self.size = 0
        self._limit = limit
        self._keep = keep

    def write(self, data: Any) -> int:
        """See base class. Raises TooLargeError."""
        size = memoryview(data).nbytes
        self.size += size
        if self.size > self._limit:
            raise TooLargeError
        return super().write(data) if self._keep else size


class ScriptPickler(sent_script.CodePickler):
    """Pickles a function so that `sent_script` gives the script's names to the process that loads it.

    What a library holds once in a process goes by its name there. Pickling raises CustomKerasError, TooLargeError, and
    what objects of the user raise.
    """

    def __init__(self, sink: Sink, library: LibraryObjects | None = None) -> None:
        super().__init__(sink, protocol=cloudpickle.DEFAULT_PROTOCOL)
        self._library = library or LibraryObjects()
        self._script: dict[str, Any] | None = None
        """The globals of the script, once a function of it was pickled."""
        self._by_value: dict[int, Any] = {}
        """Functions and classes that were pickled by value."""
        self.named: set[str | None] = set()
        """Modules that the pickle needs: those of objects that go by their names, and those that go as modules."""

    def dump_function(
        self, function: Any, registered: Callable[["ScriptPickler"], dict[str, Any]], settings: dict[str, Any]
    ) -> None:
        """Pickle a function, what the script calls its parts, and what Keras knows of them by `registered`.

        Before these, the `settings` of libraries that the script has made: parts may depend on them.
        """
        parts = function, self._names(set()), _registering(self, registered)
        configuring = _Call(lambda: (sent_script.configure, (settings,)))
        self.dump(
            _Call(lambda: (sent_script.configured, (configuring, *parts)) if settings else (sent_script.sent, parts))
        )

    def dump_value(self, value: object) -> None:
        """Pickle a value that the function captures."""
        self.dump(self._named(value))

    def travels(self, value: object) -> bool:
        """Whether `value`, a function or class, was pickled by value."""
        return id(value) in self._by_value

    def reducer_override(self, value: Any) -> Any:
        """See base class."""
        kind = type(value)
        if kind is FunctionType or issubclass(kind, type):
            return self._reduced_code(value)
        if kind is _Call:
            return value.reduced()
        if homes := self._library.homes_of(value):
            return sent_script.library_object, tuple(homes)
        if kind is CellType:
            return self._reduced_cell(value)
        if isinstance(value, ModuleType):  # also of a class of its own, as `torch.backends.cudnn`
            return self._reduced_module(value)
        if kind in self.dispatch_table:
            return NotImplemented
        if (special := _SPECIAL.get(kind)) is not None and (reduced := special(value)) is not None:
            if kind is CACHED:
                self._by_value[id(value)] = value
            return reduced
        reduced = value.__reduce_ex__(cloudpickle.DEFAULT_PROTOCOL)
        if isinstance(reduced, str):
            self.named.add(_module_of(value))
        if isinstance(reduced, str) and _module_of(value) in MAIN:
            raise TypeError(f"{reduced!r} is pickled by its name in the script, which executors do not have")
        if of_keras(kind):
            check_known(value, reduced)
        return reduced

    def _reduced_module(self, module: ModuleType) -> Any:
        reduced = internals._module_reduce(module)
        if reduced[0] is internals.subimport:
            self.named.add(module.__name__)
        return reduced

    def _reduced_code(self, value: Any) -> Any:
        """A function or class."""
        reduced = super().reducer_override(value)
        # The script's name in a child of multiprocessing, which cloudpickle takes for a module that can be imported.
        if reduced is NotImplemented and _module_of(value) == "__mp_main__":
            by_value = self._dynamic_function_reduce if type(value) is FunctionType else internals._dynamic_class_reduce
            reduced = by_value(value)
        if reduced is NotImplemented:
            self.named.add(_module_of(value))
            return reduced
        self._by_value[id(value)] = value
        if reduced[0] is internals._make_skeleton_class:
            kind, name, bases, body, *extras = reduced[1]
            arguments = kind, name, bases, body | {"__qualname__": value.__qualname__}, *extras
            reduced = (reduced[0], arguments, *reduced[2:])
        return reduced

    def _dynamic_function_reduce(self, function: FunctionType) -> Any:
        names = function.__globals__
        if self._script is None and names.get("__name__") in MAIN:
            self._script = names
            python_names = {key: names[key] for key in _PYTHONS_OWN if key in names}
            # cloudpickle gives one namespace to all functions with these globals: that one becomes the member's
            # `__main__`, where pickle, joblib and multiprocessing look for the script's classes.
            self.globals_ref[id(names)] = _ScriptNames(python_names)
        reduced = super()._dynamic_function_reduce(function)
        _, slots = reduced[2]
        # cloudpickle overlooks what the body of a class reads, such as an annotation or a default value.
        read = dict.fromkeys(use.name for use in uses_of_globals(function.__code__) if use.name not in _PYTHONS_OWN)
        slots["__globals__"] |= {name: names[name] for name in read if name in names}
        for key in ("__globals__", "__kwdefaults__"):
            slots[key] = slots[key] and {name: self._named(value) for name, value in slots[key].items()}
        slots["__defaults__"] = slots["__defaults__"] and tuple(map(self._named, slots["__defaults__"]))
        return reduced

    def _reduced_cell(self, cell: CellType) -> Any:
        try:
            homes = self._library.homes_of_container(cell.cell_contents)
        except ValueError:  # it is empty
            return NotImplemented
        return (internals._make_cell, (_reference(homes),)) if homes else NotImplemented

    def _named(self, value: Any) -> Any:
        """`value`, or what is pickled as the name of a container that Python holds: reducers do not see those."""
        homes = self._library.homes_of_container(value)
        return _reference(homes) if homes else value

    def _names(self, done: set[str]) -> "_Call":
        """When it is pickled: what the script calls its functions and classes that were pickled before, but for `done`.

        Then the same once more, as these names may have brought others.
        """

        def reduced() -> tuple[Any, ...]:
            variables = {name: held for name, held in self._held() if name not in done}
            next_calls = (self._names(done | set(variables)),) if variables else ()
            return sent_script.bind, (variables, *next_calls)

        return _Call(reduced)

    def _held(self) -> Iterator[tuple[str, Any]]:
        script = self._script if self._script is not None else vars(sys.modules["__main__"])
        for value in list(self._by_value.values()):
            top, _, below = value.__qualname__.partition(".")
            if _module_of(value) not in MAIN or top not in script:
                continue
            held = script[top]
            for name in filter(None, below.split(".")):
                held = getattr(held, name, None)
            if held is value and (script[top] is value or can_be_pickled(script[top], self._library)):
                yield top, script[top]


class _Call:
    """Pickled as a call that is known once the parts before it were pickled."""

    def __init__(self, reduced: Callable[[], tuple[Any, ...]]) -> None:
        self.reduced = reduced


class _ScriptNames(dict[str, Any]):
    """Stands for the globals of the script, which are one namespace for all its functions."""

    def __reduce__(self) -> tuple[Any, ...]:
        return sent_script.script_names, (dict(self),)


def _reference(homes: list[Home]) -> _Call:
    return _Call(lambda: (sent_script.library_object, tuple(homes)))


def _registering(pickler: ScriptPickler, registered: Callable[[ScriptPickler], dict[str, Any]]) -> _Call:
    return _Call(lambda: (sent_script.register, (registered(pickler),)))


def can_be_pickled(value: object, library: LibraryObjects | None = None) -> bool:
    """Whether `value` can be sent with a function, and is not large."""
    try:
        ScriptPickler(Sink(_MOST_BESIDE), library).dump(value)
    except Exception:  # whatever the value's own __reduce__ raises
        return False
    return True


def _module_of(value: object) -> str | None:
    return getattr(value, "__module__", None)


def _cached_function(value: Any) -> tuple[Any, ...] | None:
    """A cached function that cannot be imported, by the function below it: it pickles itself by its name."""
    if _is_importable(value):
        return None
    return sent_script.cached_function, (value.__wrapped__, value.cache_parameters(), _attributes(value))


def _attributes(value: Any) -> dict[str, Any]:
    return {name: held for name, held in vars(value).items() if name != "__wrapped__"}


def _new_type(value: Any) -> tuple[Any, ...] | None:
    if _is_importable(value):
        return None
    return sent_script.of_module, (_Call(lambda: (NewType, (value.__name__, value.__supertype__))), value.__module__)


def _param_spec(value: Any) -> tuple[Any, ...] | None:
    if _is_importable(value):
        return None
    return sent_script.of_module, (_Call(lambda: (type(value), (value.__name__,))), value.__module__)


def _is_importable(value: Any) -> bool:
    """Whether an object that is pickled by its name is found under that, in a module that executors can have."""
    if (module := _module_of(value)) in MAIN or goes_by_value(module):
        return False
    held: Any = sys.modules.get(str(module))
    for name in getattr(value, "__qualname__", value.__name__).split("."):
        held = getattr(held, name, None)
    return held is value


def _cached_property(value: Any) -> tuple[Any, ...]:
    return sent_script.cached_property, (value.func, value.attrname)


def _weak_dict(value: Any) -> tuple[Any, ...]:
    return type(value), (dict(value),)


_MOST_BESIDE = 2**24
"""Bytes of a class of the script that travels because of one within it."""
_SPECIAL: dict[type, Callable[[Any], tuple[Any, ...] | None]] = {
    CACHED: _cached_function,
    functools.cached_property: _cached_property,
    weakref.WeakKeyDictionary: _weak_dict,
    weakref.WeakValueDictionary: _weak_dict,
    NewType: _new_type,
    ParamSpec: _param_spec,
    TypeVarTuple: _param_spec,
}
"""What cloudpickle cannot pickle, or pickles by a name of the script."""
