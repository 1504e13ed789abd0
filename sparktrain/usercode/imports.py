"""Finds what the user's code imports, without importing anything, and where its sources are.

A module is *local* when its source lies outside of Python's own folders and of installed packages: it is the user's,
and executors cannot be expected to have it.
"""

import dis
import functools
import importlib.machinery
import itertools
import os
import re
import sys
import sysconfig
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

from sparktrain.usercode.environment_writes import written_by
from sparktrain.usercode.import_cache import shared
from sparktrain.usercode.module_aliases import is_alias
from sparktrain.usercode.source_imports import IMPORT_MODULE, Imports

NEVER_SENT = frozenset({"sparktrain", "pyspark", "py4j"})
"""Modules that executors have themselves."""
MAIN = frozenset({"__main__", "__mp_main__"})
"""Names of the script's module: the second in a child process of multiprocessing."""
FILE_NAME = re.compile(r"[\w-]+")
"""By such names Python finds a file; those with a dash are names of scripts, which no statement imports."""
NEVER_LOCAL = MAIN | NEVER_SENT | sys.stdlib_module_names
CACHED = functools._lru_cache_wrapper
"""What `functools.lru_cache` and `functools.cache` make of a function."""
SKIPPED_FOLDERS = frozenset({"__pycache__", "node_modules"})

MOST_ITEMS = 1000
"""So many values in the containers that code reads are looked at for names of modules."""

_INSTALLED_PARTS = frozenset({"site-packages", "dist-packages"})


@dataclass(frozen=True)
class Use:
    """One variable outside of a function that its code reads."""

    name: str
    line: int
    inside: str
    """Name of the function or nested function that reads it."""


def is_local(path: str) -> bool:
    """Whether a module's file or folder belongs to the user."""
    if not Path(path).exists():  # built in, frozen, or within a zip
        return False
    real = Path(path).resolve()
    return not _INSTALLED_PARTS & set(real.parts) and not any(real.is_relative_to(home) for home in _homes())


@functools.cache
def _homes() -> frozenset[Path]:
    """The folders of Python's own modules and of installed packages."""
    names = ("stdlib", "platstdlib", "purelib", "platlib")
    return frozenset(Path(sysconfig.get_path(name)).resolve() for name in names)


def find_local(name: str) -> Path | None:
    """The file or package folder of the local top-level module `name`; None for any other. Imports nothing."""
    if name in NEVER_LOCAL or is_alias(name) or not FILE_NAME.fullmatch(name):
        return None
    loaded = sys.modules.get(name)
    spec = getattr(loaded, "__spec__", None) or importlib.machinery.PathFinder.find_spec(name)
    if spec is None:
        return None
    folders = list(spec.submodule_search_locations or ())
    place = folders[0] if folders else spec.origin
    return Path(place) if place and is_local(place) else None


class Sources:
    """The local modules as one call of the user sees them: each is looked up once, and each file is read once.

    A call asks for the same modules several times; the next call, which may find edited files, has sources of its own.
    For one thread.
    """

    def __init__(self) -> None:
        self._places: dict[str, Path | None] = {}
        self._files: dict[str, list[Path]] = {}
        self._imports: dict[Path, Imports] = {}
        self._reached: dict[frozenset[Path], Imports] = {}

    def place_of(self, name: str) -> Path | None:
        """See `find_local`."""
        if name not in self._places:
            self._places[name] = find_local(name) if name in sys.modules or name in self._names_on_path else None
        return self._places[name]

    @functools.cached_property
    def _names_on_path(self) -> frozenset[str]:
        """What the folders of the path have, without suffixes."""
        # Thousands of texts in code may name a module, and Python looks for each in all folders: 75 us a text.
        names: set[str] = set()
        for folder in sys.path:
            with suppress(OSError):  # a zip file, or a folder that is not there
                names.update(entry.partition(".")[0] for entry in os.listdir(folder or "."))
        return frozenset(names)

    def local_names(self, modules: Iterable[str]) -> list[str]:
        """The local top-level modules among dotted names, sorted."""
        tops = {name.partition(".")[0] for name in modules}
        return sorted(name for name in tops if self.place_of(name) is not None)

    def places_of(self, modules: Iterable[str]) -> list[Path]:
        """The files and package folders of the local top-level modules among dotted names."""
        return [place for name in self.local_names(modules) if (place := self.place_of(name))]

    def files_of(self, name: str) -> list[Path]:
        """The Python files of the local top-level module `name`: itself, or all in a package. None for any other."""
        if name not in self._files:
            place = self.place_of(name)
            files = [] if place is None else [place] if place.is_file() else files_below(place)
            self._files[name] = [path for path in files if path.suffix == ".py"]
        return self._files[name]

    def imports_of_file(self, path: Path) -> Imports:
        """See `imports_of_file`."""
        if path not in self._imports:
            self._imports[path] = imports_of_file(path)
        return self._imports[path]

    def imports_of_files(self, paths: Iterable[Path]) -> Imports:
        """The imports of the sources, and of the local modules that they import, recursively. Read-only."""
        start = frozenset(paths)
        if start not in self._reached:
            self._reached[start] = self._follow(start)
            shared().save()
        return self._reached[start]

    def imports_of_modules(self, modules: Iterable[str]) -> Imports:
        """The same, of the local modules among dotted names."""
        return self.imports_of_files(path for name in self.local_names(modules) for path in self.files_of(name))

    def _follow(self, start: frozenset[Path]) -> Imports:
        imports = Imports()
        files: set[Path] = set()
        tops: set[str] = set()
        todo = list(start)
        while todo:
            path = todo.pop()
            if path in files:
                continue
            files.add(path)
            file_imports = self.imports_of_file(path)
            imports.modules |= file_imports.modules
            imports.texts |= file_imports.texts
            imports.dotted |= file_imports.dotted
            imports.variables |= file_imports.variables
            new_tops = {name.partition(".")[0] for name in file_imports.modules} - tops
            tops |= new_tops
            todo.extend(source for name in new_tops for source in self.files_of(name))
        return imports


def files_below(folder: Path) -> Iterator[Path]:
    """All files below `folder`, sorted, without hidden files, caches and virtual environments."""
    try:
        with os.scandir(folder) as listing:
            entries = sorted(listing, key=lambda entry: entry.name)
    except OSError:  # what cannot be read here cannot be imported here either
        return
    for entry in entries:
        if entry.name.startswith(".") or entry.name in SKIPPED_FOLDERS:
            continue
        if entry.is_dir(follow_symlinks=False):  # what scandir knows already costs no further call
            if not os.path.exists(os.path.join(entry, "pyvenv.cfg")):
                yield from files_below(Path(entry))
        elif entry.is_file(follow_symlinks=False) or os.path.isfile(entry):
            yield Path(entry)


def imports_of_file(path: Path) -> Imports:
    """The imports anywhere in the source at `path`; empty when it is not valid Python. Read-only."""
    try:
        source = path.read_bytes()
    except OSError:  # the import on the executor has a better error
        return Imports()
    return shared().imports_of(source)


def imports_of_function(function: Callable[..., Any]) -> Imports:
    """The imports of a function: in its code, by the globals that it reads, and in the functions that it calls.

    Without those of the modules that it imports.
    """
    imports = Imports()
    visited: dict[int, object] = {}  # holds the objects too, because Python reuses the id of a deleted one
    todo: list[object] = [function]
    while todo:
        value = todo.pop()
        if id(value) in visited:
            continue
        visited[id(value)] = value
        imports.modules.update(_module_of(value))
        _add_texts(value, imports)
        plain_function = plain_function_of(value)
        if plain_function is not None and is_users(plain_function):
            todo.extend(_reads(plain_function, imports))
        elif isinstance(value, type) and is_users(value):
            todo.extend(vars(value).values())
        elif isinstance(value, property):
            todo.extend((value.fget, value.fset))
    return imports


def plain_function_of(value: object) -> FunctionType | None:
    """The function beneath partials, caches, methods and objects that can be called; None where none is Python's."""
    while True:
        if isinstance(value, functools.partial):
            value = value.func
        elif isinstance(value, CACHED):
            value = value.__wrapped__
        elif isinstance(value, MethodType | staticmethod | classmethod):
            value = value.__func__
        elif isinstance(value, FunctionType):
            return value
        else:
            called = None if isinstance(value, type) else vars(type(value)).get("__call__")
            if not isinstance(called, FunctionType):
                return None
            value = called


def goes_by_value(module: object) -> bool:
    """Whether `cloudpickle.register_pickle_by_value` has this module or a package above it: executors need no file."""
    cloudpickle = sys.modules.get("cloudpickle")  # a process that has not imported it has registered nothing
    names = cloudpickle.list_registry_pickle_by_value() if cloudpickle is not None else ()
    return any(f"{module}.".startswith(f"{name}.") for name in names)


def is_users(value: FunctionType | type) -> bool:
    """Whether a function or class is the user's: from a script, notebook or local module, or created at runtime."""
    module = value.__module__ or "__main__"
    top = module.partition(".")[0]
    return top in MAIN or module not in sys.modules or find_local(top) is not None


def uses_of_globals(code: CodeType) -> Iterator[Use]:
    """The global variables that `code` and the functions within it read."""
    line, stored = code.co_firstlineno, set[str]()
    for instruction in dis.get_instructions(code):
        line = instruction.positions.lineno or line if instruction.positions else line
        if instruction.opname == "STORE_NAME":  # in the body of a class
            stored.add(instruction.argval)
        if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME") and instruction.argval not in stored:
            yield Use(str(instruction.argval), line, code.co_name)
    for nested in _nested(code):
        yield from uses_of_globals(nested)


def _add_texts(value: object, imports: Imports) -> None:
    """Add the texts in a value that the code reads: in containers, which may be large and contain themselves."""
    todo = [value]
    looked = 0
    while todo and looked < MOST_ITEMS:
        looked += 1
        value = todo.pop()
        if isinstance(value, str):
            imports.add_text(value)
        elif isinstance(value, dict):
            todo += itertools.islice(value.values(), MOST_ITEMS)
        elif isinstance(value, list | tuple | frozenset):
            todo += itertools.islice(value, MOST_ITEMS)


def _module_of(value: object) -> list[str]:
    if isinstance(value, ModuleType):
        return [value.__name__]
    module = (
        value.__module__ if isinstance(value, FunctionType | BuiltinFunctionType | type) else type(value).__module__
    )
    return [] if module in (None, "__main__", "builtins") or goes_by_value(module) else [module]


def _reads(function: FunctionType, imports: Imports) -> Iterator[object]:
    """The values that `function` reads from outside; adds the imports and text constants of its code to `imports`."""
    _add_code(function.__code__, function.__globals__, imports)
    for use in uses_of_globals(function.__code__):
        if use.name in function.__globals__:
            yield function.__globals__[use.name]
        elif use.name == "__import__":
            imports.modules.add(IMPORT_MODULE)
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:  # a variable that is not assigned yet
            continue
    yield from function.__defaults__ or ()
    yield from (function.__kwdefaults__ or {}).values()


def _add_code(code: CodeType, names: Mapping[str, object], imports: Imports) -> None:
    """Add what `code` imports, and the parts of modules that it uses, such as `stats` of a global `scipy`."""
    _add_texts(code.co_consts, imports)
    imports.variables |= written_by(code)
    bound = {name: value.__name__ for name, value in names.items() if isinstance(value, ModuleType)}
    instructions = list(dis.get_instructions(code))
    for index, instruction in enumerate(instructions):
        # Before an import Python loads two constants: its level, and the names that it takes.
        context = instructions[max(0, index - 2) : index]
        if instruction.opname == "IMPORT_NAME":
            module = _absolute(str(instruction.argval), context[0].argval, names)
            chosen = context[1].argval
            # `from a import b` may import the module a.b, or take a name of a: the last part may be either.
            imports.modules.update([f"{module}.{name}" for name in chosen] if chosen else [module])
        elif instruction.opname.startswith("STORE_") and context and context[-1].opname == "IMPORT_NAME":
            bound[_variables(instruction)[0]] = str(context[-1].argval).partition(".")[0]
        elif instruction.opname in ("LOAD_ATTR", "LOAD_METHOD") and context and _variables(context[-1])[-1] in bound:
            imports.modules.add(f"{bound[_variables(context[-1])[-1]]}.{instruction.argval}")
    for nested in _nested(code):
        _add_code(nested, names, imports)


def _absolute(module: str, level: int, names: Mapping[str, object]) -> str:
    """The absolute name of a relative import in code with the globals `names`."""
    if not level:
        return module
    package = str(names.get("__package__") or "").split(".")
    return ".".join([*package[: len(package) - level + 1], *([module] if module else [])])


def _variables(instruction: dis.Instruction) -> tuple[str, ...]:
    """The variables that an instruction stores or loads: two in STORE_FAST_LOAD_FAST, since Python 3.13."""
    value = instruction.argval
    return tuple(map(str, value)) if isinstance(value, tuple) and value else (str(value),)


def _nested(code: CodeType) -> Iterator[CodeType]:
    return (constant for constant in code.co_consts if isinstance(constant, CodeType))
