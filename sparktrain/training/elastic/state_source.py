"""Who sends the state of a training to whom in a new ring: computed by all members from how far each has come. Pure."""

from collections.abc import Sequence
from enum import IntEnum
from pathlib import Path

from msgspec import Struct

from sparktrain.errors import RingError
from sparktrain.training.collectives.continuity import Result


class SourceDirection(IntEnum):
    """Which member has the state that those of a training continue from."""

    MOST_ADVANCED = 0
    """That of a member which has applied the newest step: the others take it over, as in a `fit`."""
    LEAST_ADVANCED = 1
    """That of a member which has not applied the newest step: those that have repeat the step with it, and return to
    their own state, as in a loop of the user's own."""


class RingStanding(Struct, frozen=True, kw_only=True):
    """How far a member has come when its ring breaks."""

    is_new: bool = False
    """The process takes the lost rank, and has no state yet."""
    steps: int = 0
    """Steps that it has applied."""
    in_step: bool = False
    """It was in the next step, and not in what follows the last one."""
    results: int = 0
    """Collectives since its last step."""
    direction: SourceDirection = SourceDirection.MOST_ADVANCED
    """Which member has the state that its training continues from."""
    is_ahead: bool = False
    """It has also applied the step after those, where a training notes its state only later."""
    past_results: int = 0
    """Of the results, those that a new process does not need."""

    @property
    def advance(self) -> tuple[int, bool, bool, int]:
        """The order of members by how far they have come."""
        return self.steps, self.is_ahead, self.in_step, self.results

    @property
    def place(self) -> tuple[int, bool]:
        """The order of members by the steps that they have applied."""
        return self.steps, self.is_ahead


class RingRefusalError(RingError):
    """The members have met in a ring, and cannot continue in it: no other ring would help."""


class RingAgreement(Struct, frozen=True, kw_only=True):
    """What the members have agreed on in a new ring: equal on all of them."""

    standings: tuple[RingStanding, ...]
    """By rank."""
    source: int
    """The rank that sends its state to new processes."""
    folder: Path
    """The files with that state, on a member that needs them."""
    results: tuple[Result, ...]
    """Of the collectives since the last step of that member."""

    @property
    def sender(self) -> RingStanding:
        """The member that sends its state to new processes."""
        return self.standings[self.source]


def needs_state(standing: RingStanding, source: RingStanding) -> bool:
    """Whether a member with `standing` needs the state of the one that sends."""
    if standing.is_new:
        return True
    if source.direction is SourceDirection.LEAST_ADVANCED:
        return standing.place > source.place
    return standing.steps < source.steps


def source_of(standings: Sequence[RingStanding]) -> int:
    """The rank of the member that sends its state. Raises RingRefusalError where others cannot come to that state."""
    survivors = [rank for rank, standing in enumerate(standings) if not standing.is_new]
    if not survivors:
        raise RingRefusalError("no member of the ring has a state: all of them are new")
    if len({standings[rank].direction for rank in survivors}) > 1:
        raise RingRefusalError("some members train in fit(), and others in a loop of their own")
    if standings[survivors[0]].direction is SourceDirection.LEAST_ADVANCED:
        return _least_advanced(standings, survivors)
    source = max(survivors, key=lambda rank: (standings[rank].advance, -rank))
    # A step ends with a collective of all: no member is further ahead than one step.
    steps = [standings[rank].steps for rank in survivors]
    if max(steps) - min(steps) > 1:
        raise RingRefusalError(f"members have applied different steps when their ring broke: {steps}, by rank")
    return source


def _least_advanced(standings: Sequence[RingStanding], survivors: Sequence[int]) -> int:
    """A member that has not applied the step which others may have. Raises RingRefusalError where all have."""
    place = min(standings[rank].place for rank in survivors)
    if place[1]:
        raise RingRefusalError(
            "all members had changed their weights since they called memory.step(), and the state before is gone: call "
            "collectives of your own at the start of the next step, before memory.train()"
        )
    last = [rank for rank in survivors if standings[rank].place == place]
    return max(last, key=lambda rank: (standings[rank].results, -rank))
