"""Finds what a training function calls, in its module and in the user's modules that it imports, without running it."""

import ast
import inspect
import os
import re
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import CellType, CodeType, ModuleType

STRATEGY = "strategy"
"""The method of the context that creates a strategy of TensorFlow."""
OWN_STRATEGIES = ("MultiWorkerMirroredStrategy", "ParameterServerStrategy")
"""The strategies of TensorFlow that connect the members of a gang by TF_CONFIG."""
RUNS_EVERYWHERE = "runs_on_every_member"
"""An attribute of a function that every member of its gang calls, its parameter servers too."""

_SERVER = "Server"
_TFOS_SERVER = "start_cluster_server"  # of TensorFlowOnSpark
_SERVER_HOMES = {"train", "distribute", "tensorflow"}
_MAKES = re.compile(rf"\b(?:{'|'.join(OWN_STRATEGIES)})\s*\(")
_SERVES = re.compile(r"\b(?:(?:train|distribute)\s*\.\s*Server|start_cluster_server)\s*\(")
_INSTALLED = ("site-packages", "dist-packages")
_PYTHONS = (sysconfig.get_path("stdlib"), str(Path(__file__).parents[1]))
"""Folders with modules that are not the user's: Python's own, and this package."""


def names(function: object, name: str) -> bool:
    """Whether the code of `function`, or of functions of its module that it refers to, contains `name`."""
    return any(name in code.co_names for code in _codes(function, set()))


def makes_strategy(function: object) -> bool:
    """Whether `function` gets a strategy from its context, or makes one that connects its gang, also in a helper.

    Blocks on the local disk.
    """
    if names(function, STRATEGY):
        return True
    helpers: set[Path] = set()
    if any({*code.co_names} & {*OWN_STRATEGIES} for code in _codes(function, helpers)):
        return True
    return any(_MAKES.search(text) for text in _texts(helpers))


def runs_everywhere(function: object) -> bool:
    """Whether `function` starts TensorFlow's server by itself, so that every member of its gang calls it.

    That is, its code, or a helper, calls `tf.train.Server` or `tf.distribute.Server`; or it has the attribute
    `RUNS_EVERYWHERE`. Blocks on the local disk.
    """
    if getattr(function, RUNS_EVERYWHERE, False):
        return True
    helpers: set[Path] = set()
    if any(_starts_server({*code.co_names}) for code in _codes(function, helpers)):
        return True
    return any(_SERVES.search(text) for text in _texts(helpers))


def codes(function: object) -> Iterator[tuple[CodeType, Mapping[str, object]]]:
    """The code of `function`, and then of the functions that it refers to, each with the global names that it reads."""
    yield from _known_codes(function, set())


def _starts_server(names: set[str]) -> bool:
    return _TFOS_SERVER in names or (_SERVER in names and bool(_SERVER_HOMES & names))


def _codes(function: object, helpers: set[Path]) -> Iterator[CodeType]:
    return (code for code, _ in _known_codes(function, helpers))


def _known_codes(function: object, helpers: set[Path]) -> Iterator[tuple[CodeType, Mapping[str, object]]]:
    """The code of `function`, and of what it refers to in modules that are loaded, with the global names of each.

    Adds to `helpers` the sources of the user's modules that it imports only when it runs.
    """
    seen_ids: set[int] = set()
    waiting: list[object] = [function]
    while waiting:
        target = inspect.unwrap(waiting.pop())  # type: ignore[arg-type]
        code = getattr(target, "__code__", target)
        if not isinstance(code, CodeType) or id(code) in seen_ids:
            continue
        seen_ids.add(id(code))
        namespace = getattr(target, "__globals__", {})
        yield code, namespace
        waiting += [const for const in code.co_consts if isinstance(const, CodeType)]
        # A decorated function is in the closure of what its decorator returns: it may be the one that starts a server.
        waiting += [
            inner for inner in map(_content, getattr(target, "__closure__", None) or ()) if inspect.isfunction(inner)
        ]
        for name in code.co_names:
            waiting += _referred(namespace.get(name), code.co_names)
        helpers.update(_imported([module for module in code.co_names if module not in namespace]))


def _content(cell: CellType) -> object:
    """What a closure has in a cell; None where it is empty."""
    try:
        return cell.cell_contents
    except ValueError:
        return None


def _referred(value: object, names: Iterable[str]) -> list[object]:
    """The functions that a global variable stands for: itself, methods of a class, or `names` of a module."""
    if isinstance(value, ModuleType) and _is_users(getattr(value, "__file__", None)):
        members = [vars(value).get(name) for name in names]
        return [callee for member in members if not isinstance(member, ModuleType) for callee in _referred(member, ())]
    if inspect.isclass(value) and _is_users(getattr(sys.modules.get(value.__module__), "__file__", None)):
        return [method for method in vars(value).values() if inspect.isfunction(method)]
    return [value] if inspect.isfunction(value) else []


def _imported(names: Iterable[str]) -> Iterator[Path]:
    """The sources of the user's modules among the names of some code, which contain what it imports."""
    dotted = {*names}
    for name in sorted(filter(_is_found, dotted)):  # each pair of names would take long
        for module in (name, *(f"{name}.{child}" for child in dotted)):
            if (file := _source(module)) is not None:
                yield file


def _is_found(name: str) -> bool:
    """Whether the folders of imports have a module or a package that a name, perhaps a dotted one, starts with."""
    first = name.partition(".")[0]
    places = (os.path.join(folder, first) for folder in sys.path)
    return any(os.path.isdir(place) or os.path.isfile(f"{place}.py") for place in places)


def _source(module: str) -> Path | None:
    """The file of one of the user's modules, in the folders of imports. Imports nothing."""
    parts = module.split(".")
    if not all(part.isidentifier() for part in parts) or parts[0] in sys.stdlib_module_names:
        return None
    candidates = (_source_in(Path(folder), parts) for folder in sys.path)
    return next(filter(None, candidates), None)


def _source_in(folder: Path, parts: list[str]) -> Path | None:
    place = folder.joinpath(*parts)
    files = (place.with_suffix(".py"), place / "__init__.py")
    return next((file for file in files if _is_users(str(file)) and file.is_file()), None)


def _is_users(file: str | None) -> bool:
    return file is not None and not file.startswith(_PYTHONS) and not any(part in file for part in _INSTALLED)


def _texts(files: Iterable[Path]) -> Iterator[str]:
    """The texts of sources, and of the user's modules that they import in turn."""
    waiting = [*files]
    seen_files = set[Path]()
    while waiting:
        file = waiting.pop()
        if file in seen_files:
            continue
        seen_files.add(file)
        text = file.read_text(errors="replace")
        yield text
        waiting += _imports_of(file, text)


def _imports_of(file: Path, text: str) -> Iterator[Path]:
    """The sources of the user's modules that the source `file` imports anywhere."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):  # the import has a better error
        return
    for node in ast.walk(tree):
        names = []
        folder = None
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [".".join(filter(None, (node.module, *tail))) for tail in ((), *((a.name,) for a in node.names))]
            folder = file.parents[node.level - 1] if 0 < node.level <= len(file.parents) else None
        for name in filter(None, names):
            if (source := _source(name) if folder is None else _source_in(folder, name.split("."))) is not None:
                yield source
