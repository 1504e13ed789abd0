"""Shows what has changed in the code of a run: the source of functions and modules, then and now."""

import difflib
import inspect
import zipfile
from collections.abc import Iterator
from io import BytesIO
from types import FunctionType

from sparktrain.protocol.messages import Code
from sparktrain.usercode.closure import captures_of
from sparktrain.usercode.fingerprint import PLAIN
from sparktrain.usercode.imports import is_users, plain_function_of
from sparktrain.usercode.target import Target

MOST_CHARS = 2**16
"""How much of the text of a function is stored."""
MOST_LINES = 20
"""How many lines of a difference are shown."""
MOST_OF_VALUE = 120
_CONTEXT = 1
FUNCTION = "function "
"""Prefix of the name of the part that is the function itself."""


def text_of(target: Target) -> str:
    """The source of a function that is sent by value, and of the user's functions, classes and values that it uses.

    Only what Python knows; empty for a function that executors import.
    """
    if target.reference is not None:
        return ""
    return "\n".join(_texts(target.function))[:MOST_CHARS]


def differences(
    parts: tuple[dict[str, str], dict[str, str]], texts: tuple[str, str], codes: tuple[Code, Code]
) -> list[str]:
    """Lines of a unified difference of all parts with different digests.

    Each argument has `parts`, the `texts` of the function, and what was sent, then and now. Without a known text, only
    the name of the part. `-` and `+` mark a part that one side has alone.
    """
    archives = [_files(code.archive) for code in codes]
    lines: list[str] = []
    for name in sorted({*parts[0], *parts[1]}):
        if parts[0].get(name) == parts[1].get(name):
            continue
        before, after = texts if name.startswith(FUNCTION) else (archives[0].get(name), archives[1].get(name))
        changed = _difference(before or "", after or "")
        if name not in parts[1]:
            lines += [
                f"- {name}",
                *(() if name.startswith(FUNCTION) else changed),
            ]  # of a function the other part has it
        elif name not in parts[0]:
            lines += [f"+ {name}", *changed]
        else:
            lines += [name, *(changed or [_untold(before, after)])]
    excess = len(lines) - MOST_LINES
    return lines if excess <= 0 else [*lines[:MOST_LINES], f"... and {excess} more lines"]


def _difference(before: str, after: str) -> list[str]:
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), n=_CONTEXT, lineterm="")
    return [line for line in lines if not line.startswith(("---", "+++"))]


def _untold(before: str | None, after: str | None) -> str:
    has_texts = before is not None and after is not None
    return "its text is the same, a value that it captures is not" if has_texts else "its text is not known"


def _files(archive: bytes) -> dict[str, str]:
    if not archive:
        return {}
    with zipfile.ZipFile(BytesIO(archive)) as opened:
        return {name: opened.read(name).decode("utf-8", "backslashreplace") for name in opened.namelist()}


def _texts(function: object) -> Iterator[str]:
    visited_ids: set[int] = set()
    todo: list[tuple[str, object]] = [("", function)]
    while todo:
        name, value = todo.pop(0)
        if id(value) in visited_ids:
            continue
        visited_ids.add(id(value))
        plain = plain_function_of(value)
        if isinstance(value, PLAIN) and name:
            shown = repr(value)
            yield f"{name} = {shown if len(shown) <= MOST_OF_VALUE else f'{shown[:MOST_OF_VALUE]}...'}"
        elif plain is not None and is_users(plain):
            yield _source(plain)
            todo += [(capture.name, capture.value) for capture in captures_of(value)]
        elif isinstance(value, type) and is_users(value):
            yield _source(value)


def _source(value: FunctionType | type) -> str:
    try:
        return inspect.getsource(value)
    except (OSError, TypeError):  # typed into a shell, or created by exec
        return f"{value.__qualname__}: its text is not known"
