"""What a program has assigned to modules and their objects, such as `settings.lr = 5`, which a trial imports afresh.

The source of the script, of cells, and of the user's modules that are loaded shows the places: a name that an import
binds, and attributes and items below it. Their values are those of this process now.
"""

import ast
import itertools
import linecache
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib.util import resolve_name
from types import ModuleType
from typing import Any, NamedTuple

from sparktrain.base.ipython_shell import ipython_shell
from sparktrain.protocol.settings.held_state import Assigned, state_of
from sparktrain.protocol.settings.script_settings import LIBRARIES, Values
from sparktrain.usercode.imports import MAIN, NEVER_SENT, Sources

MOST_CHARS = 2**20
"""Of the user's modules together: what is beyond is not looked at."""
# From a line's end on, which is three times as fast as from its start.
_IMPORTED = re.compile(r"\n[ \t]*(?:from[ \t]+\S+[ \t]+)?import[ \t]+(\([^)]*\)|.+)")
_ASSIGNED = re.compile(r"\n[ \t]*(?:setattr\()?([A-Za-z_]\w*)(?:[.,]|\[[^\]\n]*\][^\n]*=)")
_NO_NAMES = str.maketrans(",.()\\#;", "       ")
_CONTAINERS = (dict, list, set)
_MUTATING = frozenset(("add", "append", "clear", "discard", "extend", "insert", "pop", "popitem", "remove", "reverse",
    "setdefault", "sort", "update"))  # fmt: skip

Steps = tuple[tuple[bool, Any], ...]


class Place(NamedTuple):
    """A place below a module, as `Assigned` has it."""

    module: str
    steps: Steps


def assigned(function_name: str, sources: Sources) -> dict[str, Values]:
    """The values by module and place, but for what the function of this name, which trains, assigns itself.

    Reads the sources of the program; runs nothing but properties of its objects.
    """
    values: dict[str, Values] = {}
    for place, is_whole in _places(function_name, sources):
        if place.module.partition(".")[0] in NEVER_SENT | MAIN | sys.stdlib_module_names:
            continue
        with suppress(Exception):  # it is there no more, or a property raises
            held = _at(place)
            value = state_of(held) if is_whole and type(held) not in _CONTAINERS else held
            is_known = place.module in LIBRARIES and not callable(value)
            if not is_known and (value is not None or not is_whole):
                values.setdefault(place.module, {})[shown(place.steps)] = Assigned(place.steps, value)
    return values


def shown(steps: Steps) -> str:
    """`settings.rates['a']`."""
    text = "".join(f"[{name!r}]" if is_item else f".{name}" for is_item, name in steps)
    return text.removeprefix(".")


def _at(place: Place) -> Any:
    value: Any = sys.modules[place.module]
    for is_item, name in place.steps:
        value = value[name] if is_item else getattr(value, name)
    return value


def _texts(sources: Sources) -> Iterator[tuple[str, list[str]]]:
    """The package and the sources of the script or cells, and of the user's loaded modules that assign something."""
    main: Any = sys.modules.get("__main__")
    shell = ipython_shell()
    if shell is not None:
        yield "", list(map(str, shell.user_ns.get("In", ())))
    elif (path := getattr(main, "__file__", None)) is not None:
        yield str(getattr(main, "__package__", None) or ""), ["".join(linecache.getlines(path))]
    budget = MOST_CHARS
    for name, module in list(sys.modules.items()):
        path = getattr(module, "__file__", None)
        if budget >= 0 and name not in MAIN and path and sources.place_of(name.partition(".")[0]) is not None:
            text = "".join(linecache.getlines(path))
            budget -= len(text)
            if budget >= 0 and _may_assign(text):
                yield str(getattr(module, "__package__", None) or ""), [text]


@cache
def _may_assign(text: str) -> bool:
    """Whether a statement starts with a name that the source imports: to parse 440 files takes a second."""
    imported = " ".join(_IMPORTED.findall("\n" + text)).translate(_NO_NAMES).split()
    return not set(imported).isdisjoint(_ASSIGNED.findall("\n" + text))


@cache
def _parsed(text: str) -> dict[str, list[ast.AST]]:
    """The nodes of a source by the function that they are in; `""` for what is in none."""
    nodes: dict[str, list[ast.AST]] = {}
    with suppress(SyntaxError, ValueError, RecursionError, MemoryError):
        todo: list[tuple[str, ast.AST]] = [("", ast.parse(text))]
        for function, node in todo:
            nodes.setdefault(function, []).append(node)
            inside = node.name if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) else function
            todo.extend((inside, child) for child in ast.iter_child_nodes(node))
    return nodes


def _merged(texts: list[str]) -> dict[str, list[ast.AST]]:
    """The nodes of cells, which share their names."""
    nodes: dict[str, list[ast.AST]] = {}
    for text in texts:
        for function, parts in _parsed(text).items():
            nodes.setdefault(function, []).extend(parts)
    return nodes


def _places(function_name: str, sources: Sources) -> Iterator[tuple[Place, bool]]:
    """Those in the code that runs here: at the top of a source, and in functions with names that such code has."""
    programs = [(_Names(package, nodes := _merged(texts)), nodes) for package, texts in _texts(sources)]
    visited = {function_name}
    todo = [""]
    while todo:
        function = todo.pop()
        if function in visited:
            continue
        visited.add(function)
        for names, nodes in programs:
            for node in nodes.get(function, ()):
                yield from names.changed(node)
                if isinstance(node, ast.Name | ast.Attribute):
                    todo.append(node.id if isinstance(node, ast.Name) else node.attr)


class _Names:
    """The names in one source that stand for modules and what is below them."""

    def __init__(self, package: str, nodes: Mapping[str, list[ast.AST]]) -> None:
        self._package = package
        self._bound: dict[str, Place] = {}
        for node in itertools.chain.from_iterable(nodes.values()):
            self._bind(node)

    def _bind(self, node: ast.AST) -> None:
        if isinstance(node, ast.Import):
            for alias in node.names:
                name = alias.name if alias.asname else alias.name.partition(".")[0]
                self._bound[alias.asname or name] = Place(name, ())
        elif isinstance(node, ast.ImportFrom):
            with suppress(ImportError):
                module = resolve_name("." * node.level + (node.module or ""), self._package)
                for alias in node.names:
                    self._bound[alias.asname or alias.name] = Place(module, ((False, alias.name),))
        elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Attribute):
            place = self._place(node.value)
            for target in node.targets if place is not None else ():
                if isinstance(target, ast.Name) and place is not None:
                    self._bound.setdefault(target.id, place)

    def changed(self, node: ast.AST) -> Iterator[tuple[Place, bool]]:
        """The places that `node` changes, and whether all of the object there may have changed, by a call."""
        if isinstance(node, ast.Attribute | ast.Subscript) and isinstance(node.ctx, ast.Store | ast.Del):
            place = self._place(node)
            is_whole = place is None
            place = self._place(node.value) if place is None else place
            if place is not None and place.steps:
                yield place, is_whole
        elif isinstance(node, ast.Call):
            yield from ((place, True) for place in self._by_call(node) if place.steps)
            match node:
                case ast.Call(func=ast.Name("setattr"), args=[owner, ast.Constant(name), _]):
                    if (place := self._place(owner)) is not None:
                        yield Place(place.module, (*place.steps, (False, name))), False

    def _by_call(self, node: ast.Call) -> Iterator[Place]:
        """The objects that a call may change, as far as their data are plain."""
        method = node.func.attr if isinstance(node.func, ast.Attribute) else ""
        receivers = [node.func.value] if isinstance(node.func, ast.Attribute) else []
        for part in (*receivers, *node.args):
            place = self._place(part)
            if place is not None:
                with suppress(Exception):  # it is there no more, or a property raises
                    held = _at(place)
                    if (part in receivers and method in _MUTATING) if type(held) in _CONTAINERS else state_of(held):
                        yield place

    def _place(self, node: ast.expr) -> Place | None:
        steps: list[tuple[bool, Any]] = []
        while not isinstance(node, ast.Name):
            if isinstance(node, ast.Attribute):
                steps.insert(0, (False, node.attr))
            elif isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
                steps.insert(0, (True, node.slice.value))
            else:
                return None
            node = node.value
        bound = self._bound.get(node.id)
        return None if bound is None else _below_modules(bound.module, (*bound.steps, *steps))


def _below_modules(module: str, steps: Sequence[tuple[bool, Any]]) -> Place | None:
    """The place with all that are modules in its first part."""
    held: Any = sys.modules.get(module)
    for number, (is_item, name) in enumerate(steps):
        below = None if is_item else getattr(held, name, None)
        if not isinstance(below, ModuleType):
            return Place(module, tuple(steps[number:])) if held is not None else None
        held = below
        module = below.__name__
    return None if held is None else Place(module, ())
