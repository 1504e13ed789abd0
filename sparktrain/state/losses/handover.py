"""A process that is prepared to take the place of a member, from its start until the gang's next ring has it."""

from msgspec import Struct

from sparktrain.base.ids import AgentId, Member, Rank
from sparktrain.state.agent_messages import Standing
from sparktrain.state.seats.seat import SeatState
from sparktrain.state.seats.seat_change import SeatChange
from sparktrain.state.topology import MemberAddress

MOST_STANDBY_FAILURES = 3
"""Processes that may end before one takes a place: then the gang trains on without any."""


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
    state: SeatState = SeatState.JOINING
    change: SeatChange
    """Why the member moves or comes back, or that the process waits for a loss."""
    standing: Standing = Standing()
    ring: int = 0
    """Once the members are to leave theirs after the same step: number of the ring that they form with it; else 0."""


class GangHandovers(Struct, gc=False):
    """How members of a gang move to prepared processes."""

    current: Handover | None = None
    failures: int = 0
    """Processes that did not take a place: after one, the gang changes in other ways."""
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

    def ready_for(self, rank: Rank) -> Handover | None:
        """The process that can take the place of member `rank` now."""
        ready = [standby for standby in self.standbys if standby.state is SeatState.WAITING]
        able = [standby for standby in ready if standby.member.rank == rank or not standby.standing.bound]
        # One that can take no other rank, where there is one.
        return max(able, key=lambda standby: (standby.standing.bound, standby.member.rank == rank), default=None)

    def remove(self, process: Handover) -> None:
        """It takes no place."""
        if process is self.current:
            self.current = None
        else:
            self.standbys.remove(process)

    @property
    def processes(self) -> list[Handover]:
        """All prepared processes of the gang."""
        return [*self.standbys, *([] if self.current is None else [self.current])]
