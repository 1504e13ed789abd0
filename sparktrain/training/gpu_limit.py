"""Limits how much of a GPU's memory TensorFlow uses in this process."""

from typing import Any

from sparktrain.errors import EnvironmentMismatchError
from sparktrain.patched_imports import patch_when_imported


def limit(mib: int) -> None:
    """Have TensorFlow use `mib` MiB of each GPU that this process sees: now, or right after its import.

    Call it once the devices of the process are chosen, and before TensorFlow has initialised them: it never does so in
    a zygote. Raises EnvironmentMismatchError.
    """
    patch_when_imported("tensorflow", lambda tensorflow: _limit(tensorflow, mib))


def _limit(tensorflow: Any, mib: int) -> None:
    gpus = tensorflow.config.list_physical_devices("GPU")
    if not gpus:
        raise EnvironmentMismatchError(
            f"gpu_memory ({mib} MiB) limits TensorFlow on a GPU, and TensorFlow {tensorflow.__version__} sees none in "
            "this process: install tensorflow[and-cuda] on the executors, with a driver of NVIDIA that it supports, or "
            "leave gpu_memory out"
        )
    # A logical device with a limit, and not memory that grows: that would take the slices of other trials on the GPU.
    part = [tensorflow.config.LogicalDeviceConfiguration(memory_limit=mib)]
    try:
        for gpu in gpus:
            tensorflow.config.set_logical_device_configuration(gpu, part)
    except RuntimeError as error:  # its devices are initialised
        raise EnvironmentMismatchError(
            f"gpu_memory ({mib} MiB) cannot limit TensorFlow once it has run an operation ({error}): move what runs "
            "one at the import of a module into the training function"
        ) from error
