"""Attributes of Keras that this package replaces by its own functions.

The process of a member ends with them replaced; a process that outlives the training has them put back.
"""

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

_ABSENT = object()


@dataclass(frozen=True)
class _Patch:
    owner: Any
    name: str
    maker: str
    held: object
    """What the owner itself had under the name; `_ABSENT` where it inherited it."""


_patches: list[_Patch] = []
"""Those in place now, in the order of their making."""


def replace(owner: Any, name: str, make: Callable[[Any], Any]) -> None:
    """Replace `owner.name`, of a class or a module, by what `make` returns for it; once for each `make`."""
    plain = make.func if isinstance(make, functools.partial) else make
    maker = f"{plain.__module__}.{plain.__qualname__}"
    if any(each.owner is owner and (each.name, each.maker) == (name, maker) for each in _patches):
        return
    _patches.append(_Patch(owner, name, maker, vars(owner).get(name, _ABSENT)))
    setattr(owner, name, make(getattr(owner, name)))


@contextmanager
def put_back() -> Iterator[None]:
    """Put back on leaving what `replace` has replaced within this context. For one thread of a process."""
    before = len(_patches)
    try:
        yield
    finally:
        while len(_patches) > before:
            last = _patches.pop()
            if last.held is _ABSENT:
                delattr(last.owner, last.name)
            else:
                setattr(last.owner, last.name, last.held)
