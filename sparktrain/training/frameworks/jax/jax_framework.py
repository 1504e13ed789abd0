"""JAX as a framework. Imports nothing of it."""

import os
import re
import sys
from typing import Any

from sparktrain.base.patched_imports import patch_when_imported
from sparktrain.errors import EnvironmentMismatchError
from sparktrain.training.frameworks.contract import Framework

_NO_MEMORY = "RESOURCE_EXHAUSTED"
_ERRORS = frozenset({"XlaRuntimeError", "JaxRuntimeError"})
_COLLECTIVE_ERRORS = _ERRORS | {"ValueError"}
_COLLECTIVE = re.compile(r"Gloo \w+ failed|gloo/gloo/|NCCL (?:operation|error)")
_FRACTION = "XLA_PYTHON_CLIENT_MEM_FRACTION"


class Jax(Framework):
    """See base class. It has no global generator: a function makes its keys from `ctx.seed`, by `ctx.jax_key()`."""

    module = "jax"
    values = "sparktrain.training.frameworks.jax.jax_values"
    fits = "sparktrain.training.frameworks.jax.keras_healing"
    loops = "sparktrain.training.frameworks.jax.jax_loop"
    arrays = "sparktrain.training.frameworks.jax.split_arrays"

    def _tensor_types(self) -> tuple[type, ...]:
        jax = sys.modules.get(self.module)
        return () if jax is None else (jax.Array,)

    def limit_gpu_memory(self, mib: int, total_mib: int) -> None:
        """See base class. JAX reads the fraction when it first uses a device; a fraction of the user's own stays."""
        if _FRACTION in os.environ:
            return
        if total_mib:
            os.environ[_FRACTION] = f"{min(1.0, mib / total_mib):.4f}"
        else:
            patch_when_imported(self.module, lambda jax: _refuse(mib))

    def is_out_of_memory(self, error: BaseException) -> bool:
        """See base class."""
        return type(error).__name__ in _ERRORS and _NO_MEMORY in str(error)

    def is_broken_collective(self, error: BaseException) -> bool:
        """See base class. XLA has no class for such errors, and names the operation of Gloo or NCCL in each."""
        return type(error).__name__ in _COLLECTIVE_ERRORS and _COLLECTIVE.search(str(error)) is not None


def jax_key(seed: int) -> Any:
    """A key of JAX, made from the seed of a trial. Imports JAX."""
    import jax

    return jax.random.key(seed % 2**32)


def _refuse(mib: int) -> None:
    raise EnvironmentMismatchError(
        f"gpu_memory ({mib} MiB) limits JAX to a fraction of its GPU, and nvidia-smi does not report how much memory "
        f"that has: check that nvidia-smi works on the executors, set {_FRACTION} in env=, or leave gpu_memory out"
    )
