"""What a pickled function calls when it is loaded: it gets the names of the user's script that have come along.

A member has them in a `__main__` of its own, so that code there finds what it finds in the script: pickles of its
classes, processes that call its functions. In any other process they are a namespace beside `__main__`.
"""

import functools
import sys
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import CodeType, ModuleType
from typing import Any

import cloudpickle

from sparktrain.protocol.settings import script_settings

FILE_KEY = "SPARKTRAIN_SCRIPT"
"""Environment variable of a member: the file of the function, from which child processes get its script."""
SPAWNED = "sparktrain.training.spawned_script"
"""The module that such a child process runs in place of the script."""

_notice: Callable[[str], None] = functools.partial(print, file=sys.stderr)
"""Prints what continues in another way than the user asked."""
_names: dict[str, Any] | None = None
"""The names of this member's script; None in a process that is none."""
registered: dict[str, dict[str, Any]] = {}
"""What the user's code has registered with Keras, by library and name: objects, or pickles of those that the function
does not reach."""

configuration: dict[str, dict[str, Any]] = {}
"""The settings of the script, by library: see `script_settings`."""


def enter(spawns: bool, notice: Callable[[str], None]) -> None:
    """Give this process a `__main__` for the script of one function. Call it once, before that is loaded.

    `notice` reports what the script has set and this process cannot have.

    With `spawns`, Python runs `SPAWNED` in processes that `multiprocessing` starts from here.
    """
    # Functions of a script travel by value, so a member found none of its classes in `__main__`: pickle, joblib and
    # multiprocessing failed.
    global _notice
    _notice = notice
    script = _Script("__main__")
    if spawns:
        script.__spec__ = _ScriptSpec(SPAWNED, None)
    sys.modules["__main__"] = script
    adopt(vars(script))


def adopt(names: dict[str, Any]) -> None:
    """Let the names of the script be in `names`, a module's own."""
    global _names
    _names = names


def script_names(namespace: dict[str, Any]) -> dict[str, Any]:
    """The namespace of the script's functions, with what Python itself has set there."""
    if _names is None:
        return dict(namespace)
    _names.update({name: value for name, value in namespace.items() if name != "__name__"})
    spec = _names.get("__spec__")
    if isinstance(spec, _ScriptSpec):
        spec.package = namespace.get("__package__")
    if namespace["__name__"] != "__main__":  # the driver is a child process of multiprocessing
        sys.modules.setdefault(namespace["__name__"], sys.modules["__main__"])
    return _names


def sent(function: Any, *_: object) -> Any:
    """The function. The other parts of its pickle have done their work when they were loaded."""
    return function


def configured(_: object, function: Any, *__: object) -> Any:
    """As `sent`, for a script that has set up libraries: the first part of its pickle has done that."""
    return function


def configure(settings: dict[str, dict[str, Any]]) -> None:
    """Set up the libraries of this process as in the script, before what follows in the pickle is loaded."""
    if _names is not None:
        configuration.update(settings)
        script_settings.apply(settings, _refused)


def _refused(setting: str, error: Exception) -> None:
    _notice(f"the program has set {setting}, which cannot be set here: {type(error).__name__}: {error}")


def bind(names: dict[str, Any], *_: object) -> None:
    """Let the script have `names`, besides those that its functions read."""
    if _names is not None:
        _names.update(names)


def register(objects: dict[str, dict[str, Any]]) -> None:
    """Note what the user's code has registered with Keras, by library and name."""
    if _names is not None:
        registered.update(objects)


def library_object(*homes: tuple[str, str]) -> Any:
    """What a module of a library holds under a name, by the first of these that has it in this process.

    Raises ImportError where none has: the library has set it in the driver alone.
    """
    for module, name in homes:
        with suppress(ImportError, AttributeError):
            if (held := getattr(import_module(module), name)) is not None:
                return held
    place = ".".join(homes[0])
    raise ImportError(
        f"the function uses {place} of the driver, which a new process does not have: make it in the function"
    )


def cached_function(function: Callable[..., Any], options: dict[str, Any], attributes: dict[str, Any]) -> Any:
    """A function of `functools.lru_cache` or `functools.cache`, with nothing in its cache."""
    wrapper = functools.lru_cache(**options)(function)
    vars(wrapper).update(attributes)
    return wrapper


def cached_property(function: Callable[..., Any], name: str | None) -> Any:
    """A `functools.cached_property` under the name that its class gives it."""
    descriptor = functools.cached_property(function)
    descriptor.attrname = name
    return descriptor


def code_of_file(file: str, kind: Callable[..., CodeType], arguments: tuple[Any, ...]) -> CodeType:
    """The code object that `kind` makes of `arguments`, with the name of its file."""
    return kind(*arguments).replace(co_filename=file)


def of_module(definition: Any, module: str) -> Any:
    """An object of `typing` that knows where it was defined."""
    definition.__module__ = module
    return definition


def _reduced_code(code: CodeType) -> tuple[Any, ...]:
    return code_of_file, (code.co_filename, *cloudpickle.Pickler.dispatch_table[CodeType](code))


class CodePickler(cloudpickle.Pickler):  # type: ignore[misc] # cloudpickle has no types
    """As cloudpickle's own, but code keeps the name of its file: cloudpickle 3.1.3 writes a constant instead.

    AutoGraph finds sources by it, and tracebacks their lines.
    """

    dispatch_table = cloudpickle.Pickler.dispatch_table.new_child({CodeType: _reduced_code})


class _Script(ModuleType):
    """The `__main__` of a trial."""

    def __repr__(self) -> str:
        return f"<module '__main__' from {vars(self).get('__file__', 'a notebook')!r}>"

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(
            f"module '__main__' has no attribute {name!r}: of the script, a trial has what the training function uses; "
            f"name {name} in the function, or move it to a module beside the script"
        )


class _ScriptSpec(ModuleSpec):
    """Names what child processes run, and no other package than the script has: imports compare the two."""

    package: str | None = None

    @property
    def parent(self) -> str | None:
        """See base class."""
        return self.package
