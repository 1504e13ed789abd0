"""The processes that are prepared for a gang: how they start, take the place of a member, and end. Pure.

A process is none of the gang until it takes a place. It starts under the name of the member that it is prepared for,
with an incarnation of its own. It takes the place of another rank, or that of a member with a newer incarnation, under
the name of that member's next process; its agent learns that name before all that follows.
"""

from msgspec.structs import replace

from sparktrain.base.ids import AgentId, Member
from sparktrain.state import agent_messages as m
from sparktrain.state import commands as do
from sparktrain.state.agents import Agents
from sparktrain.state.gangs import timeouts
from sparktrain.state.gangs.gang import Gang
from sparktrain.state.losses.handover import Handover
from sparktrain.state.losses.memory_tier import MemoryTier
from sparktrain.state.seats.seat_change import SeatChange
from sparktrain.state.sweep import Sweep
from sparktrain.state.topology import MemberAddress

Commands = list[do.Command]


class PreparedProcesses:
    """The processes of one run that are prepared, on the agents of the pool."""

    def __init__(self, sweep: Sweep, agents: Agents, memory: MemoryTier) -> None:
        self._sweep = sweep
        self._agents = agents
        self._memory = memory
        self._ending: dict[AgentId, tuple[Member, float]] = {}
        """Processes that belong to no gang any more and have not ended, and when each must have."""

    @property
    def ending(self) -> int:
        """How many processes that belong to no gang have not ended."""
        return len(self._ending)

    def start(self, gang: Gang, change: SeatChange, by: float) -> tuple[Handover, do.Command]:
        """Prepare a process for the member that changes its seat, on an idle agent; it must be ready at `by`."""
        rank = change.rank
        agent = change.agent
        assert agent is not None
        incarnation = gang.absences.prepared[rank] = gang.absences.next_incarnation(rank)
        member = replace(gang.member(rank), incarnation=incarnation)
        place = replace(gang.places[rank], host=agent.host, address=agent.address, port=0)
        self._agents.occupy(agent, member)
        self._memory.held.lost(agent.id)  # it drops what its next member does not resume from
        params = self._sweep.trials[gang.trial].params
        grows = gang.size < self._sweep.limits.size
        handover = Handover(member=member, rank=rank, agent=agent.id, place=place, by=by, change=change)
        return handover, do.PlaceMember(agent.id, member, gang.size, params, prepared=True, may_grow=grows)

    def reserved(self, gang: Gang, handover: Handover, port: int) -> Commands:
        """The process holds `port`, and gets the places of the members, as if it had its own among them."""
        if handover.place.port:
            return []
        handover.place = replace(handover.place, port=port)
        return [do.Send(handover.agent, m.Seating(member=handover.member, places=places_with(gang, handover)))]

    def take_place(self, gang: Gang, handover: Handover, by: float) -> Commands:
        """The process is the next one of member `handover.rank`, which is away: it must train at `by`."""
        rank = handover.rank
        absences = gang.absences
        if handover.member.rank == rank and handover.member.incarnation > absences.by_rank[rank].incarnation:
            absences.incarnations[rank] = handover.member.incarnation
        member = gang.hand_to(rank, handover.agent, by)
        gang.move(rank, handover.place)
        gang.attendance.stand(rank, handover.standing)
        agent = self._agents.get(handover.agent)
        if agent is None or member == handover.member:
            return []
        agent.rename(member)
        return [do.Send(handover.agent, m.RenameMember(handover.member, member))]

    def end(self, gang: Gang, handover: Handover, at: float) -> Commands:
        """The process is not needed."""
        gang.handovers.remove(handover)
        self.leave(handover.agent, handover.member, at)
        return [do.Send(handover.agent, m.StopMember(handover.member, 0.0))]

    def leave(self, agent: AgentId, member: Member, at: float) -> None:
        """The process of `agent` belongs to no gang any more, and ends soon."""
        self._ending[agent] = (member, at + timeouts.LEFT_S)

    def ended(self, agent: AgentId) -> bool:
        """The process of `agent` is gone; whether it belonged to no gang."""
        return self._ending.pop(agent, None) is not None

    def overdue(self, at: float) -> list[AgentId]:
        """Agents with a process that should have ended."""
        return [agent for agent, (_, by) in self._ending.items() if at >= by]


def places_with(gang: Gang, handover: Handover) -> tuple[MemberAddress, ...]:
    """The places of the members once the process has taken its place."""
    rank = handover.rank
    return (*gang.places[:rank], handover.place, *gang.places[rank + 1 :])
