"""Members of a ring move to prepared processes while the gang trains: which ones, and what becomes of a process. Pure.

The next process of the member starts on an idle agent, runs the training function up to its ring, and waits there.
Only then are the members offered to leave their ring: they agree on a step, after which the member leaves for good, and
the others form the next ring with the process, which gets the state there. Its member is the same one with the next
incarnation, so that fencing is that of any restart alone. Once the member has left, the rest is that of a ring that
heals (`member_restart`): the gang trains on when all members have reported equal state.

Until that moment the process is none of the gang: what it sends for the others is refused, and its end, its lateness or
the loss of its agent only withdraw the offer. When the member is really lost before it has left, the process takes its
place at once if it is ready; in every other case it is ended.

A gang with one vacant place takes its next process in likewise, when an agent is idle: no member leaves then.
"""

from msgspec.structs import replace

from sparktrain.config.gang_spec import Role
from sparktrain.ids import CHIEF, AgentId, Member, Rank, TrialId
from sparktrain.state import agent_messages as m
from sparktrain.state import commands as do
from sparktrain.state.agents import Agents
from sparktrain.state.gangs.gang import Gang, GangStatus
from sparktrain.state.losses.absence import Absence, AbsenceStage
from sparktrain.state.losses.handover import Handover, HandoverStage
from sparktrain.state.losses.memory_tier import MemoryTier
from sparktrain.state.outcome import Failure, FailureKind, Loss
from sparktrain.state.prospects import idle
from sparktrain.state.sweep import Sweep
from sparktrain.state.topology import MemberAddress

READY_TIMEOUT_S = 120.0
"""From the start of a prepared process until it waits for its ring."""
LEAVE_TIMEOUT_S = 120.0
"""From the offer until the members have left their ring: they agree about each second, and after whole steps."""
END_TIMEOUT_S = 60.0
"""Until the process of a member that has left, or one that is not needed, must have ended; then its agent is lost."""
SETTLE_TIMEOUT_S = 20.0
"""From the change of a ring until its new process has made a step: before that it cannot leave the ring again."""
MOST_FAILURES = 1
"""Prepared processes of a gang that may fail before its members move in other ways."""

Commands = list[do.Command]


class Handovers:
    """Decides about the prepared processes of one run's gangs, on the agents of the pool."""

    def __init__(self, sweep: Sweep, agents: Agents, memory: MemoryTier) -> None:
        self._sweep = sweep
        self._agents = agents
        self._memory = memory
        self._pending: dict[TrialId, None] = {}
        """Trials with a gang that may have a prepared process: each tick looks at them."""
        self._ending: dict[AgentId, tuple[Member, float]] = {}
        """Processes that belong to no gang any more and have not ended, and when each must have."""

    @property
    def ending(self) -> bool:
        """Whether processes that belong to no gang have not ended."""
        return bool(self._ending)

    # ---- a prepared process starts

    def start(self, gang: Gang, rank: Rank, reason: str, at: float) -> Commands:
        """Prepare the next process of member `rank`, which moves for `reason`, on an idle agent.

        Nothing where the gang cannot change its ring while it trains, or no agent is idle.
        """
        able = gang.handovers.current is None and gang.handovers.failures < MOST_FAILURES and self._may_change(gang, at)
        joins = rank in gang.absences.vacant
        # The process divides the data as one of a gang without vacant places.
        able = able and gang.absences.vacant == ({rank} if joins else set())
        if joins:
            able = able and gang.attendance.shrinks >= set(gang.ranks)
        candidates = idle(self._agents, self._sweep, at) if able else []
        if not candidates:
            return []
        agent = max(candidates, key=lambda candidate: candidate.gpus)
        incarnation = gang.absences.prepared[rank] = gang.absences.next_incarnation(rank)
        member = replace(gang.member(rank), incarnation=incarnation)
        place = replace(gang.places[rank], host=agent.host, address=agent.address, port=0)
        by = at + READY_TIMEOUT_S
        gang.handovers.current = Handover(member=member, agent=agent.id, place=place, by=by, reason=reason, joins=joins)
        self._pending[gang.trial] = None
        self._agents.occupy(agent, member)
        self._memory.held.lost(agent.id)  # it drops what its next member does not resume from
        params = self._sweep.trials[gang.trial].params
        grows = gang.size < self._sweep.limits.size
        return [do.PlaceMember(agent.id, member, gang.size, params, prepared=True, may_grow=grows)]

    def is_settling(self, gang: Gang, at: float) -> bool:
        """Whether the members have changed their ring just now, and can soon do so again for an agent that is idle."""
        handovers = gang.handovers
        if handovers.changed_at is None or at >= handovers.changed_at + SETTLE_TIMEOUT_S:
            return False
        # Those that are not new declare it still; a loop never does.
        able = 0 < len(gang.attendance.moves) < len(gang.ranks) and handovers.failures < MOST_FAILURES
        return able and bool(idle(self._agents, self._sweep, at))

    def _is_due(self, gang: Gang, handover: Handover) -> bool:
        """Whether the member is to move still: users can cancel a drain."""
        if handover.joins:
            return True
        agent = self._agents.get(gang.agents[handover.member.rank])
        return agent is None or self._sweep.drains.covers(agent)

    def _may_change(self, gang: Gang, at: float) -> bool:
        """Whether all members are within calls that can change their ring, and nothing else changes the gang."""
        is_whole = not (gang.absences.by_rank or gang.attendance.ended)
        is_over = gang.fault.first is not None or gang.stop.has_started or gang.stop.pauses(at)
        ends = self._sweep.stop is not None or self._sweep.trials[gang.trial].stopping
        if not self._sweep.limits.heals or Role.PS in self._sweep.limits.roles or gang.size < 2:
            return False
        trains = gang.status is GangStatus.RUNNING and len(gang.attendance.moves) == len(gang.ranks)
        return is_whole and trains and not (is_over or ends)

    # ---- messages about processes that are no members

    def on_message(self, agent_id: AgentId, message: m.MemberMessage, at: float) -> Commands | None:
        """A message about a process that is no member of its gang; None where it is none that was prepared either."""
        agent = self._agents.get(agent_id)
        if isinstance(message, m.MemberEnded) and agent is not None and agent.member == message.member:
            self._ending.pop(agent_id, None)
            self._agents.release(agent)
            gang = self._gang_of(agent_id, message.member)
            return [] if gang is None else self._withdraw(gang)
        gang = self._gang_of(agent_id, message.member)
        if gang is None or gang.handovers.current is None:
            return None
        handover = gang.handovers.current
        match message:
            case m.MemberReserved(member=member, port=port) if not handover.place.port:
                handover.place = replace(handover.place, port=port)
                return [do.Send(agent_id, m.FormGang(member, self._places(gang, handover)))]
            case m.MemberPrepared() if handover.stage is HandoverStage.PREPARING and handover.place.port:
                return self._offer(gang, handover, at) if self._may_change(gang, at) else self._fail(gang, at)
        return []

    def _gang_of(self, agent: AgentId, member: Member) -> Gang | None:
        """The gang that the process is prepared for."""
        gang = self._sweep.gangs.get(member.trial) if self._sweep.run == member.run else None
        handover = None if gang is None else gang.handovers.current
        is_current = handover is not None and (handover.agent, handover.member) == (agent, member)
        return gang if is_current else None

    def _offer(self, gang: Gang, handover: Handover, at: float) -> Commands:
        gang.absences.newest_ring += 1
        handover.ring = gang.absences.newest_ring
        handover.stage = HandoverStage.OFFERED
        handover.by = at + LEAVE_TIMEOUT_S
        rank = handover.member.rank
        places = self._places(gang, handover)
        return [do.Send(agent, m.OfferHandover(member, rank, handover.ring, places)) for agent, member in gang.live()]

    def _places(self, gang: Gang, handover: Handover) -> tuple[MemberAddress, ...]:
        rank = handover.member.rank
        return (*gang.places[:rank], handover.place, *gang.places[rank + 1 :])

    def listeners(self, gang: Gang) -> list[tuple[AgentId, Member]]:
        """Prepared processes that get what members share: the first to leave the ring shares before all have left."""
        handover = gang.handovers.current
        is_offered = handover is not None and handover.stage is HandoverStage.OFFERED
        return [(handover.agent, handover.member)] if handover is not None and is_offered else []

    # ---- the ring changes

    def left(self, gang: Gang, message: m.MemberLeft, at: float) -> Commands | None:
        """The members have left their ring for the next one, which the prepared process joins; None where none is.

        The one that leaves for good reports it, and the chief where the place was vacant.
        """
        handover = gang.handovers.current
        reporting = message.member.rank
        if handover is None or message.ring != handover.ring:
            return None
        if reporting != (CHIEF if handover.joins else handover.member.rank):
            return None
        rank = handover.member.rank
        # Should the ring not form, the gang restarts for a reason that counts against no limit.
        failure = gang.located(Failure(FailureKind.LOST, handover.reason, loss=Loss.DECOMMISSIONED), rank)
        by = at + self._sweep.limits.join_timeout_s
        absence = Absence(failure, at, AbsenceStage.WAITING, by, reserved=True, losses=0, moved=not handover.joins)
        absence.ring = handover.ring
        if handover.joins:
            absence.joined = True
            absence.failure = replace(failure, host=handover.place.host)
            gang.absences.vacant.discard(rank)
        else:
            self._ending[gang.agents[rank]] = (message.member, at + END_TIMEOUT_S)
            gang.handovers.moved_after = message.step
        gang.depart(rank, absence)
        return self._take_place(gang, handover, by)

    def lost(self, gang: Gang, rank: Rank, at: float) -> Commands:
        """Member `rank` is really lost, and the ring heals: its prepared process joins that ring if it is ready, and is
        ended in any other case."""
        handover = gang.handovers.current
        if handover is None:
            return []
        absence = gang.absences.by_rank[rank]
        if handover.member.rank != rank or handover.stage is not HandoverStage.OFFERED or not absence.ring:
            return self._end(gang, at)
        absence.reserved = True
        handover.ring = absence.ring
        formed = self._take_place(gang, handover, at + self._sweep.limits.join_timeout_s)
        peers = [(agent, peer) for agent, peer in gang.live() if peer.rank != rank]
        return [*formed, *(do.Send(agent, m.FormGang(peer, gang.places, absence.ring)) for agent, peer in peers)]

    def _take_place(self, gang: Gang, handover: Handover, by: float) -> Commands:
        rank = handover.member.rank
        gang.handovers.current = None
        gang.absences.healed = {}
        gang.absences.incarnations[rank] = handover.member.incarnation
        member = gang.hand_to(rank, handover.agent, by)
        gang.move(rank, handover.place)
        return [do.Send(handover.agent, m.FormGang(member, gang.places, handover.ring))]

    # ---- a prepared process is not needed, or fails

    def gone(self, agent: AgentId, member: Member) -> Commands | None:
        """The agent of a process that is no member of its gang is lost; None for that of a member."""
        gang = self._gang_of(agent, member)
        was_ending = self._ending.pop(agent, None) is not None
        if gang is not None:
            return self._withdraw(gang)
        return [] if was_ending else None

    def end(self, gang: Gang, at: float) -> Commands:
        """The gang ends, and with it the process that was prepared for it."""
        return [] if gang.handovers.current is None else self._end(gang, at)

    def check(self, at: float) -> Commands:
        """End processes that are late, or that the gang cannot take any more."""
        commands: Commands = []
        for trial in list(self._pending):
            gang = self._sweep.gangs.get(trial)
            handover = None if gang is None else gang.handovers.current
            if gang is None or handover is None:
                del self._pending[trial]
            elif not self._is_due(gang, handover):
                commands += [*self._end(gang, at), *self._withdrawn(gang, handover)]
            elif at >= handover.by or not self._may_change(gang, at):
                commands += self._fail(gang, at)
        return commands

    def overdue(self, at: float) -> list[AgentId]:
        """Agents with a process that should have ended."""
        return [agent for agent, (_, by) in self._ending.items() if at >= by]

    def _fail(self, gang: Gang, at: float) -> Commands:
        """The gang cannot take the prepared process, or not in time."""
        handover = gang.handovers.current
        assert handover is not None
        gang.handovers.failures += 1
        return [*self._end(gang, at), *self._withdrawn(gang, handover)]

    def _withdraw(self, gang: Gang) -> Commands:
        """The prepared process is gone."""
        handover = gang.handovers.current
        assert handover is not None
        gang.handovers.current = None
        gang.handovers.failures += 1
        return self._withdrawn(gang, handover)

    def _withdrawn(self, gang: Gang, handover: Handover) -> Commands:
        if handover.stage is not HandoverStage.OFFERED:
            return []
        rank = handover.member.rank
        return [do.Send(agent, m.OfferHandover(member, rank, handover.ring)) for agent, member in gang.live()]

    def _end(self, gang: Gang, at: float) -> Commands:
        handover = gang.handovers.current
        assert handover is not None
        gang.handovers.current = None
        self._ending[handover.agent] = (handover.member, at + END_TIMEOUT_S)
        return [do.Send(handover.agent, m.StopMember(handover.member, 0.0))]
