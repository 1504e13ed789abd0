"""What one parameter server knows, and how each push changes it. Pure: no thread, no socket, no clock.

In mode `local-sgd` a push has the difference between the weights that a member has trained for some steps and the ones
that it had pulled; the server adds `1 / workers` of it at once (Stich 2019, 'Local SGD Converges Fast and Communicates
Little', algorithm 2). Where all members push for the same version, the result is the mean of their weights. A member
that is slow, leaves or returns only changes how often its part is added; a round of means would wait for it.

The version of a shard counts its updates. A member pulls the variables with their version, and pushes gradients with
the version that they were computed for: the updates in between are the staleness of the push.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from enum import Enum
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from sparktrain.config.server_settings import ServerMode, ServerSettings
from sparktrain.errors import ProtocolError

Array = NDArray[Any]


class UpdateRule(ABC):
    """Applies gradients to the variables of one shard: an optimizer."""

    @abstractmethod
    def apply(self, values: Sequence[Array], gradients: Sequence[Array], scale: float) -> None:
        """Update `values` in place, at the learning rate times `scale`. May overwrite `gradients`."""

    @abstractmethod
    def slots(self) -> list[Array]:
        """The optimizer's own variables, copies or views, for a checkpoint."""

    @abstractmethod
    def restore(self, slots: Sequence[Array]) -> None:
        """Set the optimizer's own variables to `slots`, of the shapes and types of `slots()`."""


class PushOutcome(Enum):
    """What became of a push."""

    APPLIED = "applied"
    """The variables include it."""
    COUNTED = "counted"
    """It belongs to a round that waits for other members."""
    LATE = "late"
    """It does not count: its round is over, or the variables were restored since. The member pulls, and continues."""


class Sender(Struct, frozen=True):
    """The process that pushes."""

    rank: int
    incarnation: int
    """A later process with the same rank has a larger one."""


class Push(Struct, frozen=True):
    """One push, without its gradients. A retry is equal to the first attempt."""

    sender: Sender
    number: int
    """From 1, one more with each push of this process to this shard."""
    term: int
    version: int
    """Of the variables for which the gradients were computed."""


class PushAnswer(Struct, frozen=True):
    """The answer to a push, and to every retry of it."""

    outcome: PushOutcome
    version: int
    """The version that includes the push, once its round is over; of a late one, the next to push for."""
    staleness: int


class FitEnds(Struct, frozen=True):
    """How far the members are."""

    ended: tuple[int, ...] = ()
    """By rank: how many calls of `fit` the member has trained to their ends."""
    stopped: int = 0
    """The newest call of `fit` that all members stop, because one has stopped it; 0 for none."""

    def all_ended(self, fit: int, but: int) -> bool:
        """Whether all members except rank `but` have ended this call."""
        return all(ended_fit >= fit for rank, ended_fit in enumerate(self.ended) if rank != but)

    def with_those(self, other: "FitEnds") -> "FitEnds":
        """What both know: the largest numbers."""
        if not self.ended or not other.ended:
            return FitEnds(self.ended or other.ended, max(self.stopped, other.stopped))
        return FitEnds(tuple(map(max, self.ended, other.ended)), max(self.stopped, other.stopped))


_AT_START = FitEnds()


class ShardState:
    """The variables of one server and their history. One thread at a time may call it."""

    def __init__(
        self,
        settings: ServerSettings,
        values: Sequence[Array],
        rule: UpdateRule,
        *,
        term: int,
        version: int = 0,
        standing: FitEnds = _AT_START,
    ) -> None:
        """`values` are changed in place. `term` identifies this history: a restored server has another one."""
        self.settings = settings
        self.values = list(values)
        self.term = term
        self.version = version
        self.late = 0
        """Pushes that did not count."""
        self._rule = rule
        self._last: dict[int, tuple[Push, PushAnswer]] = {}
        self._sums: list[Array] = []
        self._members: set[int] = set()
        """Ranks that the current round has counted."""
        self.standing = FitEnds((0,) * settings.workers).with_those(standing)
        self._departed = {rank for rank, fit in enumerate(standing.ended) if fit}
        """Ranks that no round waits for."""

    def push(self, push: Push, gradients: Sequence[Array]) -> PushAnswer:
        """Take gradients, or in mode `local-sgd` differences, which it may overwrite.

        A retry changes nothing and has the same answer. Raises ProtocolError for a push that no member can have sent:
        of a process that has a successor, out of its order, or for a version that does not exist yet.
        """
        if (earlier_answer := self._answered(push)) is not None:
            return earlier_answer
        self._check(push, gradients)
        answer = self._take(push, gradients)
        self._last[push.sender.rank] = push, answer
        self.late += answer.outcome is PushOutcome.LATE
        return answer

    def leave(self, sender: Sender, fit: int = 1, *, stops: bool = False) -> None:
        """The member has trained call number `fit` to its end: rounds no longer wait for it, until it pushes again.

        `stops`: it has stopped before its last step, and so shall the others.
        """
        self._check_rank(sender)
        last = self._last.get(sender.rank)
        if last is not None and last[0].sender.incarnation > sender.incarnation:
            return
        ended = tuple(fit if rank == sender.rank else 0 for rank in range(self.settings.workers))
        self.standing = self.standing.with_those(FitEnds(ended, fit if stops else 0))
        self._departed.add(sender.rank)
        self._end_round()

    def slots(self) -> list[Array]:
        """The optimizer's own variables, for a checkpoint beside `values` and `version`."""
        return self._rule.slots()

    @property
    def needed(self) -> int:
        """How many members end the current round."""
        settings = self.settings
        return max(1, min(settings.workers - settings.backup_workers, settings.workers - len(self._departed)))

    def _answered(self, push: Push) -> PushAnswer | None:
        """The answer to this push where it has come before."""
        last = self._last.get(push.sender.rank)
        if last is None or last[0].sender.incarnation < push.sender.incarnation:
            return None
        if last[0].sender.incarnation > push.sender.incarnation:
            raise ProtocolError(f"{push.sender} pushed after {last[0].sender} took its place: the earlier process ends")
        if push.number == last[0].number and push == last[0]:
            return last[1]
        if push.number <= last[0].number:
            raise ProtocolError(f"push {push.number} of {push.sender} came after its push {last[0].number}")
        return None

    def _check(self, push: Push, gradients: Sequence[Array]) -> None:
        self._check_rank(push.sender)
        if push.term == self.term and push.version > self.version:
            raise ProtocolError(f"{push.sender} pushed for version {push.version}, and the newest is {self.version}")
        expected = [(value.dtype, value.shape) for value in self.values]
        if (received := [(gradient.dtype, gradient.shape) for gradient in gradients]) != expected:
            raise ProtocolError(f"{push.sender} pushed {received}, and the variables are {expected}")

    def _check_rank(self, sender: Sender) -> None:
        if not 0 <= sender.rank < self.settings.workers:
            raise ProtocolError(f"rank {sender.rank} asked, and {self.settings.workers} workers train")

    def _take(self, push: Push, gradients: Sequence[Array]) -> PushAnswer:
        rank = push.sender.rank
        self._departed.discard(rank)
        if push.term != self.term:
            # The gradients are for variables that were lost with a server: the member pulls, and continues.
            return PushAnswer(PushOutcome.LATE, self.version, 0)
        staleness = self.version - push.version
        if not self.settings.in_rounds:
            self._rule.apply(self.values, gradients, self._scale(staleness))
            self.version += 1
            return PushAnswer(PushOutcome.APPLIED, self.version, staleness)
        # A member that restarts may push for a round that has counted its predecessor: it waits for the next one, or it
        # would push again and again.
        if staleness or rank in self._members:
            return PushAnswer(PushOutcome.LATE, self.version + (rank in self._members), staleness)
        self._count(rank, gradients)
        awaited = self.version + 1
        self._end_round()
        outcome = PushOutcome.APPLIED if self.version == awaited else PushOutcome.COUNTED
        return PushAnswer(outcome, awaited, 0)

    def _scale(self, staleness: int) -> float:
        """By how much of its size a push counts that does not wait for others."""
        match self.settings.mode:
            case ServerMode.STALENESS_AWARE:
                # Zhang et al. 2016, 'Staleness-aware Async-SGD for Distributed Deep Learning', equation 2.
                return 1.0 / max(1, staleness)
            case ServerMode.LOCAL_SGD:
                return 1.0 / self.settings.workers
        return 1.0

    def _count(self, rank: int, gradients: Sequence[Array]) -> None:
        if self._members:
            for total, gradient in zip(self._sums, gradients, strict=True):
                np.add(total, gradient, out=total)
        else:
            self._sums = [np.array(gradient) for gradient in gradients]
        self._members.add(rank)

    def _end_round(self) -> None:
        """Apply the mean of a round that is complete."""
        if not self._members or len(self._members) < self.needed:
            return
        for total in self._sums:
            np.divide(total, len(self._members), out=total, casting="unsafe")
        self._rule.apply(self.values, self._sums, 1.0)
        self._members = set()
        self._sums = []
        self.version += 1


class AddDifferences(UpdateRule):
    """Adds differences of weights: the rule of mode `local-sgd`, where members have optimizers of their own."""

    def apply(self, values: Sequence[Array], gradients: Sequence[Array], scale: float) -> None:
        """See base class. With `scale` 1 the values become `gradients`: the only member sends its weights, because
        a difference would be rounded.
        """
        for value, gradient in zip(values, gradients, strict=True):
            if scale == 1.0:
                value[...] = gradient
                continue
            np.multiply(gradient, gradient.dtype.type(scale), out=gradient)
            np.add(value, gradient, out=value)

    def slots(self) -> list[Array]:
        """See base class."""
        return []

    def restore(self, slots: Sequence[Array]) -> None:
        """See base class."""
