"""One `fit` in which members keep process, model and traced step when another one is lost.

A member that fails in its step has applied nothing of it: it puts back what the step has changed before its collective,
and repeats the step with the batch it has. Where some member has applied the step already, its collective had ended:
those that have not applied it take weights and optimizer from that one, and train the batch by themselves for the rest.
"""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import keras

from sparktrain.rundir.newest_step import newest_step
from sparktrain.state.agent_messages import Seating
from sparktrain.training.checkpoint import tensor_files
from sparktrain.training.checkpoint.tensor_files import TensorFiles
from sparktrain.training.checkpoint.training_state import capture, peek
from sparktrain.training.collectives.ring_healing import RingHealing
from sparktrain.training.elastic.elastic_training import ElasticTraining
from sparktrain.training.elastic.state_source import RingAgreement, RingRefusalError, RingStanding
from sparktrain.training.elastic.step_boundary import StepBoundary
from sparktrain.training.elastic.transaction import Transaction
from sparktrain.training.frameworks.keras import model_state
from sparktrain.training.frameworks.keras.averaging import scalars
from sparktrain.training.frameworks.keras.checkpoint_callbacks import FIT_STATE, SENT, fit_content
from sparktrain.training.frameworks.keras.distributed_apply import own_apply
from sparktrain.training.frameworks.keras.fit_reader import element_spec, fit_reader
from sparktrain.training.frameworks.keras.healing.fit_division import FitDivision, fit_division
from sparktrain.training.frameworks.keras.healing.healing_step import HealingStep, SteppedFit
from sparktrain.training.frameworks.keras.healing.step_values import MEMBERS
from sparktrain.training.frameworks.keras.user_callbacks import (
    CallbackStateKeeper,
    EventStage,
    InternalCallback,
    ResumedState,
    SilencedCallback,
    is_default,
    is_of_keras,
)
from sparktrain.training.notices import notice

_STEP = "on_train_batch_end"
_EPOCH = "on_epoch_end"
_EVENTS = {_STEP: (_STEP, "on_batch_end"), _EPOCH: (_EPOCH,)}
"""The events of Keras after a step in which another process can take part, and the methods that they call."""
_STATES = (keras.callbacks.History, keras.callbacks.EarlyStopping, keras.callbacks.ProgbarLogger, SilencedCallback)
"""Callbacks of Keras that change only themselves after a step."""
_COPIED = 1000
"""The most elements of a list that is copied in each step."""
_ROOM_S = 30.0
"""How long the first step waits for the memory that a thread gets for it."""


class SurvivingFit(ElasticTraining, SteppedFit):
    """The steps of one `fit` in one member. It belongs to the thread that trains."""

    def __init__(
        self,
        model: Any,
        step: HealingStep,
        healing: RingHealing,
        boundary: StepBoundary,
        keep: CallbackStateKeeper,
        past: ResumedState,
        callbacks: Sequence[Any],
    ) -> None:
        """`step` takes the place of Keras's; `callbacks` are all of this `fit`."""
        self._model = model
        self._healing = healing
        self._boundary = boundary
        self._keep = keep
        self._position = keep.position
        self._past = past
        self._external = [entry for entry in callbacks if not isinstance(entry, InternalCallback)]
        self._transaction = Transaction(self, healing, boundary)
        self._step = step
        step.fit = self
        self._values = step.values
        self._steps = self._position.step
        """Steps that this member has applied."""
        self._size = healing.ring.size
        """Members that divide the data."""
        self._data: FitDivision | None = None
        """How fewer members divide what is left of the data; None where they cannot."""
        self._listening = {
            event: [entry for entry in self._external if not is_default(entry, *methods)]
            for event, methods in _EVENTS.items()
        }
        """The users' callbacks that do something at an event."""
        self._noted: list[tuple[Any, dict[str, Any]]] = []
        """Their attributes before the newest event."""
        self._newest_call: tuple[int, Any] = (0, None)
        """What Keras has called callbacks with after the newest step: the number of its batch, and the logs."""
        self._omits = False
        """Whether the users' callbacks are not called for the next step: they have the states after it."""
        self._omitted: list[tuple[Any, Any]] = []
        """Those, and the methods that their objects have as attributes."""
        self._agreed: Sequence[int] = ()
        """What the members had agreed on before the callbacks of the newest step."""
        self._event = ""
        """The event of Keras that runs; empty outside of `_EVENTS`."""
        self._room: threading.Thread | None = None
        """What gets memory for the first step in another ring."""
        self._stage = EventStage.BEFORE

    def enter(self, event: str, stage: EventStage, batch: int = 0, logs: Any = None) -> None:
        """The callbacks of `stage` are called for `event` next. Noted: what another process would call users' with."""
        self._event = event
        self._stage = stage
        if stage is EventStage.USERS:
            self._noted = [(callback, _attributes(callback)) for callback in self._listening[event]]
            self._newest_call = batch, logs
        elif stage is EventStage.AFTER and event == _STEP:
            newest_step.mark_called(self._position.step)
        if self._omits:
            self._omit(stage)

    def _omit(self, stage: EventStage) -> None:
        """Have Keras call nothing in place of the users' callbacks of this step, and them again after it."""
        if stage is EventStage.USERS:
            # One of Keras's LambdaCallback is an attribute of its object.
            self._omitted = [(callback, vars(callback).get(_STEP)) for callback in self._listening[_STEP]]
            for callback, _ in self._omitted:
                vars(callback)[_STEP] = lambda batch, logs=None: None
        elif stage is EventStage.AFTER:
            self._omits = False
            for callback, method in self._omitted:
                del vars(callback)[_STEP]
                vars(callback).update({} if method is None else {_STEP: method})

    def leave(self) -> None:
        """All callbacks have been called for the event."""
        self._event = ""
        self._stage = EventStage.BEFORE

    def end(self) -> None:
        """The `fit` ends: a loss ends the training from now on."""
        self._step.retire()
        self._healing.ring.has_stepped = False
        self._transaction.end()

    def make_room(self) -> None:
        """Get the memory of the first step in a thread."""
        self._room = self._step.make_room()

    def _await_room(self) -> None:
        """Beside the thread the step would need as much memory again."""
        if self._room is not None:
            self._room.join(_ROOM_S)
            self._room = None

    def trace(self) -> None:
        """Trace the step for the batches of this `fit`, before the process has a place in the ring."""
        ring: Any = self._healing.ring
        ring.prepare()
        reader = fit_reader()
        spec = None if reader is None else element_spec(reader)
        if spec is not None:
            self._step.prepare(spec)

    def resume(self) -> None:
        """The `fit` starts at the step that its position has now."""
        self._steps = self._position.step

    def start(self) -> None:
        """Take the place of Keras's train function."""
        self._data = fit_division(self._position)
        optimizer: Any = own_apply(self._model.optimizer)
        optimizer.passenger = self._values if self._values.travel else None
        self._model.train_function = self._step
        self._transaction.survive()

    # ---- a member moves to another process

    def accepts(self, offer: Seating) -> bool:
        """See base class. Not where only reading shows whether there is a next batch."""
        if not self._step.moves or (self._healing.grows(offer) and self._data is None):
            return False
        return self._position.per_epoch is not None and bool(offer.moving or not self._has_silenced())

    def before_step(self) -> None:
        """See base class. Take the process that is offered, with nothing of that step done on any member.

        Where the rest of an epoch is too short for a step of more members, the present ones train it first.
        """
        offer = self._boundary.offer
        if offer is None or (self._healing.grows(offer) and not self._can_divide(len(offer.places))):
            return
        self._values.keep_now()
        self._transaction.change(in_step=True)

    def _has_silenced(self) -> bool:
        """Whether a callback of the chief writes files, and other members lack its state."""
        return any(isinstance(entry, SilencedCallback) for entry in self._external)

    # ---- after a loss

    def can_continue(self, *, in_step: bool) -> bool:
        """See base class."""
        repeats = not self._model.stop_training and self._step.repeats_alone
        return repeats and (in_step or self._can_repeat_event())

    def standing(self, *, in_step: bool) -> RingStanding:
        """See base class."""
        results = len(self._healing.ring.continuity.results)
        return RingStanding(steps=self._steps, in_step=in_step, results=results)

    def undo(self, *, in_step: bool) -> None:
        """See base class."""
        if in_step:
            self._values.put_back()
        self.make_room()  # a broken step leaves memory that no other one uses, and this member waits now

    def take_over(self, agreement: RingAgreement, *, in_step: bool) -> bool:
        """See base class."""
        self._await_room()
        applied = agreement.sender.steps
        repeats = in_step and applied == self._steps
        self._divide(applied, repeats=repeats)
        if in_step and not repeats:
            self._assign(agreement)
        self._healing.healed(self._steps)
        return repeats

    def _divide(self, applied: int, *, repeats: bool) -> None:
        """After step `applied`, divide what is left of the data among the members of a smaller ring."""
        ring = self._healing.ring
        if ring.size == self._size:
            return
        if self._data is None:
            raise RingRefusalError("the ring has lost a member, and the others cannot divide its data")
        if repeats and not self._can_divide(ring.size):
            raise RingRefusalError(f"the rest of the epoch is too short for a step of {ring.size} members")
        self._size = ring.size
        iterator = self._data.divide(ring.rank, ring.size, applied, repeats=repeats)
        if iterator is not None:
            self._step.read_from(iterator)

    def _can_divide(self, size: int) -> bool:
        return self._data is None or self._data.can_divide(size, self._steps)

    def _assign(self, agreement: RingAgreement) -> None:
        """Take weights, optimizer, and all members' own values from the member that has applied the step."""
        with TensorFiles(agreement.folder) as files:
            self._step.take_over(files)
        self._steps = agreement.sender.steps - 1  # the end of the step counts it

    def send(self, folder: Path, ranks: Sequence[int], *, in_step: bool) -> None:
        """See base class.

        Between two steps it is the state after the newest step, at the position before it: the new process only reads
        the batch of that step, and then calls the callbacks that this one has not called.
        """
        if 0 in ranks and self._has_silenced():
            raise RingRefusalError("the chief is lost, and with it the state of a callback that wrote its files")
        position = self._position
        ends_epoch = self._event == _EPOCH
        repeats_end = ends_epoch and self._stage is EventStage.AFTER
        back = 0 if in_step else 1
        position.step -= back
        position.batch -= back
        try:
            with self._as_noted() if repeats_end else nullcontext():
                content = fit_content(position, self._keep, self._model)
            content[SENT] = {
                "drawn": self._past.drawn,
                "agreed": list(self._boundary.agreed() if in_step else self._agreed),
                "read_only": not in_step,
                "number": position.number,
                "newest_call": None if repeats_end else self._call_before(),
                # Before the callbacks of an epoch all have called those of its last step.
                "called": ends_epoch or self._stage is EventStage.AFTER,
            }
            extra = {FIT_STATE: content}
            # Nothing trains until the files are written: a copy of large weights would double the time.
            state = capture(
                self._model, position.step, epoch=position.epoch, batch=position.batch, extra=extra, retained=True
            )
        finally:
            position.step += back
            position.batch += back
        tensors = {**state.tensors, **self._values.drawn(), MEMBERS: self._values.members}
        # A member that comes back after steps without it has none of its own any more: the sum of no row is zeros.
        for rank in [] if self._size < self._healing.ring.size else ranks:
            values = self._values.of_member(rank)
            tensors |= {f"{tensor_files.MEMBER}{rank}/{name}": value for name, value in values.items()}
        ring = self._healing.ring
        document = {**state.document, "members": ring.size, tensor_files.SOURCE: ring.rank}
        tensor_files.send(folder, tensors, document)

    def _can_repeat_event(self) -> bool:
        """Whether another process can take part in the event of Keras in which a collective has failed.

        At an epoch's end it calls all callbacks: those of users must not have been called, or have changed themselves
        alone.
        """
        listening = self._listening.get(self._event)
        if listening is None or self._stage is EventStage.USERS:
            return False
        if self._stage is EventStage.BEFORE or self._event == _STEP or not listening:
            return True
        known = all(type(entry) in _STATES or not is_of_keras(entry) for entry in listening)
        return known and self._values.has_same_rate()

    @contextmanager
    def _as_noted(self) -> Iterator[None]:
        """Within the block the users' callbacks are as before the newest event that has called them."""
        present = [dict(vars(entry)) for entry, _ in self._noted]
        for entry, attributes in self._noted:
            vars(entry).update(attributes)
        try:
            yield
        finally:
            for (entry, _), attributes in zip(self._noted, present, strict=True):
                vars(entry).update(attributes)

    def _call_before(self) -> dict[str, Any]:
        """What another process calls the users' callbacks with for the newest step, if the lost one has not."""
        batch, logs = self._newest_call
        with self._as_noted():
            return {"batch": batch, "logs": scalars(logs or {}), "callbacks": self._keep.states()}

    # ---- steps

    def arrive(self) -> bool:
        """Take the place of a lost member, where this process does."""
        arrival = self._healing.arrival
        if arrival is None:
            return True
        self._await_room()
        self._values.take_rank()
        sender = arrival.sender
        self._transaction.arrive(arrival, self._past.agreed, self._position.step)
        self._healing.ring.has_stepped = self._boundary.has_stepped(sender.steps + sender.in_step)
        with TensorFiles(arrival.folder) as files:
            self._values.assign_members(files.read(MEMBERS))
            if self._position.stages.alike:
                self._values.assign_drawn(files)
        sent = peek(arrival.folder).extra[FIT_STATE][SENT]
        call = sent["newest_call"]
        if sender.in_step:
            self._call_for_lost(arrival, call)
        elif sent["called"]:
            self._omits = call is None or self._healing.called == sender.steps
            if not self._omits:
                self._keep.take(call["callbacks"])
        # The next loss may come before the first step of this process ends, and it has all that another one needs.
        self._declare_able()
        self._healing.healed(sender.steps)
        return sender.in_step

    def _call_for_lost(self, arrival: RingAgreement, call: Any) -> None:
        """Call the users' callbacks for the newest step where the lost process was killed before it had.

        The others have called theirs, and this process has the states after that: it only lacks what the callbacks of
        the lost rank do beside.
        """
        step = arrival.sender.steps
        if self._healing.called != step - 1:
            return
        model = self._model
        variables = [*model.variables, *model.optimizer.variables]
        values = [(variable, model_state.retained_value(variable)) for variable in variables]
        states = self._keep.states()
        self._keep.take(call["callbacks"])
        for callback in self._listening[_STEP]:
            try:
                callback.on_train_batch_end(call["batch"], call["logs"])
            except Exception as error:  # it may need what only the lost process had, and the ring continues
                notice(
                    f"{type(callback).__name__}.on_train_batch_end, called for step {step} in place of a process that "
                    f"was lost in it, raised {type(error).__name__}: {error}"
                )
        self._keep.take(states)
        model.stop_training = False
        for variable, value in values:
            model_state.put_back(variable, value)
        newest_step.mark_called(step)

    def heal(self, error: BaseException) -> bool:
        """Form the ring again, from within a step."""
        return self._transaction.heal(error, in_step=True)

    def end_step(self) -> None:
        """Count the step, and report that this member can heal once that is known."""
        self._steps += 1
        self._healing.ring.continuity.step()
        # Before the callbacks: a process that takes part from here calls all of them.
        self._agreed = self._boundary.agreed()
        self._transaction.settle()
        if self._position.fed and self._step.repeats_alone:  # both are known once a step has been traced
            self._declare_able()

    def _declare_able(self) -> None:
        moves = self._step.moves
        self._healing.declare(True, moves=moves, shrinks=moves and self._data is not None)


def _attributes(callback: Any) -> dict[str, Any]:
    """The attributes of a callback, with copies of its short lists and dicts, and of those in a dict."""
    return {name: _copied(value) for name, value in vars(callback).items()}


def _copied(value: Any) -> Any:
    if not isinstance(value, list | dict) or len(value) > _COPIED:
        return value
    return {name: _copied(child) for name, child in value.items()} if isinstance(value, dict) else value.copy()
