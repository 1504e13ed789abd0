"""Finds a script that executors run as it is, with the modules beside it. Imports nothing of it."""

import importlib.util
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from sparktrain.config.param_values import shown
from sparktrain.config.script_words import FORM, is_script, names, taken_for, takes_any
from sparktrain.errors import FunctionError
from sparktrain.usercode.imports import Sources, is_local
from sparktrain.usercode.target import Target, check_file


def is_script_file(text: str) -> bool:
    """Whether a target of the command line is a script: a file without a function's name that does something when it
    is run. Reads the file."""
    path = Path(text)
    return path.suffix == ".py" and path.is_file() and is_script(path.read_bytes())


def check_options(target: Target, cases: Iterable[Mapping[str, Any]], place: str) -> None:
    """Raise FunctionError for a parameter of `cases` that the script and the modules beside it nowhere name, or with
    an option that argparse would take for another one.

    The caller wrote the parameters in `place`. What the script does with a name is known to its parser alone, which
    refuses an option in the first trial. A form other than that of options is left to the script.
    """
    assert target.bound is not None
    if target.file is None or target.bound["form"] != FORM:
        return
    sources = Sources()
    modules = [
        Path(file)
        for place in sources.places_of(sources.imports_of_files([target.file]).modules)
        for file in _files(place)
    ]
    source = "\n".join(file.read_text(errors="replace") for file in (target.file, *modules))
    for name in dict.fromkeys(name for case in cases for name in case):
        if longer := taken_for(source, name):
            raise FunctionError(
                f"{target.bound['path']} has no option --{name}, which argparse would take for {longer}; rename "
                f"{name!r} in {place}"
            )
        if not takes_any(source) and not names(source, name):
            raise FunctionError(
                f"{target.bound['path']} and the modules beside it name {name!r} nowhere, so no option takes it; "
                f"rename it in {place} as the script has it, or pass form= (--form) for a script that takes any name"
            )


def _files(place: Path) -> Iterable[Path]:
    return place.rglob("*.py") if place.is_dir() else [place]


def script_target(runner: Callable[..., Any], text: str, *, is_module: bool) -> Target:
    """The file or, with `is_module`, the dotted module `text`, as executors run it by `runner`.

    `runner` is a function of a module that executors have. The folder of the file, or for a module the working
    directory, becomes the first entry of `sys.path`, as Python does; that above its package for a file that imports
    from this. Raises FunctionError for one that is not there,
    that executors cannot import by its name, or that is no Python.
    """
    reference = f"{runner.__module__}:{runner.__name__}"
    if is_module:
        return _of_module(runner, reference, text)
    path = Path(text)
    check_file(path, is_script=True)
    _check_syntax(path)
    name, folder = _module_of(path)
    _put_first(folder)
    return Target(runner, reference, path.absolute(), folder, script=name)


def _module_of(path: Path) -> tuple[str, Path]:
    """The name by which a script is imported, and the folder that has it: with its package where it imports from that.

    Such a script runs by `python -m` alone, which knows the package by the name; here the file has it.
    """
    source = path.read_text(errors="replace")
    level = max(map(len, re.findall(r"^[ \t]*from[ \t]+(\.+)", source, re.M)), default=0)
    folder = path.parent.resolve()
    parts = [path.stem]
    while folder.name.isidentifier() and (len(parts) <= level or (folder / "__init__.py").exists()):
        parts.insert(0, folder.name)
        folder = folder.parent
    if level or re.search(rf"^[ \t]*(?:from|import)[ \t]+{parts[0]}\b", source, re.M):
        return ".".join(parts), folder
    return path.stem, path.parent.resolve()


def _of_module(runner: Callable[..., Any], reference: str, name: str) -> Target:
    folder = Path.cwd()
    _put_first(folder)
    try:
        spec = importlib.util.find_spec(name) if all(part.isidentifier() for part in name.split(".")) else None
        if spec is not None and spec.submodule_search_locations is not None:
            spec = importlib.util.find_spec(f"{name}.__main__")
    except ImportError:
        spec = None
    if spec is None or spec.origin is None:
        raise FunctionError(
            f"-m {shown(name)}: no module that Python could run in {folder} or among the installed packages; correct "
            "the name, or pass the file of a script without -m"
        )
    file = Path(spec.origin)
    if not is_local(spec.origin):  # executors have it installed
        return Target(runner, reference, script=name)
    _check_syntax(file)
    return Target(runner, reference, file, file.parents[spec.name.count(".")], script=spec.name)


def _put_first(folder: Path) -> None:
    if sys.path[:1] != [str(folder)]:
        sys.path.insert(0, str(folder))


def _check_syntax(path: Path) -> None:
    try:
        compile(path.read_bytes(), str(path), "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as error:
        line = f"{path}:{getattr(error, 'lineno', None) or 1}"
        raise FunctionError(f"{line}: {getattr(error, 'msg', error)}; correct the line") from error
