"""Which frameworks a training function imports, in its code and in the user's modules, and at which lines."""

import ast
import dis
import re
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from types import ModuleType

from sparktrain.config import uses
from sparktrain.config.environment import JAX, TENSORFLOW, TORCH
from sparktrain.usercode.dynamic_imports import imports_by_name
from sparktrain.usercode.imports import Sources, imports_of_function, plain_function_of, uses_of_globals
from sparktrain.usercode.serialize import imports_of_target, sources_of_target
from sparktrain.usercode.source_imports import Imports, imports_of_source
from sparktrain.usercode.target import Target

KERAS = "keras"
_HOROVOD = "horovod"
_FRAMEWORKS = {"horovod.torch": TORCH, _HOROVOD: TENSORFLOW, "tf_keras": TENSORFLOW}
_FRAMEWORKS |= {name: name for name in (TENSORFLOW, TORCH, JAX)}
"""The framework that a module trains by, by the start of the module's name; the longest start counts. Keras is not
among them: it trains by the backend that is set for it."""
_REQUIREMENT = re.compile(r"[A-Za-z0-9._-]+")


@dataclass(frozen=True)
class FrameworkImports:
    """What the code of a training function imports, as far as the choice of a backend depends on it."""

    modules: Collection[str] = ()
    """Dotted names; the last parts may be names within a module."""
    own: Collection[str] = ()
    """Those that the function and what it calls import or use: its module may have other functions, for others."""
    by_name: bool = False
    """Whether the code imports modules by names that only its run knows."""
    find: Callable[[str], str] = lambda _: ""
    """The line that imports a package, such as `train.py:3`; empty where it is not found. Blocks on the local disk."""

    @property
    def frameworks(self) -> set[str]:
        """Those of "tensorflow", "torch" and "jax" that the code imports by their own names, or by Horovod's."""
        return _frameworks(self.modules)

    @property
    def own_frameworks(self) -> set[str]:
        """The same, of the function and what it calls alone."""
        return _frameworks(self.own)

    @property
    def uses_keras(self) -> bool:
        """Whether the function, or what it calls, imports or uses Keras."""
        return any(_is_part(name, KERAS) for name in self.own)

    @property
    def has_keras(self) -> bool:
        """Whether it imports Keras, which trains by the backend that is set for it."""
        return any(_is_part(name, KERAS) for name in self.modules)

    def line_of(self, framework: str) -> str:
        """`train.py:3 imports torch`, for a framework of `frameworks`, or Keras. Blocks on the local disk."""
        packages = {_package(name) for name in self.modules if framework in (framework_of(name), _package(name))}
        package = framework if framework in packages else min(packages)
        place = self.find(package)
        return f"{place} imports {package}" if place else f"the function uses {package}"

    def may_reach(self, framework: str) -> bool:
        """Whether a library that the code imports may import `framework` in turn, by what its package requires.

        Reads the metadata of all installed packages, which takes a moment.
        """
        if self.by_name:
            return True
        distributions = metadata.packages_distributions()
        tops = {name.partition(".")[0] for name in self.modules} - {KERAS, *_FRAMEWORKS}
        packages = {package for top in tops for package in distributions.get(top, ())}
        return any(framework in _required(package) for package in packages)


NO_IMPORTS = FrameworkImports()
"""Those of a function that nothing is known of."""


def framework_of(module: str) -> str | None:
    """The framework that a module of this dotted name trains by; None where its name does not show that."""
    return _FRAMEWORKS.get(_package(module))


def framework_imports(target: Target) -> FrameworkImports:
    """Those of a function of this process. Imports nothing; blocks on the local disk."""
    own = imports_of_function(target.function).modules
    return _of(imports_of_target(target, Sources()), own, lambda package: next(_lines(target, package), ""))


def framework_imports_in(text: str, preload: Iterable[str] = ()) -> FrameworkImports:
    """Those of a stored function, by its source and by what its zygotes import."""
    imports = imports_of_source(text.encode())
    imports.modules.update(preload)
    return _of(imports, imports.modules, lambda package: next(_in_source(text, "the stored function", package), ""))


def _of(imports: Imports, own: Collection[str], find: Callable[[str], str]) -> FrameworkImports:
    return FrameworkImports(frozenset(imports.modules), frozenset(own), imports_by_name(imports), find)


def _frameworks(modules: Collection[str]) -> set[str]:
    return {framework for name in modules if (framework := framework_of(name)) is not None}


def _lines(target: Target, package: str) -> Iterator[str]:
    """The lines that import `package`: of the function itself first, and last those that only use it."""
    function = plain_function_of(target.function)
    codes = [] if function is None else [*uses.codes(function)]
    for code, _ in codes:
        for instruction in dis.get_instructions(code):
            if instruction.opname == "IMPORT_NAME" and _is_part(str(instruction.argval), package):
                line = instruction.positions.lineno if instruction.positions else None
                yield f"{_file_name(code.co_filename)}:{line or code.co_firstlineno}"
    # A script, which is not among the sources that travel, has imports above its function.
    files = [*(Path(code.co_filename) for code, _ in codes), *sources_of_target(target, Sources())]
    for path in dict.fromkeys(files):
        try:
            text = path.read_text("utf-8", errors="replace")
        except OSError:  # code of a notebook; the import of a missing file has an error of its own
            continue
        yield from _in_source(text, path.name, package)
    for code, names in codes:
        for use in uses_of_globals(code):
            value = names.get(use.name)
            if isinstance(value, ModuleType) and _is_part(value.__name__, package):
                yield f"{_file_name(code.co_filename)}:{use.line}"


def _in_source(text: str, file: str, package: str) -> Iterator[str]:
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):  # the import has a better error
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            modules = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        if any(_is_part(module, package) for module in modules):
            yield f"{file}:{node.lineno}"


def _file_name(path: str) -> str:
    return path.rpartition("/")[2]


def _package(name: str) -> str:
    """The package of the module `name`, or the module of Horovod's that has a framework's name."""
    starts = [start for start in _FRAMEWORKS if _is_part(name, start)]
    return max(starts, key=len, default=name.partition(".")[0])


def _is_part(module: str, package: str) -> bool:
    return module == package or module.startswith(f"{package}.")


def _required(package: str) -> set[str]:
    """The names of the packages that an installed one requires, with those of its extras."""
    requirements = (_REQUIREMENT.match(text) for text in metadata.requires(package) or ())
    return {match[0].lower() for match in requirements if match is not None}
