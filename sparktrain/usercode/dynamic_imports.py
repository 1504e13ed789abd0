"""Finds local packages with modules that code imports by names which only its run knows: `"models." + name`."""

import sys
from collections.abc import Iterable
from importlib.machinery import PathFinder
from pathlib import Path

from sparktrain.usercode.imports import Sources
from sparktrain.usercode.source_imports import IMPORT_MODULE, Imports

_DYNAMIC = (IMPORT_MODULE, "importlib.util", "pkgutil", "runpy")
_IMPORTLIB = "importlib"
"""What a function imports that has `from importlib import import_module` in its globals."""


def imports_by_name(imports: Imports) -> bool:
    """Whether some code imports modules by names that only its run knows."""
    return _IMPORTLIB in imports.modules or any(name.startswith(_DYNAMIC) for name in imports.modules)


def named_packages(imports: Imports, sources: Sources, values: Iterable[str] = ()) -> set[str]:
    """The local top-level modules that texts in some code name, or `values` that it gets as parameters.

    Code that imports by name may import a module of any text; other code, such as a library that creates objects from a
    configuration, one of a text that is the name of a module which exists. Imports nothing.
    """
    value_imports = Imports()
    for value in values:
        value_imports.add_text(value)
    dotted = imports.dotted | value_imports.dotted
    script = Path(getattr(sys.modules.get("__main__"), "__file__", None) or "").stem
    packages = {_top(text) for text in dotted if _is_module(text, sources)}
    if imports_by_name(imports):
        packages |= {_top(text) for text in dotted} | imports.texts | value_imports.texts
    return {name for name in packages if name != script and sources.files_of(name) and is_on_path(name)}


def is_on_path(name: str) -> bool:
    """Whether Python finds the module now. One that is only loaded still, from a folder that the path has no more, is
    not there for the next driver, which would take the code for other code."""
    return PathFinder.find_spec(name) is not None


def _top(text: str) -> str:
    return text.replace(":", ".").partition(".")[0]


def _is_module(text: str, sources: Sources) -> bool:
    place = sources.place_of(_top(text))
    second = text.replace(":", ".").split(".")[1]
    return place is not None and second.isidentifier() and _has_module(place, second)


def _has_module(package: Path, name: str) -> bool:
    return (package / f"{name}.py").is_file() or (package / name / "__init__.py").is_file()
