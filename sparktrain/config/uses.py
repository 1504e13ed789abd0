"""What a training function calls on its context, as far as its code tells without a run of it."""

import inspect
from types import CodeType

STRATEGY = "strategy"
"""What it calls to make a strategy of TensorFlow's."""


def names(function: object, name: str) -> bool:
    """Whether `function` has `name` in its code, or in that of the functions of its module that it refers to."""
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
