"""Finds modules with a file that was edited after this process imported them: a trial imports the file as it is now."""

import ast
import logging
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from types import CodeType, FunctionType, ModuleType

from sparktrain.usercode.fingerprint import digest_of_code
from sparktrain.usercode.imports import MAIN, plain_function_of

MOST_NAMED = 5

_equal: set[tuple[str, int]] = set()
"""Files, with their times, that have what this process has: a notebook calls again and again."""
logger = logging.getLogger("sparktrain")


def check_edited(files: Iterable[str]) -> None:
    """Warn of functions and constants of loaded modules that differ from `files`, which travel as they are now."""
    started = _process_start()
    for module in _loaded(files):
        file = str(module.__file__)
        with suppress(OSError, SyntaxError, ValueError):
            file_stat = os.stat(file)  # once for each of many files
            state = file, file_stat.st_mtime_ns
            if file_stat.st_ctime < started or state in _equal:
                continue
            if names := sorted(_edited(module, ast.parse(Path(file).read_bytes(), file))):
                logger.warning(
                    "%s was edited after this process imported it: trials get the file as it is now, where %s differs; "
                    "import it again (importlib.reload, or a new process) to have the same here",
                    file,
                    ", ".join(names[:MOST_NAMED]) + (" and others" if len(names) > MOST_NAMED else ""),
                )
            else:
                _equal.add(state)


def _loaded(files: Iterable[str]) -> Iterator[ModuleType]:
    tops = {name.partition("/")[0].removesuffix(".py") for name in files}
    loaded: list[tuple[str, object]] = list(sys.modules.items())
    for name, module in loaded:
        is_ours = name.partition(".")[0] in tops and name not in MAIN
        if is_ours and isinstance(module, ModuleType) and str(getattr(module, "__file__", "")).endswith(".py"):
            yield module


def _edited(module: ModuleType, tree: ast.Module) -> Iterator[str]:
    """What a loaded module has in another way than `tree`, its file as it is now."""
    digests: dict[str, set[bytes]] = {}
    for part in _codes(compile(tree, str(module.__file__), "exec", dont_inherit=True)):
        digests.setdefault(part.co_qualname, set()).add(digest_of_code(part))
    for name, function in _functions(module):
        if digest_of_code(function.__code__) not in digests.get(function.__code__.co_qualname, ()):
            yield f"{name}()"
    for name, literal in _literals(tree):
        held = vars(module).get(name)
        if held != literal and type(held).__module__ == "builtins":
            yield name


def _literals(tree: ast.Module) -> Iterator[tuple[str, object]]:
    for statement in tree.body:
        if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
            with suppress(ValueError, TypeError):  # it is no literal
                yield statement.targets[0].id, ast.literal_eval(statement.value)


def _functions(module: ModuleType) -> Iterator[tuple[str, FunctionType]]:
    for name, value in list(vars(module).items()):
        members = vars(value).items() if isinstance(value, type) and value.__module__ == module.__name__ else ()
        for path, member in ((name, value), *((f"{name}.{key}", member) for key, member in members)):
            function = None if isinstance(member, type) else plain_function_of(member)
            if function is not None and function.__code__.co_filename == module.__file__:
                yield path, function


def _codes(code: CodeType) -> Iterator[CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from _codes(constant)


def _process_start() -> float:
    """The moment in which this process started, by the clock of files; 0.0 where it is not known."""
    try:
        ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
        booted = next(line for line in Path("/proc/stat").read_text().splitlines() if line.startswith("btime"))
        return int(booted.split()[1]) + ticks / os.sysconf("SC_CLK_TCK") - 1.0
    except (OSError, ValueError, IndexError, StopIteration):
        return 0.0
