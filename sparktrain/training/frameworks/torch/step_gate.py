"""Has the next step of PyTorch's optimizers wait while a thread copies what they update."""

import threading
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook

from sparktrain.training.checkpoint.retention import Retention
from sparktrain.training.frameworks.torch.split_tensors import is_distributed

_SMALLEST = 2**16
"""Bytes: smaller tensors are copied at once."""
WAIT_S = 30.0
"""How long a step waits at most. Then it continues, and the copy does not count."""


class StepGate(Retention):
    """The gate of one copy. The thread that trains makes it, another one ends it."""

    def __init__(self, tensors: Sequence[torch.Tensor]) -> None:
        """`tensors` are what the other thread copies."""
        self._versions = [(tensor, tensor._version) for tensor in tensors]
        self._open = threading.Event()
        self._overtaken = False
        _shut(self)

    def wait(self) -> None:
        """An optimizer is about to step: block until the copy is made."""
        if not self._open.wait(WAIT_S):
            self._overtaken = True

    def end(self) -> bool:
        """See base class. PyTorch counts what writes to a tensor, unless it is by way of `tensor.data`."""
        intact = not self._overtaken and all(tensor._version == version for tensor, version in self._versions)
        self._versions = []
        self._open.set()
        return intact


def updated_tensors(parts: Sequence[Any]) -> list[torch.Tensor]:
    """What the optimizers among `parts` update: weights and slots in the memory of the CPU, but for small ones."""
    return [
        tensor
        for part in parts
        if isinstance(part, torch.optim.Optimizer)
        for tensor in _all_tensors(part)
        if _is_plain(tensor) and tensor.nbytes >= _SMALLEST
    ]


def _all_tensors(optimizer: torch.optim.Optimizer) -> Iterator[torch.Tensor]:
    for group in optimizer.param_groups:
        yield from group["params"]
    for slots in optimizer.state.values():
        if isinstance(slots, dict):
            yield from (slot for slot in slots.values() if isinstance(slot, torch.Tensor))


def _is_plain(tensor: torch.Tensor) -> bool:
    return (
        not is_distributed(tensor)
        and tensor.device.type == "cpu"
        and tensor.layout is torch.strided
        and tensor.is_contiguous()
        and not (tensor.is_quantized or tensor.is_conj() or tensor.is_neg() or tensor.is_inference())
    )


_gates: list[StepGate] = []
"""The newest one, where there is one."""


def _shut(gate: StepGate) -> None:
    if not _gates:
        # For good: to remove a hook while a step calls them breaks that step.
        register_optimizer_step_pre_hook(_wait_at_gate)
    _gates[:] = [gate]


def _wait_at_gate(*_: Any) -> None:
    _gates[0].wait()
