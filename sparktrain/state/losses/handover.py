"""A process that is prepared to take the place of a member, from its start until the gang's next ring has it."""

from enum import Enum

from msgspec import Struct

from sparktrain.base.ids import AgentId, Member, Rank
from sparktrain.state.topology import MemberAddress


class HandoverStage(Enum):
    """How far the process is."""

    PREPARING = "it runs the training function up to its ring"
    READY = "it waits there for the loss of a member"
    OFFERED = "it waits there, and the members are to leave theirs after the same step"


class Handover(Struct, gc=False, kw_only=True):
    """A process that waits for the place of a member which trains."""

    member: Member
    """The process: the rank that it was prepared for, the generation of the gang, and an incarnation of its own."""
    rank: Rank
    """The member with the place that it is to take."""
    agent: AgentId
    place: MemberAddress
    by: float
    """When it must have come to its ring, or when the members must have left theirs."""
    stage: HandoverStage = HandoverStage.PREPARING
    reason: str
    """Why the member moves, or comes back, in one line."""
    joins: bool = False
    """The place is vacant: the members of a smaller ring take the process in, and none of them leaves."""
    spreads: bool = False
    """The member moves because its host has too many of the gang."""
    bound: bool = True
    """The training function has read which rank it has: the process can take no other one."""
    ring: int = 0
    """Once offered: number of the ring that the others form with it."""


class GangHandovers(Struct, gc=False):
    """How members of a gang move to prepared processes."""

    current: Handover | None = None
    failures: int = 0
    """Processes that did not take a place."""
    standbys: list[Handover] = []
    """Processes that wait for the loss of a member."""
    standby_failures: int = 0
    """Those that have ended by themselves, or were late, since one has taken a place."""
    moved_after: int | None = None
    """The step after which a member has moved last."""
    changed_at: float | None = None
    """When all members had joined the ring that has formed last."""

    def postpone(self, seconds: float) -> None:
        """See `Gang.postpone`."""
        for handover in self.processes:
            handover.by += seconds
        if self.changed_at is not None:
            self.changed_at += seconds

    @property
    def processes(self) -> list[Handover]:
        """All prepared processes of the gang."""
        return [*self.standbys, *([] if self.current is None else [self.current])]
