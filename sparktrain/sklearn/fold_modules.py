"""The modules that the zygotes of a search import: those of the classes in its estimator, which no source names."""

from collections.abc import Collection, Iterable, Iterator
from typing import Any

from sparktrain.sklearn.candidates import Codes
from sparktrain.sklearn.fold_fit import SearchTask
from sparktrain.usercode.preload import chosen
from sparktrain.usercode.source_imports import Imports

_MEMBERS_OWN = "sparktrain.sklearn.fold_rehearsal"
"""What prepares a zygote for fits."""
_OF_EACH_FIT = ("numpy", "pyarrow", "sklearn.model_selection")
_DEPTH = 4


def modules_of(task: SearchTask, rows: object, variables: Collection[str] = ()) -> tuple[str, ...]:
    """The modules that are safe to fork after, of the estimator, of the values of the space and of the rows.

    `variables` are those that trials get: a library that reads one of them on import is left to the trials.
    """
    modules = {kind.__module__ for kind in {type(rows), *map(type, parts_of(task.estimator, task.codes))}}
    safe = chosen(Imports(modules={*modules, *_OF_EACH_FIT}), env=variables).modules
    return (*safe, _MEMBERS_OWN) if set(_OF_EACH_FIT) <= set(safe) else safe


def parts_of(estimator: Any, codes: Codes) -> list[Any]:
    """The estimator and the values of the space, and the estimators and other objects that these are made of."""
    values = [estimator, *(value for objects in codes.objects.values() for value in objects.values())]
    return [part for value in values for part in _parts(value, _DEPTH)]


def _parts(value: Any, depth: int) -> Iterator[Any]:
    """The value, and the estimators that it is made of."""
    yield value
    if isinstance(value, type) or not depth:
        return
    inner: Iterable[Any] = ()
    if callable(getattr(value, "get_params", None)):
        inner = value.get_params(deep=False).values()
    elif isinstance(value, list | tuple):
        inner = value
    for part in inner:
        yield from _parts(part, depth - 1)
