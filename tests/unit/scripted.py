"""Functions of tests as a user's script would define them."""

from collections.abc import Callable
from types import FunctionType
from typing import Any


def of_a_script(function: Any) -> Any:
    """The function with the globals of an empty script: the folder of all tests does not travel along with it."""
    made = FunctionType(
        function.__code__, {"__name__": "__main__"}, function.__name__, function.__defaults__, function.__closure__
    )
    made.__module__, made.__qualname__ = "__main__", function.__qualname__
    made.__annotations__, made.__kwdefaults__ = function.__annotations__, function.__kwdefaults__
    return made


def cell(source: str, **names: Any) -> Callable[..., Any]:
    """The function `train` of a notebook cell, or of a script."""
    space = {"__name__": "__main__", **names}
    exec(compile(source, "<cell>", "exec"), space)
    return space["train"]  # type: ignore[no-any-return]
