"""What the steps of a user's loop change in objects of PyTorch: see `LoopSteps`."""

import copy
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from sparktrain.training.checkpoint.tensor_files import Array, TensorFiles
from sparktrain.training.collectives.ring import Ring
from sparktrain.training.collectives.ring_healing import RingHealing
from sparktrain.training.elastic.loop_steps import LoopSteps
from sparktrain.training.frameworks.torch import torch_state
from sparktrain.training.frameworks.torch.resumable_loader import ResumableLoader, reads_unknown
from sparktrain.training.frameworks.torch.state_packing import GENERATOR
from sparktrain.training.frameworks.torch.torch_distribution import connect_again, distributed_models
from sparktrain.training.frameworks.torch.torch_state import NotedState, states_in


def loop_steps(parts: Sequence[Any], healing: RingHealing) -> "TorchLoopSteps | None":
    """See `Framework.loops`. None for parts without a model of `ctx.distribute`, and on GPUs."""
    if healing.ring.framework != "torch" or not any(True for _ in distributed_models(parts)):
        return None
    steps = TorchLoopSteps(parts, healing)
    ring: Any = healing.ring  # of torch
    return steps if steps.is_on_host and ring.can_leave else None


class TorchLoopSteps(LoopSteps):
    """See base class. Of a loader it notes the position, and leaves a running iteration alone."""

    def __init__(self, parts: Sequence[Any], healing: RingHealing) -> None:
        self._parts = list(parts)
        self._ring: Any = healing.ring
        modules = [part for part in parts if isinstance(part, torch.nn.Module)]
        self._parameters = [parameter for module in modules for parameter in module.parameters()]
        self._buffers = [buffer for module in modules for buffer in module.buffers()]
        self._kept = [_Kept(self._buffers), _Kept(self._buffers)]
        self._version = 0
        self._states: list[Any] = [None] * len(self._parts)
        """For each part but modules, what was noted of it."""
        self._generator = torch.get_rng_state()

    @property
    def is_on_host(self) -> bool:
        """Whether all tensors of the modules are in host memory."""
        return all(tensor.device.type == "cpu" for tensor in (*self._parameters, *self._buffers))

    def start(self) -> None:
        """See base class."""

    def end(self) -> None:
        """See base class."""

    @property
    def is_quiet(self) -> bool:
        """See base class."""
        return bool(self._ring.is_alone)

    @property
    def warms_up(self) -> bool:
        """See base class. `DistributedDataParallel` changes the order of gradients after its first step.

        A sum over two members does not depend on their order.
        """
        return bool(self._ring.size > 2)

    @property
    def drawn(self) -> int:
        """See base class."""
        return zlib.crc32(torch.get_rng_state().numpy().data)

    def obstacle(self) -> str:
        """See base class."""
        if reads_unknown(self._parts):
            return "pass its DataLoader to ctx.memory_checkpoints() and ctx.checkpoint.restore(), beside the model"
        return "" if self.is_applied() else "the step changes no weights of the block's objects"

    def check_equal(self, ring: Ring) -> None:
        """See base class."""
        torch_state.check_equal(ring, self._parts)

    def note(self, values: Mapping[str, Any]) -> None:
        """See base class."""
        self._generator = torch.get_rng_state()
        for index, part in enumerate(self._parts):
            if isinstance(part, torch.optim.Optimizer):
                self._states[index] = [_settings(group) for group in part.param_groups]
            elif isinstance(part, ResumableLoader):
                self._states[index] = part.open_state_dict()
            elif not isinstance(part, torch.nn.Module):
                self._states[index] = copy.deepcopy(part.state_dict())

    def keep(self) -> None:
        """See base class."""
        self._version = self._versions()
        self._kept.reverse()
        self._kept[0].keep()

    def put_back(self, ago: int) -> None:
        """See base class."""
        for parameter in self._parameters:
            parameter.grad = None
        self._kept[ago].put_back()

    def rebase(self) -> None:
        """See base class."""
        self._version = self._versions()
        self._kept[0].keep()

    def is_applied(self) -> bool:
        """See base class."""
        return self._versions() != self._version

    def _versions(self) -> int:
        return sum(parameter._version for parameter in self._parameters)

    def parts(self) -> Sequence[Any]:
        """See base class."""
        return [self._noted(part, state) for part, state in zip(self._parts, self._states, strict=True)]

    def _noted(self, part: Any, state: Any) -> Any:
        if isinstance(part, torch.nn.Module):
            return part
        if not isinstance(part, torch.optim.Optimizer):
            return NotedState(part, state)
        present = part.state_dict()
        groups = [{**group, **noted} for group, noted in zip(present["param_groups"], state, strict=True)]
        return NotedState(part, {**present, "param_groups": groups})

    def completed(self, tensors: Mapping[str, Array], ranks: Sequence[int]) -> dict[str, Array]:
        """See base class. Buffers are those of rank 0 in each step."""
        return {**tensors, GENERATOR: self._generator.numpy()}

    def rejoin(self) -> None:
        """See base class."""
        for distributed in distributed_models(self._parts):
            connect_again(distributed)

    def arrive(self, files: TensorFiles) -> None:
        """See base class. The loop has restored all, and the models of a process that waited had no connections."""
        self.rejoin()

    def present(self) -> Any:
        """See base class."""
        states = [copy.deepcopy(part.state_dict()) for part in self._stepped()]
        gradients = [parameter.grad for parameter in self._parameters]
        return states, gradients, torch.get_rng_state(), self._versions()

    def take(self, present: Any) -> None:
        """See base class."""
        states, gradients, generator, versions = present
        for part, state in zip(self._stepped(), states, strict=True):
            part.load_state_dict(state)
        for parameter, gradient in zip(self._parameters, gradients, strict=True):
            parameter.grad = gradient
        torch.set_rng_state(generator)
        # What a step in between has changed is undone: it does not count as one that this member has applied.
        self._version += self._versions() - versions

    def take_over(self, files: TensorFiles) -> None:
        """See base class."""
        for part, state in zip(self._parts, states_in(files), strict=True):
            if isinstance(part, torch.nn.parallel.DistributedDataParallel):
                part.module.load_state_dict(state)
            elif isinstance(part, torch.nn.Module | torch.optim.Optimizer):
                part.load_state_dict(state)

    def _stepped(self) -> Iterator[Any]:
        """The parts that a step may change."""
        return (part for part in self._parts if not isinstance(part, ResumableLoader))


class _Kept:
    """Buffers, and the generator, at one time."""

    def __init__(self, buffers: Sequence[torch.Tensor]) -> None:
        self._buffers = list(buffers)
        self._copies = [buffer.detach().clone() for buffer in buffers]
        self._generator = torch.get_rng_state()

    def keep(self) -> None:
        """Copy what there is now."""
        for target, buffer in zip(self._copies, self._buffers, strict=True):
            target.copy_(buffer)
        self._generator = torch.get_rng_state()

    def put_back(self) -> None:
        """Return to the copies."""
        with torch.no_grad():
            for target, buffer in zip(self._copies, self._buffers, strict=True):
                buffer.copy_(target)
        torch.set_rng_state(self._generator)


def _settings(group: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of what a group of an optimizer has beside its parameters, such as the learning rate."""
    return copy.deepcopy({name: value for name, value in group.items() if name != "params"})
