"""What some code imports when it runs: the imports of its own module, and of the local modules that these import.

A package is not one thing: a function of a package with hundreds of modules may need three of them, and a process that
imports what all of them need pays for libraries that the function never uses.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path

from sparktrain.usercode.dynamic_imports import imports_by_name
from sparktrain.usercode.imports import Sources
from sparktrain.usercode.source_imports import Imports

_PACKAGE_FILE = "__init__.py"


def reached_imports(sources: Sources, modules: Iterable[str], files: Iterable[Path] = ()) -> Imports:
    """The imports of local modules, by dotted names, and of `files`, and of all local modules that these import.

    The last parts of a name may be names within a module. All modules of a package count where it imports some
    by names that only its run knows. Imports nothing. The caller may change the result.
    """
    return _Walk(sources).from_start(modules, files)


def reached_files(sources: Sources, modules: Iterable[str], files: Iterable[Path] = ()) -> set[Path]:
    """The sources of the same modules: those that run. Imports nothing."""
    walk = _Walk(sources)
    walk.from_start(modules, files)
    return walk.files


class _Walk:
    """One walk along imports."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self._imports = Imports()
        self._todo: list[tuple[Path, str]] = []
        """Files to read, with the dotted name of the package that relative imports in them start from."""
        self.files: set[Path] = set()
        """All that was seen."""
        self._names: set[str] = set()
        self._expanded_packages: set[str] = set()

    def from_start(self, modules: Iterable[str], files: Iterable[Path]) -> Imports:
        for name in modules:
            self._add(name)
        for path in files:
            self._add_file(path, "")
        while self._todo:
            path, package = self._todo.pop()
            self._read(path, package)
        return self._imports

    def _read(self, path: Path, package: str) -> None:
        imports = self._sources.imports_of_file(path)
        self._imports.modules |= imports.modules
        self._imports.texts |= imports.texts
        self._imports.dotted |= imports.dotted
        self._imports.variables |= imports.variables
        names = {*imports.modules, *_absolute(imports.relative, package)}
        for name in names:
            self._add(name)
        top = package.partition(".")[0]
        if top and top not in self._expanded_packages and imports_by_name(imports):
            self._expanded_packages.add(top)
            for file in self._sources.files_of(top):
                self._add_file(file, self._package_of(top, file))

    def _add(self, name: str) -> None:
        if name in self._names:
            return
        self._names.add(name)
        for path, package in self._files_of(name.split(".")):
            self._add_file(path, package)

    def _add_file(self, path: Path, package: str) -> None:
        if path not in self.files:
            self.files.add(path)
            self._todo.append((path, package))

    def _files_of(self, parts: list[str]) -> Iterator[tuple[Path, str]]:
        """The files that run when a module of this name is imported, each with its package."""
        place = self._sources.place_of(parts[0])
        if place is None:
            return
        if place.is_file():
            yield place, ""
            return
        for number, part in enumerate([*parts[1:], ""], 1):
            package = ".".join(parts[:number])
            # Python runs this file of each package on the way to a module.
            if (package_file := place / _PACKAGE_FILE).is_file():
                yield package_file, package
            if not part:
                return
            if (module := place / f"{part}.py").is_file():
                yield module, package
                return
            place = place / part
            if not place.is_dir():
                return

    def _package_of(self, top: str, file: Path) -> str:
        place = self._sources.place_of(top)
        if place is None or place.is_file():
            return ""
        return ".".join([top, *file.parent.relative_to(place).parts])


def _absolute(relative: Iterable[str], package: str) -> Iterator[str]:
    """The absolute names of relative imports in a module of `package`: `..b.y` as it stands in the source."""
    parts = package.split(".") if package else []
    for name in relative:
        bare_name = name.lstrip(".")
        above = len(name) - len(bare_name) - 1
        if above < len(parts):
            yield ".".join([*parts[: len(parts) - above], *bare_name.split(".")])
