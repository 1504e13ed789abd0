"""Finds which backend of Keras a training function asks for, in its source and in modules that it imports."""

import ast
import inspect
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import CodeType
from typing import Any

from sparktrain.config import uses
from sparktrain.config.environment import KERAS_BACKEND, KERAS_BACKENDS
from sparktrain.usercode.imports import Sources, imports_of_function, plain_function_of
from sparktrain.usercode.module_graph import reached_files
from sparktrain.usercode.target import Target

_Names = Mapping[str, object]
"""Values of variables, by name."""
_PACKAGE_FOLDER = str(Path(__file__).parents[1])
"""The folder of this package, which wraps functions of the user."""
_SETTERS = frozenset({"setdefault", "__setitem__"})
_SIMPLE = (ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Expr, ast.Return)


@dataclass(frozen=True)
class KerasChoice:
    """A backend that the user's code chooses whenever it runs."""

    backend: str
    place: str
    """The line, such as `train.py:12`."""


def keras_choice(target: Target) -> KerasChoice | None:
    """The backend of Keras that the function of `target` chooses; None where it chooses none, or that depends.

    Runs nothing. Blocks on the local disk.
    """
    return _only([*_of_modules(target), *_of_function(target.function)])


def keras_choice_in(text: str) -> KerasChoice | None:
    """The same for the source of a stored function, and the values that it captures."""
    tree = _parsed(text)
    body = tree.body if tree is not None else []
    functions = [statement for statement in body if isinstance(statement, ast.FunctionDef)]
    assignments = [statement for statement in body if isinstance(statement, ast.Assign)]
    return _only(_choices([*assignments, *functions[0].body], {}, "the stored function", 0)) if functions else None


def _only(choices: Iterable[KerasChoice]) -> KerasChoice | None:
    candidates = list(choices)
    return candidates[0] if len({choice.backend for choice in candidates}) == 1 else None


def _of_function(function: Any) -> Iterator[KerasChoice]:
    """The choices of a function, and of those that it calls in any case."""
    called: set[str] | None = None
    for code, names in uses.codes(plain_function_of(function) or function):
        # What a function defines and does not call sets no backend.
        if code.co_filename.startswith(_PACKAGE_FOLDER) or (called is not None and code.co_name not in called):
            continue
        statements = _body(code)
        called = (called or set()) | {
            _name(node) for statement in statements for node in ast.walk(statement) if isinstance(node, ast.Call)
        }
        file = code.co_filename.rpartition("/")[2]
        line = code.co_firstlineno - 1
        yield from _choices(statements, names, file, line)


def _body(code: CodeType) -> list[ast.stmt]:
    try:
        tree = _parsed(textwrap.dedent(inspect.getsource(code)))
    except (OSError, TypeError):  # typed into a shell, or created by exec
        return []
    first = tree.body[0] if tree is not None and tree.body else None
    return list(_certain(first.body)) if isinstance(first, ast.FunctionDef) else []


def _of_modules(target: Target) -> Iterator[KerasChoice]:
    """The choices of the user's modules that are imported with the function."""
    modules = set(imports_of_function(target.function).modules)
    if plain_function_of(target.function) is not None and target.module is not None:
        modules.add(target.module)
    for path in sorted(reached_files(Sources(), modules, [target.file] if target.file else [])):
        text = _read(path)
        if KERAS_BACKEND not in text and "set_backend" not in text:
            continue
        tree = _parsed(text)
        yield from _choices(tree.body if tree is not None else [], {}, path.name, 0)


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8", errors="replace")
    except OSError:  # the import on the executor has a better error
        return ""


def _parsed(text: str) -> ast.Module | None:
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError):
        return None


def _certain(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements that run whenever `body` does."""
    for statement in body:
        if isinstance(statement, ast.With):
            yield from _certain(statement.body)
        elif isinstance(statement, _SIMPLE):
            yield statement


def _choices(body: Iterable[ast.stmt], names: _Names, file: str, above: int) -> Iterator[KerasChoice]:
    """The choices of statements; `names` are those that they may read, `above` is the number of lines above them."""
    scope = dict(names)
    for statement in _certain(body):
        if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Constant):
            scope |= {target.id: statement.value.value for target in statement.targets if isinstance(target, ast.Name)}
        for chosen in _chosen(statement, scope):
            if chosen is not None:
                yield KerasChoice(chosen, f"{file}:{above + statement.lineno}")


def _chosen(statement: ast.stmt, names: _Names) -> Iterator[str | None]:
    """The backends that a statement sets; None for what it does not certainly set."""
    if isinstance(statement, ast.Assign):
        items = [
            target
            for target in statement.targets
            if isinstance(target, ast.Subscript) and _is_environment(target.value)
        ]
        if any(_text(subscript.slice, names) == KERAS_BACKEND for subscript in items):
            yield _text(statement.value, names)
    elif isinstance(statement, ast.AugAssign) and _is_environment(statement.target):
        yield _entry(statement.value, names)
    for node in ast.walk(statement):
        if isinstance(node, ast.Call):
            yield _called(node, names)


def _called(call: ast.Call, names: _Names) -> str | None:
    """The backend that a call sets."""
    owner = call.func.value if isinstance(call.func, ast.Attribute) else None
    name = _name(call)
    first, second = [*call.args, None, None][:2]
    if name == "set_backend":  # other libraries have one, too
        chosen = _text(first, names)
        return chosen if chosen in KERAS_BACKENDS else None
    if name == "putenv" or (name in _SETTERS and _is_environment(owner)):
        return _text(second, names) if _text(first, names) == KERAS_BACKEND else None
    if name == "update" and _is_environment(owner):
        named = next((keyword.value for keyword in call.keywords if keyword.arg == KERAS_BACKEND), None)
        return _entry(first, names) if named is None else _text(named, names)
    return None


def _entry(node: ast.AST | None, names: _Names) -> str | None:
    """The backend in a dict."""
    pairs = zip(node.keys, node.values, strict=True) if isinstance(node, ast.Dict) else ()
    return next((_text(value, names) for key, value in pairs if _text(key, names) == KERAS_BACKEND), None)


def _text(node: ast.AST | None, names: _Names) -> str | None:
    """The text that an expression certainly is."""
    value = node.value if isinstance(node, ast.Constant) else names.get(getattr(node, "id", ""))
    return value if isinstance(value, str) else None


def _name(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def _is_environment(node: ast.AST | None) -> bool:
    return "environ" in (getattr(node, "attr", ""), getattr(node, "id", ""))
