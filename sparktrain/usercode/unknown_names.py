"""Finds undefined names in a training function before any process starts, and only where that is certain."""

import builtins
import dis
import logging
from collections.abc import Callable, Iterator
from importlib.machinery import PathFinder
from types import CodeType, FunctionType
from typing import Any

from sparktrain.config.param_values import did_you_mean
from sparktrain.errors import FunctionError
from sparktrain.usercode.closure import describe
from sparktrain.usercode.imports import is_users, plain_function_of, uses_of_globals

logger = logging.getLogger("sparktrain")

_ALIASES = {"np": "numpy", "pd": "pandas", "plt": "matplotlib.pyplot", "tf": "tensorflow", "sns": "seaborn"}
_DYNAMIC = frozenset({"exec", "eval", "globals", "locals", "vars", "builtins", "setattr", "__builtins__", "suppress"})
"""Code with one of these may create names at runtime, or suppress an error."""
_INSTALLED = frozenset({"_", "__class__", "__file__", "get_ipython", "display"})
"""Names that other tools add to the built-in ones."""


def check_names(function: Callable[..., Any]) -> None:
    """Raises FunctionError where the function must fail, for it reads a name that is neither its own, nor global, nor
    built in.

    A line that may never run is only logged, and one within a `try` is not, because its author may know.
    """
    plain = plain_function_of(function)
    if plain is None or not is_users(plain):
        return
    missing = {use.name: use for use in reversed(list(uses_of_globals(plain.__code__)))}
    missing = {name: use for name, use in missing.items() if not _exists(name, plain.__globals__)}
    if not missing or _DYNAMIC & {use.name for use in uses_of_globals(plain.__code__)}:
        return
    global_names = {name for code in _codes(plain) for name in _made_global(code)}
    certain, possible = _reads(plain.__code__)
    for name, use in missing.items():
        if name in global_names or name not in certain | possible:
            continue
        hint = _hint(name, plain.__globals__)
        problem = f"{describe(function)} uses {name!r} at line {use.line}, which is defined nowhere"
        if name in certain:
            raise FunctionError(f"{problem}{hint}")
        logger.warning("%s: a trial that comes to that line fails%s", problem, hint)


def _exists(name: str, names: dict[str, Any]) -> bool:
    return name in names or name in _INSTALLED or hasattr(builtins, name)


def _hint(name: str, names: dict[str, Any]) -> str:
    module = _ALIASES.get(name, name)
    if name in _ALIASES:
        return f"; write `import {module} as {name}` in the function"
    if PathFinder.find_spec(name) is not None:
        return f"; write `import {name}` in the function"
    return (
        f"{did_you_mean(name, [*names, *dir(builtins)]) or ';'} define it before the call, or import it in the function"
    )


def _codes(function: FunctionType) -> Iterator[CodeType]:
    """The code of the function, and of all others that have its globals: each may define some with `global`."""
    yield function.__code__
    for value in list(function.__globals__.values()):
        for member in vars(value).values() if isinstance(value, type) else (value,):
            plain_function = plain_function_of(member)
            if plain_function is not None and plain_function.__globals__ is function.__globals__:
                yield plain_function.__code__


def _made_global(code: CodeType) -> Iterator[str]:
    for instruction in dis.get_instructions(code):
        if instruction.opname in ("STORE_GLOBAL", "DELETE_GLOBAL"):
            yield str(instruction.argval)
    for nested in code.co_consts:
        if isinstance(nested, CodeType):
            yield from _made_global(nested)


def _reads(code: CodeType) -> tuple[set[str], set[str]]:
    """Global names that `code` reads whenever it runs to its end, and those that it may read."""
    certain: set[str] = set()
    possible: set[str] = set()
    instructions = list(dis.get_instructions(code))
    guarded = _guarded(code, instructions)
    leapt = 0
    for instruction in instructions:
        if instruction.opname == "LOAD_GLOBAL" and instruction.offset not in guarded:
            (possible if instruction.offset < leapt else certain).add(str(instruction.argval))
        if instruction.opcode in dis.hasjrel or instruction.opcode in dis.hasjabs:
            # The body of a loop counts: a loop without iterations trains nothing.
            leapt = leapt if instruction.opname == "FOR_ITER" else max(leapt, int(instruction.argval))
    for nested in code.co_consts if not guarded else ():
        if isinstance(nested, CodeType):
            possible |= set().union(*_reads(nested))
    return certain, possible


def _guarded(code: CodeType, instructions: list[dis.Instruction]) -> set[int]:
    """Offsets of instructions within a `try`, or in what follows from its error."""
    names = {instruction.offset: index for index, instruction in enumerate(instructions)}
    offsets: set[int] = set()
    for entry in dis.Bytecode(code).exception_entries:  # type: ignore[attr-defined] # not in the stubs
        first = names[entry.target]
        handler = [instruction.opname for instruction in instructions[first : first + 2]]
        if handler[0] == "PUSH_EXC_INFO" and handler[-1] != "WITH_EXCEPT_START":
            offsets |= {offset for offset in names if entry.start <= offset < entry.end or offset >= entry.target}
    return offsets
