"""Changes a module right after its import: for modules of libraries that may be imported later, or never."""

from collections.abc import Callable
from types import ModuleType
from typing import Any

from sparktrain.deferred_wrappers import LoaderAround


class PatchingLoader(LoaderAround):
    """Loads a module as `loader` does, and then calls `patch` with it."""

    def __init__(self, loader: Any, patch: Callable[[ModuleType], None]) -> None:
        super().__init__(loader)
        self._patch = patch

    def exec_module(self, module: ModuleType) -> None:
        """See base class."""
        self._loader.exec_module(module)
        self._patch(module)
