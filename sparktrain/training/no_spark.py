"""Refuses Spark within a trial: it would start a JVM of its own on the executor, and hang or take its memory."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import NoReturn

from sparktrain.base.patched_imports import ImportHook, patching
from sparktrain.errors import SessionError

_GATEWAY = "pyspark.java_gateway"
_STARTER = "launch_gateway"
_ALLOWED = "sparktrain_allowed"
"""Attribute of the gateway module: the original function, where the module was loaded while Spark was refused."""
_HOLDERS = (_GATEWAY, "pyspark.core.context")
"""Modules with the function that starts a JVM."""


def refuse() -> None:
    """Make every start of a Spark session in this process raise SessionError; importing PySpark stays possible."""
    _replace_starters(_refused)
    _hook().install()


@contextmanager
def refused() -> Iterator[None]:
    """Refuse within this context, as `refuse` does; an existing session of the process stays usable."""
    loaded = sys.modules.get(_GATEWAY)
    allowed = getattr(loaded, _STARTER, None)
    _replace_starters(_refused)
    try:
        with _hook().installed():
            yield
    finally:
        _replace_starters(allowed or getattr(sys.modules.get(_GATEWAY), _ALLOWED, None))


def _hook() -> ImportHook:
    return ImportHook(around={_GATEWAY: patching(_refuse_in)})


def _replace_starters(starter: object) -> None:
    for name in _HOLDERS:
        if name in sys.modules:
            setattr(sys.modules[name], _STARTER, starter)


def _refuse_in(gateway: ModuleType) -> None:
    setattr(gateway, _ALLOWED, getattr(gateway, _STARTER))
    setattr(gateway, _STARTER, _refused)


def _refused(*_: object, **__: object) -> NoReturn:
    raise SessionError(
        "a trial cannot use Spark: it runs on an executor, where a session would start a Spark of its own; write the "
        "data to files in the driver first, and read those in the function, or pass values as parameters"
    )
