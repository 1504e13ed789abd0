"""Limits how much of a GPU's memory TensorFlow uses in this process."""

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

from sparktrain.errors import EnvironmentMismatchError
from sparktrain.training.patched_import import PatchingLoader

_TENSORFLOW = "tensorflow"


def limit(mib: int) -> None:
    """Have TensorFlow use `mib` MiB of each GPU that this process sees: now, or right after its import.

    Call it once the devices of the process are chosen, and before TensorFlow has initialised them: it never does so in
    a zygote. Raises EnvironmentMismatchError.
    """
    if (imported := sys.modules.get(_TENSORFLOW)) is not None:
        _limit(imported, mib)
    else:
        sys.meta_path.insert(0, _Finder(mib))


class _Finder(MetaPathFinder):
    """Finds TensorFlow as Python does, with a loader that sets the limit after the import."""

    def __init__(self, mib: int) -> None:
        self._mib = mib

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """See base class."""
        spec = PathFinder.find_spec(fullname, path, target) if fullname == _TENSORFLOW else None
        if spec is not None and spec.loader is not None:
            spec.loader = PatchingLoader(spec.loader, lambda imported: _limit(imported, self._mib))
        return spec


def _limit(tensorflow: Any, mib: int) -> None:
    gpus = tensorflow.config.list_physical_devices("GPU")
    if not gpus:
        raise EnvironmentMismatchError(
            f"gpu_memory ({mib} MiB) limits TensorFlow on a GPU, and TensorFlow {tensorflow.__version__} sees none in "
            "this process: install tensorflow[and-cuda] on the executors, with a driver of NVIDIA that it supports, or "
            "leave gpu_memory out"
        )
    part = [tensorflow.config.LogicalDeviceConfiguration(memory_limit=mib)]
    try:
        for gpu in gpus:
            tensorflow.config.set_logical_device_configuration(gpu, part)
    except RuntimeError as error:  # its devices are initialised
        raise EnvironmentMismatchError(
            f"gpu_memory ({mib} MiB) cannot limit TensorFlow once it has run an operation ({error}): move what runs "
            "one at the import of a module into the training function"
        ) from error
