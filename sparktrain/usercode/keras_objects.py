"""Finds objects of Keras that executors could not load: Keras pickles them with the names of their classes."""

import json
import sys
import zipfile
from collections.abc import Iterator
from io import BytesIO
from types import FunctionType
from typing import Any

from sparktrain.usercode.imports import MAIN, is_users

LIBRARIES = ("keras", "tf_keras")
_LOADER = "_unpickle_model"
"""What Keras puts into such a pickle: a loader that looks for classes and functions."""
_FUNCTION = "function"
_FUNCTION_HOMES = ("activations", "losses", "metrics", "initializers", "regularizers", "constraints", "ops")


class CustomKerasError(TypeError):
    """An object of Keras is, or has, an object of a class or a function that only the user's code knows."""


def of_keras(kind: type) -> bool:
    """Whether a class is one of Keras, or derives from one."""
    return any(base.__module__.partition(".")[0] in LIBRARIES for base in kind.__mro__)


def registered_by_user() -> Iterator[tuple[str, str, Any]]:
    """The user's classes and functions that Keras knows, as library, name and object. Imports nothing."""
    for library in LIBRARIES:
        for name, value in _registry(library).items():
            if isinstance(value, type | FunctionType) and is_users(value):
                yield library, str(name), value


def check_known(value: object, reduced: Any) -> None:
    """Raise CustomKerasError for an object of Keras that is `reduced` to what an executor could not load."""
    if not isinstance(reduced, tuple) or getattr(reduced[0], "__name__", "") != _LOADER:
        return
    kind = type(value)
    if kind.__module__ in MAIN or "<locals>" in kind.__qualname__:
        raise CustomKerasError("is an object of a Keras class that executors do not know")
    # Keras pickles an object as a file of its own format: its configuration alone names the classes within it.
    with zipfile.ZipFile(BytesIO(reduced[1][0].getvalue())) as saved:
        names = sorted(set(_of_user(json.loads(saved.read("config.json")))))
    if names:
        raise CustomKerasError(f"has {', '.join(names)}, which executors do not know")


def _registry(library: str) -> dict[Any, Any]:
    return dict(getattr(getattr(sys.modules.get(library), "utils", None), "get_custom_objects", dict)())


def _of_library(name: str) -> Any:
    """The function or class of Keras that a saved name stands for; None for an unknown one."""
    homes = (getattr(sys.modules.get(LIBRARIES[0]), home, None) for home in _FUNCTION_HOMES)
    return next((held for home in homes if (held := getattr(home, name, None)) is not None), None)


def _of_user(config: Any) -> Iterator[str]:
    """The names of the user's classes and functions in a saved configuration."""
    if isinstance(config, dict):
        name = config.get("config") if config.get("class_name") == _FUNCTION else config.get("registered_name")
        if isinstance(name, str) and config.get("module") in (*MAIN, "builtins", None):
            definition = _registry(LIBRARIES[0]).get(name, _of_library(name))
            if definition is None or is_users(definition):
                yield name
        config = list(config.values())
    if isinstance(config, list):
        for inner in config:
            yield from _of_user(inner)
