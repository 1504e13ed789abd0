"""PyTorch as a framework. Imports nothing of it."""

import sys
from collections.abc import Sequence
from typing import Any

from sparktrain.base.patched_imports import patch_when_imported
from sparktrain.errors import EnvironmentMismatchError
from sparktrain.training.frameworks.contract import Framework, contains
from sparktrain.training.own_devices import has_torch_devices

_CPU_ALLOCATOR = "DefaultCPUAllocator: can't allocate memory"
_GLOO = "gloo/gloo/"
_MIB = 2**20


class Torch(Framework):
    """See base class."""

    module = "torch"
    joins = (
        "sparktrain.training.frameworks.torch.horovod_torch",
        "sparktrain.training.frameworks.torch.lone_group",
        "sparktrain.training.frameworks.torch.unsplit_saves",
    )
    values = "sparktrain.training.frameworks.torch.torch_values"
    distribution = "sparktrain.training.frameworks.torch.torch_distribution"
    arrays = "sparktrain.training.frameworks.torch.split_tensors"
    data = "sparktrain.training.frameworks.torch.torch_feeds"
    schedules = "sparktrain.training.frameworks.torch.torch_distribution"
    loops = "sparktrain.training.frameworks.torch.torch_loop"
    fits = "sparktrain.training.frameworks.torch.keras_step"
    state = "sparktrain.training.frameworks.torch.torch_state"

    def keeps(self, value: object) -> bool:
        """See base class. Anything with `state_dict`, but for a Keras model on PyTorch."""
        return not _is_of_keras(value) and all(
            callable(getattr(value, name, None)) for name in ("state_dict", "load_state_dict")
        )

    def check_parts(self, parts: Sequence[object]) -> None:
        """See base class. Refuse `ZeroRedundancyOptimizer`, and operations that Gloo lacks."""
        kind = getattr(sys.modules.get("torch.distributed.optim"), "ZeroRedundancyOptimizer", ())
        if any(isinstance(part, kind) for part in parts):
            raise TypeError(
                "ZeroRedundancyOptimizer cannot be saved: each member has the state of some parameters, and no "
                "state_dict() has all of it. Use the optimizer itself, such as torch.optim.AdamW(model.parameters()), "
                "and fully_shard(model) before it: then each member holds and saves its part of both"
            )
        if "torch.distributed.fsdp" in sys.modules:
            from sparktrain.training.frameworks.torch.gloo_reductions import check_reductions

            check_reductions(parts)

    def owns(self, value: object) -> bool:
        """See base class. A Keras model on PyTorch is one of Keras."""
        torch = sys.modules.get(self.module)
        kinds = (torch.nn.Module, torch.optim.Optimizer) if torch is not None else ()
        return isinstance(value, kinds) and not _is_of_keras(value)

    def owns_data(self, value: object) -> bool:
        """See base class. Lists and dicts of its tensors too."""
        torch = sys.modules.get(self.module)
        if torch is None:
            return False
        return contains(value, (torch.Tensor, torch.utils.data.DataLoader, torch.utils.data.Dataset))

    def _tensor_types(self) -> tuple[type, ...]:
        torch = sys.modules.get(self.module)
        return () if torch is None else (torch.Tensor,)

    def seed(self, value: int) -> None:
        """See base class. Those of its GPUs too, once they are initialised."""
        torch = sys.modules[self.module]
        # For devices that are not initialised it formats the stack of its caller: 3 ms and 600 page faults.
        if has_torch_devices():
            torch.manual_seed(value)
        else:
            torch.default_generator.manual_seed(value)

    def limit_gpu_memory(self, mib: int, total_mib: int) -> None:
        """See base class. Torch's limit is a fraction of the memory of each device."""
        patch_when_imported(self.module, lambda torch: _limit(torch, mib))

    def is_out_of_memory(self, error: BaseException) -> bool:
        """See base class."""
        if type(error) is RuntimeError:  # a class of the user's may have a text that raises
            return _CPU_ALLOCATOR in str(error)
        return type(error).__name__ == "OutOfMemoryError"

    def is_broken_collective(self, error: BaseException) -> bool:
        """See base class. Gloo has no class for its errors, and names its source in each."""
        if type(error).__name__ == "HorovodInternalError":  # of horovod.torch
            return True
        kind = getattr(sys.modules.get("torch.distributed"), "DistError", None)
        if kind is not None and isinstance(error, kind):
            return True
        return type(error) is RuntimeError and _GLOO in str(error)


def _is_of_keras(value: object) -> bool:
    return any(kind.__module__.startswith("keras.") for kind in type(value).__mro__)


def _limit(torch: Any, mib: int) -> None:
    count = torch.cuda.device_count()
    if not count:
        raise EnvironmentMismatchError(
            f"gpu_memory ({mib} MiB) limits PyTorch on a GPU, and PyTorch {torch.__version__} sees none in this "
            "process: install a build of torch for CUDA on the executors, with a driver of NVIDIA that it supports, or "
            "leave gpu_memory out"
        )
    # Torch caches what it has taken, and takes no more than its fraction: without one, the cache of a trial would fill
    # the slices of its neighbors.
    for device in range(count):
        total = torch.cuda.get_device_properties(device).total_memory
        torch.cuda.set_per_process_memory_fraction(min(1.0, mib * _MIB / total), device)
