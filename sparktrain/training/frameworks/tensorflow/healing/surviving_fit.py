"""One `fit` in which members keep process, model and traced step when another one is lost.

A member that fails in its step has applied nothing of it: it puts back what the step has changed before its collective,
and repeats the step with the batch it has. Where some member has applied the step already, its collective had ended:
those that have not applied it take weights and optimizer from that one, and train the batch by themselves for the rest.
"""

import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import keras

from sparktrain.errors import RingError
from sparktrain.training.checkpoint import tensor_files
from sparktrain.training.checkpoint.saver import capture
from sparktrain.training.checkpoint.tensor_files import TensorFiles
from sparktrain.training.collectives.ring_healing import RingAgreement, RingHealing, RingStanding
from sparktrain.training.frameworks.keras import model_state
from sparktrain.training.frameworks.keras.checkpoint_callbacks import FIT_STATE, SENT, fit_content
from sparktrain.training.frameworks.keras.distributed_apply import own_apply
from sparktrain.training.frameworks.keras.user_callbacks import (
    Agreed,
    CallbackStateKeeper,
    InternalCallback,
    ResumedState,
    SilencedCallback,
    is_default,
    is_of_keras,
)
from sparktrain.training.frameworks.tensorflow.healing.healing_step import HealingStep
from sparktrain.training.frameworks.tensorflow.healing.step_values import MEMBERS, StepValues, shared_variables

_EVENTS = {
    "on_train_batch_end": ("on_train_batch_end", "on_batch_end"),
    "on_epoch_end": ("on_epoch_end",),
}
"""The events of Keras after a step in which another process can take part, and the methods that they call."""
_STATES = (keras.callbacks.History, keras.callbacks.EarlyStopping, keras.callbacks.ProgbarLogger, SilencedCallback)
"""Callbacks of Keras that change only themselves after a step."""
_COPIED = 1000
"""The most elements of a list that is copied in each step."""
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
        """`callbacks` are those of this package."""
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
        self._has_healed = False
        """Whether the ring has healed since the last step."""
        external = [entry for entry in self._listed() if not isinstance(entry, InternalCallback)]
        self._listening = {
            event: [entry for entry in external if not is_default(entry, *methods)]
            for event, methods in _EVENTS.items()
        }
        """The users' callbacks that do something at an event."""
        self._noted: list[tuple[Any, dict[str, Any]]] = []
        """Their attributes before the newest event."""
        self._rate = 0.0
        """The learning rate before the newest event."""
        self._agreed: list[Agreed] = []
        """What the members had agreed on before the callbacks of the newest step."""

    def note(self, event: str) -> None:
        """The users' callbacks are called for `event` next: note what another process would call them with."""
        callbacks = self._listening[event]
        if callbacks:
            self._noted = [(callback, _attributes(callback)) for callback in callbacks]
            self._rate = _rate(self._model)

    def end(self) -> None:
        """The `fit` ends: a loss ends the training from now on."""
        self._step.retire()
        self._healing.continuity.heal = None
        self._healing.declare(False)

    def start(self) -> None:
        """Take the place of Keras's train function."""
        optimizer: Any = own_apply(self._model.optimizer)
        optimizer.passenger = self._values if self._values.travel else None
        self._model.train_function = self._step
        self._healing.continuity.heal = self._heal_between_steps

    # ---- after a loss

    def _heal_in_step(self, error: BaseException) -> bool:
        """Heal the ring; whether this member is to repeat its step, and else has the state after it."""
        agreement = self._agree(error, in_step=True)
        if agreement.most_advanced.steps == self._steps:
            self._report_healed()
            return True
        self._step.train_by_itself()
        self._take_over(agreement)
        self._report_healed()
        return False

    def _heal_between_steps(self, error: RingError) -> None:
        self._agree(error, in_step=False)
        self._report_healed()

    def _agree(self, error: BaseException, *, in_step: bool) -> RingAgreement:
        able = self._is_able(in_step=in_step)
        self._healing.rejoin(error)
        # Before this member may have to send its state.
        if in_step:
            self._values.put_back()
        results = len(self._healing.continuity.results)
        standing = RingStanding(steps=self._steps, in_step=in_step, results=results, able=able)

        def write(folder: Path, ranks: list[int]) -> None:
            self._write(folder, ranks, in_step=in_step)

        try:
            agreement = self._healing.agree(standing, write)
        except RingError as refusal:
            raise refusal from error
        self._has_healed = True
        for callback in self._callbacks:
            callback.on_heal()
        return agreement

    def _report_healed(self) -> None:
        self._healing.healed(self._steps)

    def _is_able(self, *, in_step: bool) -> bool:
        if self._model.stop_training or not self._repeats_alone():
            return False
        return in_step or self._can_repeat_event()

    def _take_over(self, agreement: RingAgreement) -> None:
        """Take weights, optimizer, and all members' own values from the member that has applied the step."""
        own = model_state.member_variables(self._model)
        with TensorFiles(agreement.folder) as files:
            for name, variable in shared_variables(self._model, own).items():
                variable.assign(files.read(name))
            self._values.assign_members(files.read(MEMBERS))
        self._steps = agreement.most_advanced.steps - 1  # the end of the step counts it

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
            with nullcontext() if in_step else self._as_noted():
                content = fit_content(position, self._keep, self._model)
            names = [type(callback).__name__ for callback in self._callbacks]
            agreed = [callback.agreed() for callback in self._callbacks] if in_step else self._agreed
            by_name = {name: list(numbers) for name, numbers in zip(names, agreed, strict=True)}
            content[SENT] = {"drawn": self._past.drawn, "agreed": by_name, "read_only": not in_step}
            extra = {FIT_STATE: content}
            state = capture(self._model, position.step, epoch=position.epoch, batch=position.batch, extra=extra)
        finally:
            position.step += back
            position.batch += back
        tensors = {**state.tensors, MEMBERS: self._values.members}
        for rank in ranks:
            values = self._values.of_member(rank)
            tensors |= {f"{model_state.MEMBER}{rank}/{name}": value for name, value in values.items()}
        ring = self._healing.ring
        document = {**state.document, "members": ring.size, tensor_files.SOURCE: ring.rank}
        tensor_files.save(folder, tensors, document)

    def _repeats_alone(self) -> bool:
        """Whether a member can train a batch by itself for what a step changes beside the weights."""
        return all(name.startswith(_GRADIENTS) for name in self._healing.traced_names)

    def _can_repeat_event(self) -> bool:
        """Whether another process can repeat the event of Keras in which a collective has failed.

        It calls all callbacks of the event: those of users must not have been called, or have changed themselves alone.
        """
        callback, event = _caller()
        if callback is None or event not in _EVENTS or not callback.repeatable:
            return False
        if not callback.last or not self._listening[event]:
            return True
        known = all(type(entry) in _STATES or not is_of_keras(entry) for entry in self._listening[event])
        return known and _rate(self._model) == self._rate

    @contextmanager
    def _as_noted(self) -> Iterator[None]:
        """Within the block the users' callbacks are as before the event, if they have been called for it."""
        callback, _ = _caller()
        noted = self._noted if callback is not None and callback.last else []
        present = [dict(vars(entry)) for entry, _ in noted]
        for entry, attributes in noted:
            vars(entry).update(attributes)
        try:
            yield
        finally:
            for (entry, _), attributes in zip(noted, present, strict=True):
                vars(entry).update(attributes)

    def _listed(self) -> list[Any]:
        callbacks = _callback_list(self._model)
        return [] if callbacks is None else list(callbacks.callbacks)

    # ---- steps

    def _arrive(self) -> bool:
        """The first step of this process: whether it trains its batch."""
        arrival = self._healing.arrival
        if arrival is None:
            return True
        for callback in self._callbacks:
            if agreed := self._past.agreed.get(type(callback).__name__):
                callback.continue_with(agreed)
        with TensorFiles(arrival.folder) as files:
            self._values.assign_members(files.read(MEMBERS))
        self._healing.continuity.echoes = False
        self._has_healed = True
        self._healing.healed(arrival.most_advanced.steps)
        return arrival.most_advanced.in_step

    def _end_step(self) -> None:
        self._steps += 1
        self._healing.continuity.step()
        # Before the callbacks: a process that takes part from here calls all of them.
        self._agreed = [callback.agreed() for callback in self._callbacks]
        if self._has_healed:
            self._has_healed = False
            self._healing.settle()
        if self._position.fed and self._repeats_alone():  # both are known once a step has been traced
            self._healing.declare(True)


def _callback_list(model: Any) -> Any:
    """The callbacks of the `fit` of `model` on the stack; None where there is none."""
    for frame, _ in traceback.walk_stack(sys._getframe()):
        callbacks = frame.f_locals.get("callbacks")
        if frame.f_locals.get("self") is model and isinstance(callbacks, keras.callbacks.CallbackList):
            return callbacks
    return None


def _caller() -> tuple[InternalCallback | None, str]:
    """The callback of this package that has called, and the event of Keras; None and empty for any other caller."""
    callback = None
    for frame, _ in traceback.walk_stack(sys._getframe()):
        caller = frame.f_locals.get("self")
        if isinstance(caller, InternalCallback):
            callback = caller
        if isinstance(caller, keras.callbacks.CallbackList):
            return callback, frame.f_code.co_name.lstrip("_")
    return None, ""


def _attributes(callback: Any) -> dict[str, Any]:
    """The attributes of a callback, with copies of its short lists and dicts, and of those in a dict."""
    return {name: _copied(value) for name, value in vars(callback).items()}


def _copied(value: Any) -> Any:
    if not isinstance(value, list | dict) or len(value) > _COPIED:
        return value
    return {name: _copied(child) for name, child in value.items()} if isinstance(value, dict) else value.copy()


def _rate(model: Any) -> float:
    rate = model.optimizer._learning_rate
    return float(rate.numpy()) if hasattr(rate, "numpy") else 0.0
