"""Libraries that boost trees as frameworks. Imports none of them."""

from sparktrain.training.frameworks.contract import Framework


class BoostingFramework(Framework):
    """See base class. `seed` is a parameter of a training, and it takes GPU memory as it needs it, without a limit."""

    def __init__(self, module: str, error: str, no_memory: tuple[str, ...]) -> None:
        """`error` is the name of its class of errors, and `no_memory` what is in those for a lack of memory."""
        self.module = module
        self._error = error
        self._no_memory = no_memory

    def is_out_of_memory(self, error: BaseException) -> bool:
        """See base class."""
        return type(error).__name__ == self._error and any(mark in str(error) for mark in self._no_memory)


# The marks are those of its allocator on the host, of CUDA, and of RMM or OpenCL.
XGBOOST = BoostingFramework(
    "xgboost", "XGBoostError", ("bad_alloc", "emory allocation error", "out of memory", "OutOfMemory")
)
LIGHTGBM = BoostingFramework(
    "lightgbm", "LightGBMError", ("bad_alloc", "out of memory", "CL_MEM_OBJECT_ALLOCATION_FAILURE")
)
