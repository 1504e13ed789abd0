"""What each file of the repository uses of other files, from its source alone: `scripts.touched` follows it.

grimp reads the imports of the package. What it does not see has three forms: names in a table of modules that are
imported when they are used, the imports of tests, and a file that a test names, such as a program that it starts.
"""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import grimp

PACKAGE = "sparktrain"
SOURCES = ("tests", "scripts", "benchmarks", "examples", "docs", "conf", "jobs", "findings")
"""Folders with files that tests use, beside the package."""
_NAMED = re.compile(r"[\w./-]*\w\.(?:py|sh|md|ipynb|yaml|conf|xml|c|txt)\b|\w+(?:\.\w+)*")
"""The names of files and modules in a text."""
_ENTRY = re.compile(r'"(\w+)": "([\w.]+)"')
_QUOTED = re.compile(r'"(\w+(?:\.\w+)+)"')
_FROM_WING = re.compile(r'from_wing\("(\w+)"\)')


@dataclass(frozen=True)
class ImportMap:
    """The files of a repository, by paths with slashes, and what each uses directly."""

    uses: Mapping[str, Set[str]]

    def reach(self, path: str, within: str | tuple[str, ...] = "") -> set[str]:
        """The file `path` and all that it uses, directly or by way of files in a folder `within`."""
        seen = {path}
        waiting = [path]
        while waiting:
            current = waiting.pop()
            if current == path or current.startswith(within):
                new = self.uses.get(current, set()) - seen
                seen |= new
                waiting.extend(new)
        return seen


def read_imports(root: Path, package: str = PACKAGE) -> ImportMap:
    """The map of the repository at `root`. The package is found by its name, and not imported."""
    return ImportMap(_Reader(root, package).uses)


class _Reader:
    def __init__(self, root: Path, package: str) -> None:
        self._root = root
        self._package = package
        paths = [path for folder in (package, *SOURCES) for path in (root / folder).rglob("*.*") if path.is_file()]
        self._files = {path.relative_to(root).as_posix() for path in paths if "__pycache__" not in path.parts}
        self._modules = {_dotted(path): path for path in self._files if path.endswith(".py")}
        self._homes = self._table(f"{package}/__init__.py")
        self._wings = self._table(f"{package}/base/wings.py")
        names = defaultdict(set)
        for path in self._files:
            if not path.startswith((f"{package}/", "tests/")):
                names[PurePosixPath(path).name].add(path)
        self._by_name = {name: homes.pop() for name, homes in names.items() if len(homes) == 1}
        self.uses: dict[str, set[str]] = {path: set() for path in self._files}
        self._add_package()
        for path in self._files:
            if path.endswith(".py") and not path.startswith(f"{package}/"):
                self.uses[path] |= set(self._uses_of(path)) - {path}

    def _table(self, path: str) -> dict[str, str]:
        """The modules of the names that a table of the file lists."""
        text = self._text(path) if path in self._files else ""
        return {name: self._modules[home] for name, home in _ENTRY.findall(text) if home in self._modules}

    def _add_package(self) -> None:
        graph = grimp.build_graph(self._package, cache_dir=None, exclude_type_checking_imports=True)
        for module in graph.modules:
            path = self._modules[module]
            imported = graph.find_modules_directly_imported_by(module)
            self.uses[path] |= {self._modules[name] for name in imported}
            if "." in module:
                self.uses[path].add(self._modules[module.rpartition(".")[0]])
            if module not in (self._package, f"{self._package}.base.wings"):
                self.uses[path] |= set(self._by_text(path, module))

    def _by_text(self, path: str, module: str) -> Iterator[str]:
        """What a module of the package imports by a name when it is used."""
        text = self._text(path)
        for name in _FROM_WING.findall(text):
            yield self._wings[name]
        for name in _QUOTED.findall(text):
            yield from self._known(name, f"{self._package}.{name}")
        if path.endswith("__init__.py"):
            for _, name in _ENTRY.findall(text):
                yield from self._known(f"{module}.{name}")

    def _uses_of(self, path: str) -> Iterator[str]:
        """What a file of tests, scripts, benchmarks or examples uses."""
        folder = path.rpartition("/")[0]
        text = self._text(path)
        packages = set()  # the names under which the file knows the package
        for node in ast.walk(ast.parse(text)):
            match node:
                case ast.Import():
                    packages |= {alias.asname or alias.name for alias in node.names if alias.name == self._package}
                    for alias in node.names:
                        yield from self._imported(alias.name, folder)
                case ast.ImportFrom(module=str(module)):
                    for alias in node.names:
                        yield from self._imported(f"{module}.{alias.name}", folder)
                case ast.Constant(value=str(value)):
                    for name in _NAMED.findall(value):
                        yield from self._named(name, folder)
                case _:
                    pass
        for alias in packages:
            for name in set(re.findall(rf"\b{alias}\.(\w+)", text)):
                yield from self._imported(f"{self._package}.{name}", folder)

    def _imported(self, name: str, folder: str) -> Iterator[str]:
        """The files of an imported name: of its module, or of the name that the package has from a table."""
        parent, _, last = name.rpartition(".")
        if parent == self._package and last in self._homes:
            yield self._homes[last]
        yield from self._known(name, parent, f"{folder.replace('/', '.')}.{name}")

    def _named(self, name: str, folder: str) -> Iterator[str]:
        """The file that a text names by its path, its module, or, beside the test, by its stem."""
        if name in self._files:
            yield name
        elif "." in name:
            yield from self._known(name)
            base = PurePosixPath(name).name
            yield from (path for path in (f"{folder}/{base}", self._by_name.get(base, "")) if path in self._files)
        elif f"{folder}/{name}.py" in self._files and not name.startswith("test_"):
            yield f"{folder}/{name}.py"

    def _known(self, *names: str) -> Iterator[str]:
        yield from (self._modules[name] for name in names if name in self._modules)

    def _text(self, path: str) -> str:
        return (self._root / path).read_text("utf-8")


def _dotted(path: str) -> str:
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
