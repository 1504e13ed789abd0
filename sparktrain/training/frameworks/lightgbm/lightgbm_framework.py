"""LightGBM as a framework. Imports nothing of it."""

from sparktrain.training.frameworks.contract import Framework

_NO_MEMORY = ("bad_alloc", "out of memory", "CL_MEM_OBJECT_ALLOCATION_FAILURE")
"""Of its allocator on the host, of CUDA, and of OpenCL."""


class LightGBM(Framework):
    """See base class. It has no global generator: `seed` is a parameter of a training."""

    module = "lightgbm"

    def seed(self, value: int) -> None:
        """See base class."""

    def limit_gpu_memory(self, mib: int, total_mib: int) -> None:
        """See base class. It takes memory as it needs it, and has no limit to set."""

    def is_out_of_memory(self, error: BaseException) -> bool:
        """See base class."""
        return type(error).__name__ == "LightGBMError" and any(mark in str(error) for mark in _NO_MEMORY)

    def is_broken_collective(self, error: BaseException) -> bool:
        """See base class."""
        return False
