"""JAX as a framework. Imports nothing of it."""

from sparktrain.training.frameworks.contract import Framework

_NO_MEMORY = "RESOURCE_EXHAUSTED"
_ERRORS = frozenset({"XlaRuntimeError", "JaxRuntimeError"})


class Jax(Framework):
    """See base class. It has no global generator: a function makes its keys from `ctx.seed`, by `ctx.jax_key()`."""

    module = "jax"

    def seed(self, value: int) -> None:
        """See base class."""

    def limit_gpu_memory(self, mib: int) -> None:
        """See base class."""

    def is_out_of_memory(self, error: BaseException) -> bool:
        """See base class."""
        return type(error).__name__ in _ERRORS and _NO_MEMORY in str(error)

    def is_broken_collective(self, error: BaseException) -> bool:
        """See base class."""
        return False
