"""Finds the training function, and checks that it can be called with the parameters of a space."""

import ast
import importlib
import inspect
import itertools
import keyword
import re
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from sparktrain.base.nesting import importing
from sparktrain.config.param_values import CONTEXT_NAME, described, did_you_mean, shown
from sparktrain.errors import FunctionError, NestedCallError
from sparktrain.usercode.closure import describe
from sparktrain.usercode.imports import FILE_NAME, NEVER_SENT, is_local, plain_function_of
from sparktrain.usercode.preload import SAFE
from sparktrain.usercode.unknown_names import check_names

MAX_CASES = 100_000
"""How many combinations are checked for names that the function does not accept."""

_TRAINS = re.compile(r"(?:.*_)?(?:train|training|fit|objective)(?:_(?:fn|func|function|model|one|trial|and_evaluate))?")
_BY_NAME = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


@dataclass(frozen=True)
class Target:
    """A training function, and where it comes from."""

    function: Callable[..., Any]
    reference: str | None = None
    """`module:function`, when executors import it instead of unpickling it."""
    file: Path | None = None
    """The source that it was imported from; None when it was passed in Python."""
    root: Path | None = None
    """The folder that its module was imported from and that executors get; None when they have the module installed."""
    script: str = ""
    """The module that the function runs as a script, in place of one that defines the function."""
    bound: Mapping[str, Any] | None = None
    """Of a script that gets the parameters as arguments: the first argument of the function, as JSON has it."""

    def __call__(self, *arguments: Any, **params: Any) -> Any:
        """Call the function, as a member does."""
        return self.function(*arguments, **params)

    @classmethod
    def of(cls, function: Callable[..., Any]) -> "Target":
        """A function that was passed in Python. Raises FunctionError when it cannot be called."""
        _check_callable(function)
        return cls(function)

    @property
    def name(self) -> str:
        """`module:function`, or the function's own name; for messages and records. Of a script, that of the script."""
        if self.bound is not None:
            return f"{self.script}.py"
        return self.script or self.reference or _own_name(self.function)

    @property
    def code_module(self) -> str:
        """The module of the code that travels with the reference."""
        return self.script or (self.reference or "").partition(":")[0]

    @property
    def module(self) -> str | None:
        """The module that defines it, where that is known."""
        return getattr(plain_function_of(self.function), "__module__", None)

    @property
    def slug(self) -> str:
        """The function's name as the start of a run's name: letters, digits, '.', '_' and '-', a letter first."""
        return (
            re.sub(r"[^A-Za-z0-9._-]", "", self.script or _own_name(self.function)).lstrip("0123456789._-")[:64]
            or "run"
        )


def check_call(function: Callable[..., Any], cases: Iterable[Mapping[str, Any]], place: str = "the space") -> None:
    """Raise FunctionError unless `function` can be called with `ctx` and the names of each case, or if it must fail.

    `cases` is a space, or any list of parameters; each set of names is checked once, among the first 100,000 cases.
    `place` names where the caller wrote them.
    """
    _check_callable(function)
    parameters = _parameters(function)
    subject = describe(function)
    for parameter in parameters.values():
        required = parameter.default is inspect.Parameter.empty
        if parameter.kind is inspect.Parameter.POSITIONAL_ONLY and required:
            raise FunctionError(
                f"{subject}: parameter {parameter.name!r} is positional-only, parameters are passed by name; "
                "remove the '/' from its signature"
            )
    check_names(function)
    for case in _one_of_each(cases):
        _check_unknown(subject, parameters, case, place)
        _check_missing(subject, parameters, case, place)


def _check_callable(function: object) -> None:
    if not callable(function):
        raise FunctionError(
            f"the training function is {described(function)}, which cannot be called; pass the function itself: train"
        )
    if isinstance(function, type):
        raise FunctionError(
            f"the training function is the class {function.__qualname__}: a call creates an object, not a result; "
            "pass a function, or a method of an object"
        )
    called = plain_function_of(function)
    if called is None:
        return
    if inspect.iscoroutinefunction(called) or inspect.isasyncgenfunction(called):
        raise FunctionError(
            f"{describe(function)} is a coroutine function: a call only creates a coroutine; "
            "write `def` in place of `async def`, and call asyncio.run(...) within it"
        )
    if inspect.isgeneratorfunction(called):
        raise FunctionError(
            f"{describe(function)} is a generator function because it has `yield`, so a call runs nothing; "
            "report with ctx.report(...) instead of `yield`, and return the result"
        )


def _parameters(function: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    try:
        return inspect.signature(function).parameters
    except (ValueError, TypeError) as error:
        raise FunctionError(
            f"the training function {shown(function)} has no signature to check parameters with; "
            "wrap it: def train(lr): return function(lr)"
        ) from error


def _one_of_each(cases: Iterable[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    name_sets = set()
    for case in itertools.islice(cases, MAX_CASES):
        names = tuple(case)
        if names not in name_sets:
            name_sets.add(names)
            yield case


def _check_unknown(
    subject: str, parameters: Mapping[str, inspect.Parameter], case: Mapping[str, Any], place: str
) -> None:
    kinds = {parameter.kind for parameter in parameters.values()}
    allowed = [name for name, parameter in parameters.items() if parameter.kind in _BY_NAME and name != CONTEXT_NAME]
    for name in case:
        if name == CONTEXT_NAME:
            raise FunctionError(
                f"{subject}: 'ctx' is passed by sparktrain, and cannot be a parameter of {place}; choose another name"
            )
        if name in allowed:
            continue
        if name in parameters and parameters[name].kind is inspect.Parameter.POSITIONAL_ONLY:
            raise FunctionError(
                f"{subject}: parameter {name!r} is positional-only, parameters are passed by name; "
                "remove the '/' from its signature"
            )
        if inspect.Parameter.VAR_KEYWORD in kinds:
            continue
        if not allowed and inspect.Parameter.VAR_POSITIONAL in kinds:
            raise FunctionError(
                f"{subject} takes positional arguments only, parameters are passed by name; "
                f"name them in its signature: def train({', '.join(case)})"
            )
        raise FunctionError(
            f"{subject} has no parameter {name!r}{did_you_mean(name, allowed) or ';'} "
            f"it takes {', '.join(allowed) or 'none'}: rename it in {place}, or add it to the function"
        )


def _check_missing(
    subject: str, parameters: Mapping[str, inspect.Parameter], case: Mapping[str, Any], place: str
) -> None:
    for name, parameter in parameters.items():
        required = parameter.default is inspect.Parameter.empty and parameter.kind in _BY_NAME
        if not required or name in case or name == CONTEXT_NAME:
            continue
        if name == "self":
            raise FunctionError(
                f"{subject} is a method without its object: parameter 'self' has no value; "
                "pass the method of an object, such as Trainer().train"
            )
        where = f"for {shown(dict(case))}" if case else "in an empty case"
        raise FunctionError(
            f"{subject}: parameter {name!r} has no value {where}, and no default; "
            f"add {name!r} to {place}, or a default to the function"
        )


def _own_name(function: object) -> str:
    called = plain_function_of(function)
    name = getattr(function, "__name__", None) or (called.__name__ if called else type(function).__name__)
    return "lambda" if name == "<lambda>" else str(name)


def resolve(text: str, folder: Path | None = None) -> Target:
    """The function that `FILE.py:FUNCTION` or `package.module:function` names; imports its module.

    The file's folder, or for a module the working directory (`folder`), becomes the first entry of `sys.path`, and what
    lies there is what executors get. Raises FunctionError, with the user's own lines of a traceback.
    """
    place, _, name = text.rpartition(":")
    if not place or not name:
        location = place or text
        raise FunctionError(f"{text}: names no function; write {location}:{_likely_function(location)}")
    is_file = place.endswith((".py", ".ipynb")) or "/" in place
    module = _import_file(Path(place)) if is_file else _import_module(place, folder or Path.cwd())
    function = _function(module, place, name)
    file = Path(module.__file__).absolute() if module.__file__ else None
    root = _root(module, file)
    return Target(function, f"{module.__name__}:{name}", file if root else None, root)


def _likely_function(text: str) -> str:
    """The function of the file that looks like one to train with, found without running it; else `FUNCTION`, and all
    that the file has."""
    path = Path(text)
    try:
        body = ast.parse(path.read_bytes()).body if path.suffix == ".py" else []
    except (OSError, SyntaxError, ValueError):
        body = []
    functions = [node for node in body if isinstance(node, ast.FunctionDef) and not node.name.startswith("_")]
    ranked = sorted(functions, key=_likelihood, reverse=True)
    if ranked and any(_likelihood(ranked[0])):
        return ranked[0].name
    return f"FUNCTION (it has {', '.join(node.name for node in functions)})" if functions else "FUNCTION"


def _likelihood(function: ast.FunctionDef) -> tuple[bool, bool]:
    """Whether a function takes a context, and whether it is named like one that trains."""
    parameters = (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)
    takes_context = any(parameter.arg == CONTEXT_NAME for parameter in parameters)
    return takes_context, _TRAINS.fullmatch(function.name) is not None


def _import_file(path: Path) -> ModuleType:
    check_file(path)
    return _import(path.stem, str(path), path.parent.resolve())


def check_file(path: Path, *, is_script: bool = False) -> None:
    """Raise FunctionError unless executors can import the file `path` by its name. Reads nothing of it.

    Executors find a script by its name, but no statement names it: that may have dashes.
    """
    if path.is_dir():
        raise FunctionError(f"{path}: is a directory, a Python file is expected; write {path / 'train.py'}:FUNCTION")
    if path.suffix != ".py":
        raise FunctionError(
            f"{path}: a Python file ends in .py; export a notebook with `jupyter nbconvert --to script`"
        )
    if not path.exists():
        siblings = [entry.name for entry in path.parent.glob("*.py")] if path.parent.is_dir() else []
        raise FunctionError(f"{path}: no such file{did_you_mean(path.name, siblings) or '; correct the path'}")
    name = path.stem
    is_fit = FILE_NAME.fullmatch(name) if is_script else name.isidentifier() and not keyword.iskeyword(name)
    if not is_fit:
        fitting = re.sub(r"\W", "_", name)
        fitting = fitting if fitting.isidentifier() and not keyword.iskeyword(fitting) else f"train_{fitting}"
        raise FunctionError(
            f"{path}: executors import it by name, and {name!r} cannot be a module's name; rename it to {fitting}.py"
        )
    _check_not_taken(path)


def _check_not_taken(path: Path) -> None:
    loaded = sys.modules.get(path.stem)
    loaded_file = getattr(loaded, "__file__", None)
    is_same = loaded_file is not None and Path(loaded_file).exists() and Path(loaded_file).samefile(path)
    is_reserved = path.stem in sys.stdlib_module_names | NEVER_SENT | SAFE
    if is_reserved or (loaded is not None and not is_same):
        raise FunctionError(
            f"{path}: another module is called {path.stem!r}, and executors would import that one; rename the file"
        )


def _import_module(name: str, folder: Path) -> ModuleType:
    if not all(part.isidentifier() for part in name.split(".")):
        raise FunctionError(
            f"{name}: is neither a file nor a module; write FILE.py:FUNCTION or package.module:function"
        )
    return _import(name, name, folder.resolve())


def _import(name: str, place: str, folder: Path) -> ModuleType:
    if sys.path[:1] != [str(folder)]:
        sys.path.insert(0, str(folder))
    # Python remembers what its folders have: a file that was written a moment ago would not be found.
    importlib.invalidate_caches()
    try:
        # Where the module level of the file calls sweep(), each trial would import the file, and call it in turn.
        with importing(place):
            return importlib.import_module(name)
    except NestedCallError as error:
        raise FunctionError(f"{place}: {error}{_own_lines(error, folder)}") from None
    except SyntaxError as error:
        line = f"{error.filename or place}:{error.lineno or 1}"
        text = f": {shown(error.text.strip())}" if error.text and error.text.strip() else ""
        raise FunctionError(f"{line}: {error.msg}{text}; correct the line") from error
    except ModuleNotFoundError as error:
        if error.name and (name == error.name or name.startswith(f"{error.name}.")):
            raise FunctionError(
                f"{place}: no module {error.name!r} in {folder} or among the installed packages; "
                "correct the name, or write FILE.py:FUNCTION"
            ) from None
        raise _import_failed(place, folder, error) from error
    except (Exception, SystemExit) as error:
        raise _import_failed(place, folder, error) from error


def _import_failed(place: str, folder: Path, error: BaseException) -> FunctionError:
    """The error with the user's own lines of its traceback; all lines except ours when there are none."""
    if isinstance(error, SystemExit):
        step = "put what a script does when it is run below: if __name__ == '__main__':"
    elif isinstance(error, ModuleNotFoundError):
        step = f"install {error.name!r}, or put it beside the file"
    elif isinstance(error, ImportError) and "relative import" in str(error):
        step = "write package.module:function in place of the file, and start in the folder that holds the package"
    else:
        step = "correct it, or put what a script does when it is run below: if __name__ == '__main__':"
    text = "".join(traceback.format_exception_only(error)).strip()
    return FunctionError(f"{place}: its import raised {text}; {step}{_own_lines(error, folder)}")


def _own_lines(error: BaseException, folder: Path) -> str:
    """The user's own lines of a traceback, below a line break; empty when there are none."""
    frames = traceback.extract_tb(error.__traceback__)
    local_frames = [
        frame for frame in frames if is_local(frame.filename) and Path(frame.filename).is_relative_to(folder)
    ]
    lines = "".join(traceback.format_list(local_frames)).rstrip()
    return f"\n{lines}" if lines else ""


def _function(module: ModuleType, place: str, name: str) -> Callable[..., Any]:
    public = [
        key
        for key, value in vars(module).items()
        if inspect.isfunction(value) and value.__module__ == module.__name__ and not key.startswith("_")
    ]
    if not hasattr(module, name):
        raise FunctionError(
            f"{place}: no function {name!r}{did_you_mean(name, public) or ';'} it has {', '.join(public) or 'none'}"
        )
    function = getattr(module, name)
    if not callable(function):
        raise FunctionError(
            f"{place}: {name!r} is {described(function)}, a function is expected; it has {', '.join(public) or 'none'}"
        )
    _check_callable(function)
    return function  # type: ignore[no-any-return]  # mypy does not infer it from callable()


def _root(module: ModuleType, file: Path | None) -> Path | None:
    """The folder that the module's top-level package lies in; None when it is installed."""
    if file is None or not is_local(str(file)):
        return None
    depth = module.__name__.count(".") + (file.name == "__init__.py")
    return file.parents[depth]
