"""The step of a `fit` of Keras on PyTorch in a gang that heals: see `HealingStep`."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from sparktrain.training.checkpoint.process_generators import assign_drawn, drawn_states
from sparktrain.training.checkpoint.tensor_files import Array, TensorFiles
from sparktrain.training.collectives.ring import Ring
from sparktrain.training.collectives.ring_healing import RingHealing
from sparktrain.training.frameworks.keras import model_state
from sparktrain.training.frameworks.keras.healing.healing_step import GRADIENTS, HealingStep, early_metrics
from sparktrain.training.frameworks.keras.healing.step_values import StepValues
from sparktrain.training.frameworks.keras.start_check import FIRST

_GENERATOR = "sent/torch"
"""The name, in the files with a state, of the state of PyTorch's generator."""


def healing_step(model: Any, healing: RingHealing) -> "TorchStep | None":
    """See `Framework.fits`. None on GPUs, and where the group is one that the members cannot leave."""
    ring: Any = healing.ring  # of torch
    on_host = all(parameter.device.type == "cpu" for parameter in (*model.parameters(), *model.buffers()))
    if not on_host or not (healing.waits or (ring.can_leave and ring.is_alone)):
        return None
    return TorchStep(model, healing)


class TorchStep(HealingStep):
    """See base class. Keras has read the batch before it calls the step, and passes a list with it."""

    def __init__(self, model: Any, healing: RingHealing) -> None:
        super().__init__(model, HostValues(model, healing.ring), healing.ring.continuity)
        self._batch: Any = None
        self._names: set[str] = set()
        """Of the collectives that steps have called."""

    @property
    def repeats_alone(self) -> bool:
        """Whether steps have averaged gradients alone, but for the check before the first one."""
        return self._names <= {GRADIENTS, FIRST}

    def train_by_itself(self) -> None:
        """Train the newest batch, without any effect of the others."""
        with self._continuity.by_itself():
            self._train_again()

    def _take(self, source: list[Any] | Iterator[Any]) -> None:
        self._batch = source[0] if isinstance(source, list) else next(source)

    def _train_next(self) -> Any:
        return self._train_again()

    def _train_again(self) -> Any:
        self.values.keep_now()
        self._continuity.names.clear()
        try:
            with early_metrics(self._model):
                return self._model.train_step(self._batch)
        finally:
            self._names |= self._continuity.names

    def _pass_over(self) -> None:
        pass  # Keras has read it


class HostValues(StepValues):
    """See base class. In host memory, with the states of the generators that a step may draw from."""

    def __init__(self, model: Any, ring: Ring) -> None:
        super().__init__(model, ring)
        self._members = np.zeros((ring.size, sum(self._sizes)), "float32")
        self._copies = list(map(model_state.value, self._changed))
        self.keep_now()

    def keep_now(self) -> None:
        """Copy the values to host memory, in the memory of the copies before."""
        for variable, copy in zip(self._changed, self._copies, strict=True):
            model_state.value(variable, copy)
        self._rate_then = self._rate_now()
        self._drawn = drawn_states(), torch.get_rng_state()

    def put_back(self) -> None:
        """Return to the copies."""
        for variable, copy in zip(self._changed, self._copies, strict=True):
            variable.assign(copy)
        of_process, of_torch = self._drawn
        assign_drawn(of_process)
        torch.set_rng_state(of_torch)

    def has_same_rate(self) -> bool:
        """Whether the learning rate is that of the newest copies."""
        return self._rate_now() == self._rate_then

    def _rate_now(self) -> float:
        return 0.0 if self._rate is None else float(self._rate.numpy())

    def sent(self) -> torch.Tensor:
        """See base class. Zeros but for this member's row: the sum over the members has all rows, to the bit."""
        rows = np.zeros_like(self._members)
        parts = [model_state.view(variable).reshape(-1) for variable in self._travelling.values()]
        rows[self._ring.rank] = np.concatenate(parts)
        return torch.from_numpy(rows)

    def receive(self, total: torch.Tensor) -> None:
        """Take the rows of all members."""
        self._members = total.numpy()

    @property
    def members(self) -> Array:
        """The newest rows, in host memory."""
        return self._members

    def assign_members(self, rows: Array) -> None:
        """Continue with the rows of another member."""
        self._members = rows

    def drawn(self) -> dict[str, Array]:
        """The state of PyTorch's generator of the CPU, which dropout without a seed draws from."""
        return {_GENERATOR: torch.get_rng_state().numpy().copy()}

    def assign_drawn(self, files: TensorFiles) -> None:
        """Continue with the generator of another member."""
        torch.set_rng_state(torch.from_numpy(files.read(_GENERATOR)))
