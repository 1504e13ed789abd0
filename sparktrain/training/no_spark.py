"""Refuses Spark within a trial: it would start a JVM of its own on the executor, and hang or take its memory."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import NoReturn

from sparktrain.errors import SessionError
from sparktrain.training.patched_import import PatchingLoader

_GATEWAY = "pyspark.java_gateway"
_STARTER = "launch_gateway"
_ALLOWED = "sparktrain_allowed"
"""Attribute of the gateway module: the original function, where the module was loaded while Spark was refused."""
_HOLDERS = (_GATEWAY, "pyspark.core.context")
"""Modules with the function that starts a JVM."""


def refuse() -> None:
    """Make every start of a Spark session in this process raise SessionError; importing PySpark stays possible."""
    for name in _HOLDERS:
        if name in sys.modules:
            setattr(sys.modules[name], _STARTER, _refused)
    sys.meta_path.insert(0, _Finder())


@contextmanager
def refused() -> Iterator[None]:
    """Refuse within this context, as `refuse` does; an existing session of the process stays usable."""
    loaded = sys.modules.get(_GATEWAY)
    allowed = getattr(loaded, _STARTER, None)
    refuse()
    finder = sys.meta_path[0]
    try:
        yield
    finally:
        with suppress(ValueError):  # the function has removed it
            sys.meta_path.remove(finder)
        allowed = allowed or getattr(sys.modules.get(_GATEWAY), _ALLOWED, None)
        for name in _HOLDERS:
            if name in sys.modules:
                setattr(sys.modules[name], _STARTER, allowed)


class _Finder(MetaPathFinder):
    """Finds one module as Python does, and gives it a loader that replaces its starter."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """See base class."""
        spec = PathFinder.find_spec(fullname, path, target) if fullname == _GATEWAY else None
        if spec is not None and spec.loader is not None:
            # Around the loader, which stays as it is: modules of a zip archive share one, and a changed one refused all
            # of them.
            spec.loader = PatchingLoader(spec.loader, _refuse_in)
        return spec


def _refuse_in(gateway: ModuleType) -> None:
    setattr(gateway, _ALLOWED, getattr(gateway, _STARTER))
    setattr(gateway, _STARTER, _refused)


def _refused(*_: object, **__: object) -> NoReturn:
    raise SessionError(
        "a trial cannot use Spark: it runs on an executor, where a session would start a Spark of its own; write the "
        "data to files in the driver first, and read those in the function, or pass values as parameters"
    )
