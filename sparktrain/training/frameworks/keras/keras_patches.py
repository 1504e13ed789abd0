"""Replaces attributes of Keras by functions of this package.

The process of a member ends with them replaced; a process that outlives the training restores them.
"""

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from sparktrain.config.environment import TENSORFLOW
from sparktrain.training.frameworks.keras.keras_framework import backend_in_use

_ABSENT = object()
F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True)
class _Patch:
    owner: Any
    name: str
    maker: str
    held: object
    """The owner's own attribute of this name; `_ABSENT` if it inherited one."""


_patches: list[_Patch] = []
"""The current patches, oldest first."""


def replace(owner: Any, name: str, make: Callable[[Any], Any]) -> None:
    """Replace `owner.name`, of a class or a module, by the result of `make` for it; once for each `make`."""
    plain = make.func if isinstance(make, functools.partial) else make
    maker = f"{plain.__module__}.{plain.__qualname__}"
    if any(patch.owner is owner and (patch.name, patch.maker) == (name, maker) for patch in _patches):
        return
    _patches.append(_Patch(owner, name, maker, vars(owner).get(name, _ABSENT)))
    setattr(owner, name, make(getattr(owner, name)))


@contextmanager
def put_back() -> Iterator[None]:
    """Restore on exit what `replace` has replaced within this context. For one thread of a process."""
    patch_count = len(_patches)
    try:
        yield
    finally:
        while len(_patches) > patch_count:
            last = _patches.pop()
            if last.held is _ABSENT:
                delattr(last.owner, last.name)
            else:
                setattr(last.owner, last.name, last.held)


def as_written(function: F) -> F:
    """`function`, which AutoGraph leaves as it is where Keras runs on TensorFlow."""
    if backend_in_use() != TENSORFLOW:
        return function
    from sparktrain.training.frameworks.tensorflow.collectives.op_names import as_written as unconverted

    return unconverted(function)
