"""Finds what a training function calls on its context, without running it."""

import inspect
from types import CodeType

STRATEGY = "strategy"
"""The method of the context that creates a strategy of TensorFlow."""


def names(function: object, name: str) -> bool:
    """Whether the code of `function`, or of functions of its module that it refers to, contains `name`."""
    seen: set[int] = set()
    waiting: list[object] = [function]
    while waiting:
        found = inspect.unwrap(waiting.pop())  # type: ignore[arg-type]
        code = getattr(found, "__code__", found)
        if not isinstance(code, CodeType) or id(code) in seen:
            continue
        seen.add(id(code))
        if name in code.co_names:
            return True
        known = getattr(found, "__globals__", {})
        waiting += [const for const in code.co_consts if isinstance(const, CodeType)]
        waiting += [known[each] for each in code.co_names if inspect.isfunction(known.get(each))]
    return False
