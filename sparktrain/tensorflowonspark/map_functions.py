"""Checks of the functions that programs for TensorFlowOnSpark pass."""

import inspect
from typing import Any

from sparktrain.errors import FunctionError
from sparktrain.usercode.closure import describe


def check_map_function(function: Any, name: str) -> None:
    """Raise FunctionError unless the function can be called with two arguments, which are args and ctx."""
    if not callable(function):
        raise FunctionError(f"{name} is a {type(function).__name__}; pass a function: def {name}(args, ctx)")
    try:
        inspect.signature(function).bind(None, None)
    except TypeError as error:
        raise FunctionError(
            f"{name} is {describe(function)}, which cannot be called with two arguments ({error}): write def "
            f"{name}(args, ctx)"
        ) from error
    except ValueError:  # a builtin without a signature
        return
