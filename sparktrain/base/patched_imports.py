"""Changes what imports of single modules give in this process: a module patched when it is imported, or another one.

A hook stands first in `sys.meta_path`, names modules, and leaves all others to Python.
"""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

ModuleAction = Callable[[ModuleType], None]
_NONE: Mapping[str, Any] = {}


class LoaderAround(Loader):
    """Does what `loader` does; subclasses change how it executes a module."""

    # Around the loader, which stays as it is: modules of a zip archive share one, and a changed one would change all
    # modules of PySpark where it comes from an archive.

    def __init__(self, loader: Any) -> None:
        self._loader = loader

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """See base class."""
        created: ModuleType | None = self._loader.create_module(spec)
        return created

    def exec_module(self, module: ModuleType) -> None:
        """See base class."""
        self._loader.exec_module(module)


class ImportHook(MetaPathFinder):
    """Gives some modules a loader of its own."""

    def __init__(
        self, *, around: Mapping[str, Callable[[Any], Loader]] = _NONE, filled: Mapping[str, ModuleAction] = _NONE
    ) -> None:
        """`around` makes loaders from those of Python; `filled` fills modules that are empty."""
        self._around = around
        self._filled = filled

    def install(self) -> None:
        """Use the hook for later imports in this process. A second call changes nothing."""
        if self not in sys.meta_path:
            sys.meta_path.insert(0, self)

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Use the hook for imports within this context."""
        self.install()
        try:
            yield
        finally:
            with suppress(ValueError):  # the user's code has removed it
                sys.meta_path.remove(self)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """See base class."""
        if (fill := self._filled.get(fullname)) is not None:
            is_package = any(name.startswith(f"{fullname}.") for name in self._filled)
            return ModuleSpec(fullname, _FillingLoader(fill), is_package=is_package)
        if fullname not in self._around:
            return None
        # The finders behind this one, and not Python's search for files alone: two hooks may name the same module, as
        # those for the user's classes and for old programs do with Keras.
        finders = list(sys.meta_path)  # another thread may remove this hook meanwhile
        behind = finders[finders.index(self) + 1 :] if self in finders else finders
        for finder in behind:
            find = getattr(finder, "find_spec", None)  # a finder of an old library has none, and Python skips it
            spec: ModuleSpec | None = None if find is None else find(fullname, path, target)
            if spec is not None:
                if spec.loader is not None:
                    spec.loader = self._around[fullname](spec.loader)
                return spec
        return None


def patch_when_imported(name: str, patch: ModuleAction) -> None:
    """Call `patch` with the module `name`: at once where it is imported, or else right after its import, if any."""
    if name in sys.modules:
        patch(sys.modules[name])
    else:
        ImportHook(around={name: patching(patch)}).install()


def patching(patch: ModuleAction) -> Callable[[Any], Loader]:
    """Makes loaders that load a module as they would without it, and then call `patch` with the module."""
    return lambda loader: _PatchingLoader(loader, patch)


class _PatchingLoader(LoaderAround):
    def __init__(self, loader: Any, patch: ModuleAction) -> None:
        super().__init__(loader)
        self._patch = patch

    def exec_module(self, module: ModuleType) -> None:
        """See base class."""
        super().exec_module(module)
        self._patch(module)


class _FillingLoader(Loader):
    """Makes an empty module, and has `fill` fill it."""

    def __init__(self, fill: ModuleAction) -> None:
        self._fill = fill

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """See base class."""
        return None

    def exec_module(self, module: ModuleType) -> None:
        """See base class."""
        self._fill(module)
