"""Changes a module right after its import: for modules of libraries that may be imported later, or never."""

from collections.abc import Callable
from importlib.abc import Loader
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any


class PatchingLoader(Loader):
    """Loads a module as `loader` does, and then calls `patch` with it.

    Modules of a zip archive share one loader, which stays as it is.
    """

    def __init__(self, loader: Any, patch: Callable[[ModuleType], None]) -> None:
        self._loader = loader
        self._patch = patch

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """See base class."""
        created: ModuleType | None = self._loader.create_module(spec)
        return created

    def exec_module(self, module: ModuleType) -> None:
        """See base class."""
        self._loader.exec_module(module)
        self._patch(module)
