"""The step of a `fit` of Keras on JAX in a gang that heals: see `HealingStep`.

A step has the batches of all members, and leaves equal values on all of them but for their seeds. It changes nothing
in place: a member repeats it with the state and the batch that it has.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import jax
import numpy as np

from sparktrain.training.checkpoint.tensor_files import Array, TensorFiles
from sparktrain.training.collectives.ring import Ring
from sparktrain.training.collectives.ring_healing import RingHealing
from sparktrain.training.frameworks.jax.keras_steps import GlobalApply, GlobalStep, part_of, replacement_of
from sparktrain.training.frameworks.keras import model_state
from sparktrain.training.frameworks.keras.healing.healing_step import HealingStep
from sparktrain.training.frameworks.keras.healing.step_values import StepValues

_STATE = ("trainable_variables", "non_trainable_variables", "optimizer_variables", "metrics_variables")


def healing_step(model: Any, healing: RingHealing) -> "JaxStep | None":
    """See `Framework.fits`. None with other devices than CPUs, and with `keras.distribution`."""
    apply = replacement_of(model)
    if apply is None or jax.default_backend() != "cpu":
        return None
    return JaxStep(model, apply, healing)


class JaxStep(HealingStep):
    """See base class. Keras passes the state of the model beside the iterator, and gets the next one with the logs."""

    values: "ConstantValues"
    needs_compiler = True

    def __init__(self, model: Any, apply: GlobalApply, healing: RingHealing) -> None:
        super().__init__(model, ConstantValues(model, healing.ring), healing.ring.continuity)
        self._apply = apply
        self._healing = healing
        self._rank = healing.ring.rank
        self._iterator: Iterator[Any] = iter(())
        self._batch: Any = None
        self._state: Any = None
        """Before the step, or after it; None where the variables have it."""
        self._in_step = False
        self._global: GlobalStep | None = None
        """Of the devices of the present ring."""
        self._starts = healing.arrival is None
        apply.ring.on_leave.append(self._leave)

    def __call__(self, state: Any, iterator: Iterator[Any]) -> Any:  # type: ignore[override] # as Keras calls it on JAX
        """The logs of the step, and the state after it."""
        self._state = state
        self._in_step = True
        try:
            logs = super().__call__(iterator)
        finally:
            self._in_step = False
        state = self._taken()
        self._model._jax_state_synced = False
        return logs, state

    @property
    def repeats_alone(self) -> bool:
        """True: no member has to."""
        return True

    def train_by_itself(self) -> None:
        """Nothing: the others have all that a step changes."""

    def take_over(self, files: TensorFiles) -> None:
        """Take all values from the other member, but for the seeds."""
        variables = model_state.named(self._model)
        model_state.assign(variables, files, files.document["step"], self._rank)
        self._state = None

    def _leave(self) -> None:
        """The process is about to leave its devices: have the values where they stay, in this process alone."""
        self._put_back_variables()
        self._model.jax_state_sync()
        self._global = None

    def _put_back_variables(self) -> None:
        """Give the variables their values, which Keras has taken out of them for the step."""
        if self._in_step and self._state is not None:
            values = jax.tree.map(lambda value: np.asarray(part_of(value)), self._state)
            self._model._jax_state = dict(zip(_STATE, values, strict=True))
            self._model._jax_state_synced = False
            self._model.jax_state_sync()
            self._state = None

    def _taken(self) -> Any:
        """The state, taken out of the variables where these have it."""
        if self._state is None:
            self._state = self._model._get_jax_state(**dict.fromkeys(_STATE, True), purge_model_variables=True)
        return self._state

    def _trace(self) -> None:
        """What a process calls before its first step, where it takes a place, needs the variables."""
        if self._healing.arrival is not None:
            self._put_back_variables()

    def _take(self, source: Iterator[Any]) -> None:
        self._iterator = source

    def _train_next(self) -> Any:
        self._batch = next(self._iterator)
        return self._train_again()

    def _train_again(self) -> Any:
        if self._global is None:
            self._global = GlobalStep(self._model, self._apply, repeats=True, starts=self._starts)
            self._starts = False
        # XLA returns before it is done, and a failure would come later.
        taken = self._taken()
        wait: Any = jax.block_until_ready
        logs, self._state = wait(self._global(taken, iter([self._batch])))
        self.values.note_rate(self._state[_STATE.index("optimizer_variables")])
        return logs

    def _pass_over(self) -> None:
        next(self._iterator)


class ConstantValues(StepValues):
    """See base class. None: a step changes nothing before its collective."""

    def __init__(self, model: Any, ring: Ring) -> None:
        super().__init__(model, ring)
        self.travel = False
        slots = model.optimizer.variables
        self._slot = next((index for index, slot in enumerate(slots) if slot is self._rate), None)
        self._rate_then = 0.0

    def note_rate(self, slots: Sequence[Any]) -> None:
        """Note the learning rate of the newest step, in the values of the optimizer's variables after it."""
        if self._slot is not None:
            self._rate_then = float(np.asarray(part_of(slots[self._slot])))

    def keep_now(self) -> None:
        """Nothing has to be kept."""

    def put_back(self) -> None:
        """Nothing has changed."""

    def has_same_rate(self) -> bool:
        """Whether the learning rate is that of the newest step."""
        return self._rate is None or self._slot is None or float(self._rate.numpy()) == self._rate_then

    def sent(self) -> Any:
        """Nothing travels."""
        raise NotImplementedError

    def receive(self, total: Any) -> None:
        """Nothing travels."""
        raise NotImplementedError

    @property
    def members(self) -> Array:
        """No rows."""
        return np.zeros((0, 0), "float32")

    def assign_members(self, rows: Array) -> None:
        """There are no rows."""
