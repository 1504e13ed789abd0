"""The function of an estimator, stored by the name under which it can be imported, or else as a pickle."""

import importlib
import platform
from collections.abc import Mapping
from typing import Any

from sparktrain.errors import FunctionError
from sparktrain.ml.user_function import UserFunction
from sparktrain.usercode.closure import describe
from sparktrain.usercode.serialize import pickled, unpickled

FILE = "function"


def stored(function: UserFunction) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Metadata and files of a function. Raises FunctionError when it cannot be pickled."""
    reference = _reference(function.function)
    extra = {"builds": function.builds, "function": reference, "described": describe(function.function)}
    return extra, {} if reference is not None else {FILE: pickled(function.function)}


def restored(extra: Mapping[str, Any], files: Mapping[str, bytes]) -> UserFunction:
    """The function of these metadata and files. Runs code of the user: that of its module, or of its pickle.

    Raises FunctionError when its module is missing, or its pickle is of another version of Python.
    """
    reference = extra["function"]
    described = extra["described"]
    if reference is None:
        _check_python(extra["python"], described)
    try:
        function = _imported(reference) if reference is not None else unpickled(files[FILE])
    except (ImportError, AttributeError) as error:
        raise FunctionError(
            f"the estimator's function {described} cannot be loaded: {error}; put its module on sys.path, as where it "
            "was saved"
        ) from error
    return UserFunction(function, extra["builds"])


def _check_python(saved: str, described: str) -> None:
    """A pickle of a function has bytecode, which belongs to one minor version of Python."""
    live = platform.python_version()
    if saved.split(".")[:2] != live.split(".")[:2]:
        raise FunctionError(
            f"the estimator's function {described} was saved as bytecode of Python {saved}, and this is Python {live}: "
            "load it with that version, or save an estimator with a function of a module that can be imported"
        )


def _reference(function: Any) -> str | None:
    """`module:name`, when an import finds this very function; None for one of a script, notebook or function."""
    module = getattr(function, "__module__", None)
    name = getattr(function, "__qualname__", "")
    if module in (None, "__main__", "__mp_main__") or "<" in name:
        return None
    reference = f"{module}:{name}"
    try:
        return reference if _imported(reference) is function else None
    except (ImportError, AttributeError):
        return None


def _imported(reference: str) -> Any:
    module, _, name = reference.partition(":")
    target: Any = importlib.import_module(module)
    for part in name.split("."):
        target = getattr(target, part)
    return target
