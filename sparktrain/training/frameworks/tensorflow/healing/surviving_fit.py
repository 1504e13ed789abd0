"""One `fit` whose members keep their process, model and traced step when another one is lost.

A member that fails in its step has applied nothing of it: it puts back what the step has changed before its collective,
and repeats the step with the batch it has. Where some member has applied the step already, its collective had ended:
those that have not applied it take weights and optimizer from that one, and train the batch by themselves for the rest.
"""

import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import keras

from sparktrain.errors import RingError
from sparktrain.training.checkpoint import tensor_files
from sparktrain.training.checkpoint.saver import capture
from sparktrain.training.checkpoint.tensor_files import TensorFiles
from sparktrain.training.collectives.ring_healing import Meeting, RingHealing, Standing
from sparktrain.training.frameworks.keras import model_state
from sparktrain.training.frameworks.keras.checkpoint_callbacks import FIT_STATE, SENT, fit_content
from sparktrain.training.frameworks.keras.distributed_apply import own_apply
from sparktrain.training.frameworks.keras.user_callbacks import (
    Agreed,
    CallbackStateKeeper,
    InternalCallback,
    ResumedState,
    SilencedCallback,
    State,
    is_default,
)
from sparktrain.training.frameworks.tensorflow.healing.healing_step import HealingStep
from sparktrain.training.frameworks.tensorflow.healing.step_values import StepValues, shared_variables

_MEMBERS = "sent/members"
"""The name, in the files with a state, of all members' own values."""
_EVENTS = {
    "on_train_batch_end": ("on_train_batch_end", "on_batch_end"),
    "on_epoch_end": ("on_epoch_end",),
}
"""The events of Keras after a step in which another process can take part, and the methods that they call."""
_STATES = (keras.callbacks.History, keras.callbacks.EarlyStopping, keras.callbacks.ProgbarLogger, SilencedCallback)
"""Callbacks that change only themselves after a step."""
_GRADIENTS = "gradients"
"""Prefix of the names of collectives that a step may have: others change what it does before them."""


class SurvivingFit:
    """The steps of one `fit` in one member. It belongs to the thread that trains."""

    def __init__(
        self,
        model: Any,
        healing: RingHealing,
        keep: CallbackStateKeeper,
        past: ResumedState,
        callbacks: Sequence[InternalCallback],
    ) -> None:
        """`callbacks` are those of this package, in their order, equal on all members."""
        self._model = model
        self._healing = healing
        self._keep = keep
        self._position = keep.position
        self._past = past
        self._callbacks = list(callbacks)
        self._values = StepValues(model, healing.ring)
        self._step = HealingStep(
            model,
            self._values,
            healing.continuity,
            arrive=self._arrive,
            heal=self._heal_in_step,
            on_end=self._end_step,
        )
        self._steps = self._position.step
        """Steps that this member has applied."""
        self._has_met = False
        """Whether the ring has healed since the last step."""
        self._states: State = {}
        self._agreed: list[Agreed] = []
        """What the members had agreed on before the callbacks of the newest step."""

    @property
    def has_started(self) -> bool:
        """Whether this member has trained a step."""
        return bool(self._agreed)

    def note_states(self) -> None:
        """An epoch ends: note the states of the users' callbacks, which are called next."""
        self._states = self._keep.states() if self.has_started else {}

    def end(self) -> None:
        """The `fit` ends: a loss ends the training from now on."""
        self._step.retire()
        self._healing.continuity.mend = None
        self._healing.declare(False)

    def start(self) -> None:
        """Take the place of Keras's train function."""
        optimizer: Any = own_apply(self._model.optimizer)
        optimizer.passenger = self._values if self._values.travel else None
        self._model.train_function = self._step
        self._healing.continuity.mend = self._heal_between_steps

    # ---- after a loss

    def _heal_in_step(self, error: BaseException) -> bool:
        """Heal the ring; whether this member is to repeat its step, and else has the state after it."""
        meeting = self._meet(error, in_step=True)
        if meeting.most_advanced.steps == self._steps:
            self._report_healed()
            return True
        self._step.train_by_itself()
        self._take_over(meeting)
        self._report_healed()
        return False

    def _heal_between_steps(self, error: RingError) -> None:
        self._meet(error, in_step=False)
        self._report_healed()

    def _meet(self, error: BaseException, *, in_step: bool) -> Meeting:
        able = self._is_able(in_step=in_step)
        self._healing.rejoin(error)
        if in_step:
            self._values.put_back()
        results = len(self._healing.continuity.results)
        standing = Standing(steps=self._steps, in_step=in_step, results=results, able=able)

        def write(folder: Path, ranks: list[int]) -> None:
            self._write(folder, ranks, in_step=in_step)

        try:
            meeting = self._healing.meet(standing, write)
        except RingError as refusal:
            raise refusal from error
        self._has_met = True
        for callback in self._callbacks:
            callback.on_heal()
        return meeting

    def _report_healed(self) -> None:
        self._healing.healed(self._steps)

    def _is_able(self, *, in_step: bool) -> bool:
        if self._model.stop_training or any(not name.startswith(_GRADIENTS) for name in self._healing.traced_names):
            return False
        return in_step or _can_repeat_event()

    def _take_over(self, meeting: Meeting) -> None:
        """Take weights, optimizer, and all members' own values from the member that has applied the step."""
        own = model_state.member_variables(self._model)
        with TensorFiles(meeting.folder) as files:
            for name, variable in shared_variables(self._model, own).items():
                variable.assign(files.read(name))
            self._values.assign_members(files.read(_MEMBERS))
        self._steps = meeting.most_advanced.steps - 1  # the end of the step counts it

    def _write(self, folder: Path, ranks: list[int], *, in_step: bool) -> None:
        """Write the state of this member for the new processes of `ranks`.

        Between two steps it is the state after the newest step, at the position before it: the new process only reads
        the batch of that step, and then calls the callbacks as the others do.
        """
        if 0 in ranks and any(isinstance(entry, SilencedCallback) for entry in self._listed()):
            raise RingError("the chief is lost, and with it the state of a callback that wrote its files")
        position = self._position
        back = 0 if in_step else 1
        position.step -= back
        position.batch -= back
        try:
            content = fit_content(position, self._keep, self._model)
            if not in_step and _event() == "on_epoch_end":
                content["callbacks"] = self._states
            agreed = [callback.agreed() for callback in self._callbacks] if in_step else self._agreed
            content[SENT] = {"drawn": self._past.drawn, "agreed": [list(numbers) for numbers in agreed]}
            extra = {FIT_STATE: content}
            state = capture(self._model, position.step, epoch=position.epoch, batch=position.batch, extra=extra)
        finally:
            position.step += back
            position.batch += back
        tensors = {**state.tensors, _MEMBERS: self._values.members}
        for rank in ranks:
            values = self._values.of_member(rank)
            tensors |= {f"{model_state.MEMBER}{rank}/{name}": value for name, value in values.items()}
        ring = self._healing.ring
        document = {**state.document, "members": ring.size, tensor_files.SOURCE: ring.rank}
        tensor_files.save(folder, tensors, document)

    def _listed(self) -> list[Any]:
        callbacks = _callback_list(self._model)
        return [] if callbacks is None else list(callbacks.callbacks)

    # ---- steps

    def _arrive(self) -> bool:
        """The first step of this process: whether it trains its batch."""
        arrival = self._healing.arrival
        if arrival is None:
            return True
        for callback, agreed in zip(self._callbacks, self._past.agreed, strict=True):
            callback.continue_with(agreed)
        with TensorFiles(arrival.folder) as files:
            self._values.assign_members(files.read(_MEMBERS))
        self._healing.continuity.echoes = False
        self._has_met = True
        self._healing.healed(arrival.most_advanced.steps)
        return arrival.most_advanced.in_step

    def _end_step(self) -> None:
        self._steps += 1
        self._healing.continuity.step()
        self._agreed = [callback.agreed() for callback in self._callbacks]
        if self._has_met:
            self._has_met = False
            self._healing.settle()
        self._healing.declare(True)


def _callback_list(model: Any) -> Any:
    """The callbacks of the `fit` of `model` on the stack; None where there is none."""
    for frame, _ in traceback.walk_stack(sys._getframe()):
        callbacks = frame.f_locals.get("callbacks")
        if frame.f_locals.get("self") is model and isinstance(callbacks, keras.callbacks.CallbackList):
            return callbacks
    return None


def _event() -> str:
    """The event of Keras that has called a callback on the stack; empty where there is none."""
    for frame, _ in traceback.walk_stack(sys._getframe()):
        if isinstance(frame.f_locals.get("self"), keras.callbacks.CallbackList):
            return frame.f_code.co_name
    return ""


def _can_repeat_event() -> bool:
    """Whether another process can repeat the event of Keras in which a collective has failed.

    It calls all callbacks of the event: those of users must not have been called, or do nothing then, or have only a
    state, which was noted before.
    """
    callback = None
    for frame, _ in traceback.walk_stack(sys._getframe()):
        caller = frame.f_locals.get("self")
        if isinstance(caller, InternalCallback):
            callback = caller
        if isinstance(caller, keras.callbacks.CallbackList):
            methods = _EVENTS.get(frame.f_code.co_name)
            if methods is None or callback is None or not callback.repeatable:
                return False
            external = [entry for entry in caller.callbacks if not isinstance(entry, InternalCallback)]
            return not callback.last or all(type(entry) in _STATES or is_default(entry, *methods) for entry in external)
    return False
