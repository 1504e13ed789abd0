"""A user's loop in which members keep process and model when another one is lost.

A member that fails in a step has applied nothing of it: it puts back what the step has changed before its collective,
and repeats it. A new process starts where the loop last called `memory.step`, as a restarted one would, and takes the
results of the collectives since then from the others. Where some member has applied the step already, it goes back to
the weights of one that has not, repeats the step with it, and returns to its own state.
"""

import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from sparktrain.errors import RingError
from sparktrain.state.agent_messages import Seating
from sparktrain.training.checkpoint import tensor_files
from sparktrain.training.checkpoint.process_generators import assign_drawn, drawn_states, generators
from sparktrain.training.checkpoint.tensor_files import TensorFiles
from sparktrain.training.checkpoint.training_state import ALIKE, capture, peek
from sparktrain.training.collectives.continuity import MissedCallError
from sparktrain.training.collectives.ring_healing import RingHealing
from sparktrain.training.data.feed_cursors import cursor_of
from sparktrain.training.data.position import Position
from sparktrain.training.elastic.elastic_training import ElasticTraining
from sparktrain.training.elastic.loop_steps import LoopSteps
from sparktrain.training.elastic.state_source import (
    RingAgreement,
    RingRefusalError,
    RingStanding,
    SourceDirection,
)
from sparktrain.training.elastic.step_boundary import StepBoundary
from sparktrain.training.elastic.transaction import Transaction, is_of_loss
from sparktrain.training.notices import notice

LOOP = "loop()"
"""The name under which a loop saves what it adds for a process that joins it."""
_NAME = "loop"
_TRAIN = "memory.train"
_KEPT = 2
"""Steps that a member may have to repeat."""


class SurvivingLoop(ElasticTraining):
    """The steps of one `ctx.memory_checkpoints` block in one member. It belongs to the thread that trains."""

    compares_calls = True

    def __init__(
        self,
        parts: Sequence[Any],
        healing: RingHealing,
        steps: LoopSteps,
        boundary: StepBoundary,
        position: Position,
        *,
        resizable: bool = False,
    ) -> None:
        """`boundary` is that of the block, `position` has the feeds of this member.

        `resizable`: each step divides its rows among the members that the ring has then.
        """
        self._feeds = position.feeds
        self._parts = tuple(parts)
        self._healing = healing
        self._steps = steps
        self._boundary = boundary
        self._resizable = resizable
        self._transaction = Transaction(self, healing, boundary)
        self._size = healing.ring.size
        """Members of the ring in which this one has trained."""
        self._can_heal = False
        self._has_declared = False
        self.are_alike = False
        """Whether the generators of all members were equal when the loop started."""
        self._step = 0
        self._ahead = 0
        """Steps that this member has applied since the loop has noted its state."""
        self._facts: tuple[int | None, int | None, Mapping[str, Any], Mapping[str, int]] = (None, None, {}, {})
        """Epoch, batch and values with which the loop has noted its state, and the lengths of lists among these."""
        self._agreed: Sequence[int] = ()
        """What the members had agreed on before the newest boundary."""
        self._at_boundary = False
        self._past_results = 0
        self._calls: list[Callable[[], Any]] = []
        """The newest steps, newest first."""
        self._drawn: list[tuple[Any, Any]] = []
        """The generators of Python and NumPy before each of them."""
        self._noted = drawn_states()
        """The generators when the loop noted its state."""

    def start(self, step: int) -> None:
        """The loop starts after `step`. Blocks until all members are here, or, in a new process, until it has joined.

        Raises RingError.
        """
        continuity = self._healing.ring.continuity
        arrival = self._healing.arrival
        if self._healing.awaits_state or self._healing.waits:
            raise _not_restored()
        is_quiet = continuity.repeats and self._steps.is_quiet
        continuity.checks_echoes = False
        self._step = step
        self._steps.start()
        if arrival is not None:
            self._arrive(arrival)
            return
        drawn = zlib.crc32(repr((generators(), self._steps.drawn)).encode())
        ring = self._healing.ring
        rows = ring.allgather_array(np.array([[is_quiet, drawn]], "int64"), name=_NAME)
        self._can_heal = bool(rows[:, 0].all())
        self.are_alike = len(set(rows[:, 1].tolist())) == 1
        if self._can_heal:
            self._transaction.survive()
        # All processes are new after a restart; in a run without the loss this would not be their first step.
        if not step:
            self._boundary.take_comparison(1)

    def end(self) -> None:
        """The loop is over, maybe before the first step of this process: a loss ends the training from now on.

        Blocks until all members are here, where they have trained together. Raises OutOfStepError where their weights
        differ, RingError, OSError when the agent is gone.
        """
        self._transaction.end()
        self._steps.end()
        self._transaction.settle()
        if self._can_heal and self._has_declared:
            self._check_equal()

    def train(self, train_step: Callable[..., Any], arguments: Sequence[Any], options: Mapping[str, Any]) -> Any:
        """What `train_step` returns, which trains a step; called again where the ring heals. Raises what it raises."""

        def call() -> Any:
            present_arguments, present_options = self._steps.passed(arguments, options)
            return self._steps.returned(train_step(*present_arguments, **present_options))

        if not self._can_heal:
            return call()
        if self._healing.ring.continuity.is_behind:
            raise MissedCallError("this process trains a step, and the others have called a collective before")
        self._calls = [call, *self._calls][:_KEPT]
        self._drawn = [drawn_states(), *self._drawn][:_KEPT]
        self._steps.keep()
        result, is_first = self._trained(call)
        self._ahead += 1
        if is_first:
            self._compare()
        self._transaction.settle()
        return result

    @contextmanager
    def noting(self, step: int, place: tuple[int | None, int | None], extra: Mapping[str, Any]) -> Iterator[None]:
        """Note the state after `step`; within the block the members agree on what comes next."""
        has_trained = self._ahead > 0
        self._steps.note(extra)
        self._step = step
        # The loop may append to its lists meanwhile.
        lengths = {name: len(value) for name, value in extra.items() if isinstance(value, list)}
        self._facts = (*place, extra, lengths)
        self._noted = drawn_states()
        self._ahead = 0
        self._agreed = self._boundary.agreed()
        self._healing.ring.continuity.step()
        self._at_boundary = True
        self._past_results = 0
        yield
        self._at_boundary = False
        self._past_results = len(self._healing.ring.continuity.results)
        if has_trained and self._can_heal and not self._has_declared:
            self._declare()
        self._transaction.change(in_step=False)

    def _declare(self) -> None:
        if not self._steps.is_in_place:
            self._check_equal()  # of the values that the loop keeps
        obstacle = self._steps.obstacle() or self._unknown_feed()
        if not obstacle:
            self._declare_able()
            return
        self._can_heal = False
        self._transaction.end()
        notice(f"after the loss of a member this loop restarts in all of them: {obstacle}")

    def _declare_able(self) -> None:
        """Report that this member heals; with a feed the share of a lost member would be missing in a smaller ring."""
        self._has_declared = True
        resizable = self._resizable and not self._feeds
        self._healing.declare(True, moves=resizable, shrinks=resizable)

    def _unknown_feed(self) -> str:
        """An obstacle where the loop reads a feed that starts from its first batch in a new process."""
        cursors = [cursor_of(part) for part in self._parts]
        if any(feed.has_started and feed not in cursors for feed in self._feeds):
            return (
                "it reads data of ctx.shard() or ctx.dataset() with a position that the block does not know: pass what "
                "they return to ctx.memory_checkpoints() and ctx.checkpoint.restore(), after the model"
            )
        return ""

    # ---- another ring

    def _trained(self, call: Callable[[], Any]) -> tuple[Any, bool]:
        """What `call` returns, and whether that was the first step in another ring."""
        while True:
            try:
                with self._transaction.opened():
                    self._transaction.meet(_TRAIN)
                    is_first = self._boundary.take_comparison(self._step + 1)
                    if is_first:
                        self._warm_up(call)
                    return call(), is_first
            except Exception as error:
                if not is_of_loss(error):
                    raise
                self._transaction.heal(error, in_step=True)

    def accepts(self, offer: Seating) -> bool:
        """See base class."""
        return self._resizable

    def can_continue(self, *, in_step: bool) -> bool:
        """See base class."""
        repeats = in_step or not self._steps.is_in_place
        return self._ahead <= 1 and not (repeats and self._steps.is_applied())

    def standing(self, *, in_step: bool) -> RingStanding:
        """See base class. Of a loop `steps` are those after which it has noted its state."""
        return RingStanding(
            steps=self._step,
            in_step=in_step,
            results=len(self._healing.ring.continuity.results),
            direction=SourceDirection.LEAST_ADVANCED,
            is_ahead=self._ahead > 0,
            past_results=self._past_results,
        )

    def undo(self, *, in_step: bool) -> None:
        """See base class."""
        self._steps.rejoin()
        if in_step:
            self._put_back(0)

    def take_over(self, agreement: RingAgreement, *, in_step: bool) -> bool:
        """See base class."""
        size = self._healing.ring.size
        if size != self._size and self._feeds:
            raise RingRefusalError(
                f"the ring has {size} members in place of {self._size}, and the loop reads data of ctx.shard() or "
                "ctx.dataset(), which does not follow that: choose the rows of a step by ctx.rank and ctx.size"
            )
        self._healing.healed(self._step)
        if agreement.standings[self._healing.ring.rank].place > agreement.sender.place:
            self._repeat_for_others(agreement, int(in_step))
        self._size = size
        return True

    def _repeat_for_others(self, agreement: RingAgreement, ago: int) -> None:
        """Repeat the step that others have not applied, `ago` steps before the newest one, and change nothing.

        Fewer members divide its rows in another way, and their weights have other bits: there the repeated step counts.
        """
        has_repeated = False
        if self._size != self._healing.ring.size and not self._steps.is_in_place:
            raise RingRefusalError(
                f"the ring has {self._healing.ring.size} members in place of {self._size}, and rank "
                f"{self._healing.ring.rank} has made the step that they divide in another way"
            )
        present = self._steps.present()
        drawn = drawn_states()
        with TensorFiles(agreement.folder) as files:
            self._steps.take_over(files)
        self._put_back(ago)
        try:
            with self._transaction.opened():
                self._transaction.meet(_TRAIN)
                if self._boundary.take_comparison(self._step + 1):
                    self._warm_up(self._calls[ago], ago)
                self._calls[ago]()
            has_repeated = True
        finally:
            if has_repeated and self._size != self._healing.ring.size:
                self._rebase(ago)
            else:
                self._steps.take(present)
            assign_drawn(drawn)
        self._check_step()

    def _rebase(self, ago: int) -> None:
        """Continue from the state after the step that was repeated with other members."""
        if not self._ahead:
            self._steps.note(self._facts[2])
        if ago:
            self._steps.rebase()

    def _compare(self) -> None:
        """Compare the weights of all members, after the first step in a ring. Raises as `_check_equal`.

        A member that is lost meanwhile is lost between two steps. In the next ring the members compare again: after the
        step that they repeat for its next process.
        """
        try:
            self._check_step()
        except Exception as error:
            if not is_of_loss(error):
                raise
            self._transaction.heal(error)

    def _check_step(self) -> None:
        """As `_check_equal`, after a step; values that a step returns may be a member's own."""
        if self._steps.is_in_place:
            self._check_equal()

    def _check_equal(self) -> None:
        """Raise OutOfStepError, on all members, where their weights differ, and RingError."""
        with self._healing.ring.continuity.healing():
            self._steps.check_equal(self._healing.ring)

    def _warm_up(self, call: Callable[[], Any], ago: int = 0) -> None:
        """Make the first step in another ring once more, where that matters, and return to the state before it."""
        if self._steps.warms_up:
            present = self._steps.present()
            call()
            self._steps.take(present)
            self._put_back(ago)

    def _put_back(self, ago: int) -> None:
        self._steps.put_back(ago)
        assign_drawn(self._drawn[ago])

    def send(self, folder: Path, ranks: Sequence[int], *, in_step: bool) -> None:
        """See base class: the state that the loop has noted.

        A member that comes back after steps without it has no state of its own any more.
        """
        epoch, batch, values, lengths = self._facts
        extra = {name: value[: lengths[name]] if name in lengths else value for name, value in values.items()}
        agreed = list(self._agreed if self._at_boundary else self._boundary.agreed())
        content = {"agreed": agreed, "at_boundary": self._at_boundary}
        extra[LOOP] = content
        drawn = drawn_states()
        assign_drawn(self._noted)
        state = capture(None, self._step, epoch=epoch, batch=batch, extra=extra, parts=self._steps.parts())
        assign_drawn(drawn)
        ring = self._healing.ring
        document = {**state.document, "members": ring.size, tensor_files.SOURCE: ring.rank, ALIKE: self.are_alike}
        own = ranks if self._size >= ring.size else []
        tensor_files.send(folder, self._steps.completed(state.tensors, own), document)

    def _arrive(self, arrival: RingAgreement) -> None:
        """Join the others, in a new process that has restored their state."""
        sender = arrival.sender
        if sender.direction is not SourceDirection.LEAST_ADVANCED or self._step != sender.steps:
            raise _not_restored()
        restored = peek(arrival.folder)
        content = restored.extra[LOOP]
        with TensorFiles(arrival.folder) as files:
            self.are_alike = bool(files.document[ALIKE])
            self._steps.arrive(files)
        extra = {name: value for name, value in restored.extra.items() if name != LOOP}
        self._size = self._healing.ring.size
        self._can_heal = True
        self._transaction.survive()
        self._transaction.arrive(arrival, content["agreed"], self._step)
        # The next loss may come before the first step of this process ends, and it has all that another one needs.
        self._declare_able()
        self._healing.healed(self._step)
        past_results = list(self._healing.ring.continuity.results)
        with self.noting(self._step, (restored.epoch, restored.batch), extra):
            self._healing.ring.continuity.results.extend(past_results)
            if content["at_boundary"]:
                self._boundary.end_step(self._parts, self._step, (restored.epoch, restored.batch), lambda: extra)


def _not_restored() -> RingError:
    return RingError(
        "the other members train in a fit(), or at another step: resume by ctx.checkpoint.restore() before the loop, "
        "with the objects of ctx.memory_checkpoints"
    )
