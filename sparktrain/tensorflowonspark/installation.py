"""Serves `import tensorflowonspark`, in the driver and in the members of its runs, so that programs change no line."""

import functools
import importlib
import logging
import pkgutil
import sys
from importlib.machinery import PathFinder
from types import ModuleType

from sparktrain.base.patched_imports import ImportHook
from sparktrain.errors import SpecError
from sparktrain.tensorflowonspark import gone
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
    _hook().install()
    sys.modules[NAME] = importlib.import_module(_PACKAGE)
    add_alias(NAME, STUB)


@functools.cache
def _hook() -> ImportHook:
    """Gives the modules of this package by the names of the original's, those that are gone among them."""
    modules = [module.name for module in pkgutil.iter_modules(importlib.import_module(_PACKAGE).__path__)]
    return ImportHook(filled={f"{NAME}.{name}": _stand_in for name in (*modules, *gone.REASONS)})


def _stand_in(module: ModuleType) -> None:
    """Make the import of `module` give this package's, under the name that it has here: pickles refer to it by that."""
    sys.modules[module.__name__] = importlib.import_module(_PACKAGE + module.__name__.removeprefix(NAME))
