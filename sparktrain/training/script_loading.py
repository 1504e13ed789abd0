"""Loads the training function in a member, and what comes with it: only here objects of the user are unpickled."""

import importlib
import json
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import cloudpickle

from sparktrain.base.patched_imports import patch_when_imported
from sparktrain.protocol import sent_script


def load(code_path: str, by_reference: bool) -> Callable[..., Any]:
    """The training function in a file, or the one that is named there. Raises what the user's code raises."""
    code = Path(code_path).read_bytes()
    function = referred(code.decode()) if by_reference else cloudpickle.loads(code)
    if not callable(function):
        raise TypeError(f"a function was expected, not {type(function).__name__}")
    # Once more, because modules of the user that came with the function may set what the script has changed after them.
    sent_script.configure(sent_script.configuration)
    # The user's code has registered them with Keras in the driver.
    for library in sent_script.registered:
        patch_when_imported(library, _register)
    return cast(Callable[..., Any], function)


def referred(reference: str) -> Any:
    """What a `module:name` names, with the first argument that follows it in JSON, if one does. Imports the module."""
    name, _, bound = reference.partition(" ")
    if bound:
        return partial(referred(name), json.loads(bound))
    module, _, path = name.partition(":")
    referent: Any = importlib.import_module(module)
    for name in path.split("."):
        referent = getattr(referent, name)
    return referent


def _register(library: ModuleType) -> None:
    """Never fails a trial that may not need it: Keras has its own error for a class that it does not find."""
    for name, value in sent_script.registered[library.__name__].items():
        try:
            custom_object = cloudpickle.loads(value) if isinstance(value, bytes) else value
            package, separator, short = name.rpartition(">")
            if separator:
                library.utils.register_keras_serializable(package, short)(custom_object)
            else:
                library.utils.get_custom_objects()[name] = custom_object
        except Exception as error:
            print(f"[sparktrain] {name} cannot be registered with Keras: {error}", file=sys.stderr)
