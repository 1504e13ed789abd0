"""TensorFlow, and Horovod for it, as a framework. Imports neither."""

import sys
from typing import Any

from sparktrain.base.patched_imports import patch_when_imported
from sparktrain.errors import EnvironmentMismatchError
from sparktrain.training.frameworks.contract import Framework

_RING_MARKS = (
    "sparktrain_ring",  # in the name of the failed operation of a graph
    "RingError: ",  # raised within tf.numpy_function
    "Collective ops is aborted by",
    "Horovod has been shut down",
    "HorovodAllreduce",
    "HorovodGroupedAllreduce",
    "HorovodAllgather",
    "HorovodBroadcast",
)


# Which one a member gets depends on its place: a neighbor of the lost one in the ring sees its connection reset after
# 0.1 s, and others miss its heartbeats after 7 s.
_LOST = ("UnavailableError", "AbortedError", "DeadlineExceededError")
_LOST_WORDS = ("Collective ops is aborted", "stopped sending heartbeats", "coordination service")
_FOLDER = "sparktrain.training.frameworks.tensorflow"


class TensorFlow(Framework):
    """See base class."""

    module = "tensorflow"
    joins = (f"{_FOLDER}.horovod_names.import_hook", f"{_FOLDER}.strategies.strategy")
    values = f"{_FOLDER}.optimizers.tensorflow_values"
    data = f"{_FOLDER}.data.tensorflow_feeds"
    fits = f"{_FOLDER}.healing.graph_step"

    def seed(self, value: int) -> None:
        """See base class."""
        sys.modules[self.module].random.set_seed(value)

    def limit_gpu_memory(self, mib: int, total_mib: int) -> None:
        """See base class."""
        patch_when_imported(self.module, lambda tensorflow: _limit(tensorflow, mib))

    def is_out_of_memory(self, error: BaseException) -> bool:
        """See base class."""
        return type(error).__name__ == "ResourceExhaustedError"

    def is_broken_collective(self, error: BaseException) -> bool:
        """See base class."""
        # Without its classes where an import of TensorFlow has failed, or another thread imports it.
        kind = getattr(getattr(sys.modules.get(self.module), "errors", None), "OpError", None)
        if kind is None or not isinstance(error, kind):
            return False
        return any(mark in str(error) for mark in _RING_MARKS)

    def is_lost_member(self, error: BaseException) -> bool:
        """See base class. Its file systems raise the same types, which is no mistake of the function either."""
        errors = getattr(sys.modules.get(self.module), "errors", None)
        if errors is None:
            return False
        if isinstance(error, tuple(getattr(errors, name) for name in _LOST)):
            return True
        return isinstance(error, errors.OpError) and any(word in str(error) for word in _LOST_WORDS)


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
