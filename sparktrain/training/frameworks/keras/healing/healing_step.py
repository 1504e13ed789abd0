"""The step of `fit` in a gang that heals: it takes the place of Keras's own train function, and can be repeated."""

import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sparktrain.training.checkpoint.tensor_files import TensorFiles
from sparktrain.training.collectives.continuity import Continuity
from sparktrain.training.collectives.ring_errors import is_ring_error
from sparktrain.training.frameworks.keras import model_state
from sparktrain.training.frameworks.keras.healing.step_values import MEMBERS, StepValues, shared_variables
from sparktrain.training.frameworks.keras.keras_patches import as_written

GRADIENTS = "gradients"
"""Prefix of the names of collectives that a step may have: others change what it does before them."""


class SteppedFit(ABC):
    """What a `HealingStep` asks of the `fit` that it belongs to."""

    @abstractmethod
    def arrive(self) -> bool:
        """The first step of this process is about to start, once it is traced: whether it trains its batch.

        If not, this member has the state after the step.
        """

    @abstractmethod
    def before_step(self) -> None:
        """A step is about to start."""

    @abstractmethod
    def heal(self, error: BaseException) -> bool:
        """The ring has failed with `error`, which is raised where the training cannot continue. Returns as `arrive`."""

    @abstractmethod
    def end_step(self) -> None:
        """A step has ended."""


class HealingStep(ABC):
    """Trains one batch that `fit` passes, and keeps it until its step has ended.

    It belongs to the thread that trains. A framework adds how batches are read, and how one is trained.
    """

    fit: SteppedFit
    """Set before the first step."""
    needs_compiler = False
    """Whether it is the step of a model with `jit_compile=True`."""
    moves = True
    """Whether a process can be prepared for a place in the ring while others train."""

    def __init__(self, model: Any, values: StepValues, continuity: Continuity) -> None:
        self.values = values
        self._model = model
        self._continuity = continuity
        self._arrived = False
        self._retired = False
        self._replacement: Any = None
        """An iterator over what is left of the data: its batches take the place of those of a broken step."""

    def retire(self) -> None:
        """Train without healing from now on: another `fit` of the model uses the step."""
        self._retired = True

    def __call__(self, data: Any) -> Any:
        """The logs of the step. Raises StopIteration at the end of the data, and what training raises."""
        self._take(data)
        self._replacement = None
        if self._retired:
            return self._train_next()
        trains = True
        if not self._arrived:
            self._arrived = True
            # Tracing calls collectives that the others called when they traced: until it ends they are echoes.
            self._trace()
            trains = self.fit.arrive()
        self.fit.before_step()
        self._replace()
        outputs = None
        if trains:
            outputs = self._trained()
        else:
            self._pass_over()
        self.fit.end_step()
        return self._model.get_metrics_result() if outputs is None else outputs

    def read_from(self, iterator: Any) -> None:
        """Read from `iterator` from now on, also in a step that is repeated: fewer members divide the data."""
        self._replacement = iterator

    def make_room(self) -> threading.Thread | None:
        """Have a thread get the memory that a step needs; None where none is needed. Does not block."""
        return None

    def prepare(self, spec: Any) -> None:  # noqa: B027 - for a step that is traced
        """Trace the step for batches of `spec` before there is one."""

    @property
    @abstractmethod
    def repeats_alone(self) -> bool:
        """Whether a member can train a batch by itself for what a step changes beside the weights: all collectives of
        the steps so far are averages of gradients."""

    @abstractmethod
    def train_by_itself(self) -> None:
        """Train the newest batch without the others: for what the step changes beside weights and optimizer."""

    def take_over(self, files: TensorFiles) -> None:
        """Take weights, optimizer, and all members' own values from a member that has applied the newest step."""
        self.train_by_itself()
        for name, variable in shared_variables(self._model, model_state.member_variables(self._model)).items():
            model_state.set_value(variable, model_state.stored(files, name))
        self.values.assign_members(files.read(MEMBERS))

    @abstractmethod
    def _take(self, source: Any) -> None:
        """The next step trains the next batch of `source`, which `fit` has passed or `read_from` has named."""

    def _trace(self) -> None:  # noqa: B027 - for a step that is traced
        """Trace the next step, if it is not traced yet."""

    @abstractmethod
    def _train_next(self) -> Any:
        """Train the next batch; the logs."""

    @abstractmethod
    def _train_again(self) -> Any:
        """Train the newest batch again; the logs."""

    @abstractmethod
    def _pass_over(self) -> None:
        """Read the next batch, and train nothing."""

    def _replace(self) -> bool:
        """Read from what `read_from` has named; whether there is such an iterator."""
        if self._replacement is None:
            return False
        self._take(self._replacement)
        self._replacement = None
        return True

    def _trained(self) -> Any:
        train = self._train_next
        while True:
            try:
                return train()
            except Exception as error:
                if not is_ring_error(error):
                    raise
                broken = error
            if not self.fit.heal(broken):
                return None
            train = self._train_next if self._replace() else self._train_again


@contextmanager
def early_metrics(model: Any) -> Iterator[None]:
    """Have a step within the block update the metrics of `compile()` before its collective.

    Keras does it after the optimizer: then what members send beside their gradients would lack the step in metrics.
    """
    metrics = model._compile_metrics
    if metrics is None:
        yield
        return
    compute_loss = model._compute_loss
    update = metrics.update_state

    @as_written
    def compute(**arguments: Any) -> Any:
        loss = compute_loss(**arguments)
        update(arguments["y"], arguments["y_pred"], arguments["sample_weight"])
        return loss

    model._compute_loss = compute
    metrics.update_state = as_written(lambda *arguments, **weights: None)
    try:
        yield
    finally:
        del model._compute_loss
        del metrics.update_state
