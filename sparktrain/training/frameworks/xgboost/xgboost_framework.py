"""XGBoost as a framework. Imports nothing of it."""

from sparktrain.training.frameworks.contract import Framework

_NO_MEMORY = ("bad_alloc", "emory allocation error", "out of memory", "OutOfMemory")
"""Of its allocator on the host, of CUDA, and of RMM."""


class XGBoost(Framework):
    """See base class. `seed` is a parameter of a training, and it takes GPU memory as it needs it, without a limit."""

    module = "xgboost"

    def is_out_of_memory(self, error: BaseException) -> bool:
        """See base class."""
        return type(error).__name__ == "XGBoostError" and any(mark in str(error) for mark in _NO_MEMORY)
