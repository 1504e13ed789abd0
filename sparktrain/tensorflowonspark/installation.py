"""Serves `import tensorflowonspark`, in the driver and in the members of its runs, so that programs change no line."""

import importlib
import logging
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec
from types import ModuleType

from sparktrain.errors import SpecError
from sparktrain.usercode.module_aliases import add_alias

NAME = "tensorflowonspark"
_PACKAGE = "sparktrain.tensorflowonspark"
STUB = f"""\"\"\"Stands for {_PACKAGE} in this process.\"\"\"

from {_PACKAGE}.installation import serve

serve()
"""
"""The package that runs send to their members: they find it before one that is installed there."""

logger = logging.getLogger("sparktrain")


def install() -> None:
    """Have `import tensorflowonspark` give the modules of this package, here and in the members of later runs.

    Call it before the program imports that name; a second call does nothing. Does not block. Where TensorFlowOnSpark
    itself is installed too, a warning names both places. Raises SpecError when the program has imported it already.
    """
    package = importlib.import_module(_PACKAGE)
    loaded = sys.modules.get(NAME)
    if loaded is package:
        return
    if loaded is not None:
        raise SpecError(
            f"{NAME} was imported from {getattr(loaded, '__file__', None)} before install(): names that the program "
            "took from there stay the original's; call install() before the first import of it"
        )
    original = PathFinder.find_spec(NAME)
    if original is not None:
        logger.warning(
            "%s is installed at %s, and imports of it get %s: uninstall it, or leave install() out to use it",
            NAME, original.origin, _PACKAGE,
        )  # fmt: skip
    serve()


def serve() -> None:
    """Put the modules of this package in the place of the original's, and send them with the code of later runs."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
    sys.modules[NAME] = importlib.import_module(_PACKAGE)
    add_alias(NAME, STUB)


class _OurModule(Loader):
    """Makes an import give a module of this package, under its own name: pickles refer to it by that."""

    def __init__(self, home: str) -> None:
        self._home = home

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """See base class."""
        return None

    def exec_module(self, module: ModuleType) -> None:
        """See base class."""
        sys.modules[module.__name__] = importlib.import_module(self._home)


class _Finder(MetaPathFinder):
    """Finds the modules of the original among those of this package."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """See base class."""
        top, _, submodule = fullname.partition(".")
        if top != NAME or not submodule:
            return None
        home = f"{_PACKAGE}.{submodule}"
        if home not in sys.modules and find_spec(home) is None:
            return None
        return ModuleSpec(fullname, _OurModule(home))
