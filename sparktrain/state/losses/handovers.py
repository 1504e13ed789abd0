"""Members of a ring move to prepared processes while the gang trains: which ones, and what becomes of a process. Pure.

The next process of the member starts on an idle agent, runs the training function up to its ring, and waits there.
Only then are the members offered to leave their ring: they agree on a step, after which the member leaves for good, and
the others form the next ring with the process, which gets the state there. Its member is the same one with the next
incarnation, so that fencing is that of any restart alone. Once the member has left, the rest is that of a ring that
heals (`member_restart`): the gang trains on when all members have reported equal state.

Until that moment the process is none of the gang: what it sends for the others is refused, and its end, its lateness or
the loss of its agent only withdraw the offer. When the member is really lost before it has left, the process takes its
place at once if it is ready; in every other case it is ended. A gang with processes that wait for a loss (`standbys`)
moves to one of these, which is ready at once.

A gang with one vacant place takes its next process in likewise, when an agent is idle: no member leaves then.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from sparktrain.base.ids import CHIEF, AgentId, Member, Rank, TrialId
from sparktrain.state import agent_messages as m
from sparktrain.state import commands as do
from sparktrain.state.agents import Agents, AgentState
from sparktrain.state.gangs.gang import Gang
from sparktrain.state.losses.absence import Absence, AbsenceStage
from sparktrain.state.losses.handover import Handover, HandoverStage
from sparktrain.state.losses.prepared import PreparedProcesses, places_with
from sparktrain.state.losses.standbys import Standbys
from sparktrain.state.outcome import Failure, FailureKind, Loss, RestartHow
from sparktrain.state.prospects import idle
from sparktrain.state.sweep import Sweep

READY_TIMEOUT_S = 120.0
"""From the start of a prepared process until it waits for its ring."""
LEAVE_TIMEOUT_S = 120.0
"""From the offer until the members have left their ring: they agree about each second, and after whole steps."""
SETTLE_TIMEOUT_S = 20.0
"""From the change of a ring until its new process has made a step: before that it cannot leave the ring again."""
MOST_FAILURES = 1
"""Prepared processes of a gang that may fail before its members move in other ways."""

Commands = list[do.Command]


class Handovers:
    """Decides about the prepared processes of one run's gangs, on the agents of the pool."""

    def __init__(self, sweep: Sweep, agents: Agents, processes: PreparedProcesses, standbys: Standbys) -> None:
        self._sweep = sweep
        self._agents = agents
        self._processes = processes
        self._standbys = standbys
        self._pending: dict[TrialId, None] = {}
        """Trials with a gang that may have a prepared process: each tick looks at them."""

    # ---- a prepared process starts

    def spread(self, gang: Gang, rank: Rank, reason: str, agents: Sequence[AgentState], at: float) -> Commands:
        """As `start`, on one of these idle agents: the host of member `rank` has too many members."""
        if not agents or gang.absences.vacant or not self._may_move(gang, at):
            return []
        return self._prepare(gang, rank, agents[0], reason, at, spreads=True)

    def start(self, gang: Gang, rank: Rank, reason: str, at: float) -> Commands:
        """Prepare the next process of member `rank`, which moves for `reason`, on an idle agent.

        Nothing where the gang cannot change its ring while it trains, or no agent is idle.
        """
        able = self._may_move(gang, at)
        joins = rank in gang.absences.vacant
        # The process divides the data as one of a gang without vacant places.
        able = able and gang.absences.vacant == ({rank} if joins else set())
        if joins:
            able = able and gang.attendance.shrinks >= set(gang.ranks)
        if able and (standby := self._standbys.pop_ready(gang, rank)) is not None:
            standby.reason = reason
            gang.handovers.current = standby
            self._pending[gang.trial] = None
            return self._offer(gang, standby, at)
        candidates = idle(self._agents, self._sweep, at) if able else []
        if not candidates:
            return []
        agent = max(candidates, key=lambda candidate: candidate.gpus)
        return self._prepare(gang, rank, agent, reason, at, joins=joins)

    def _prepare(
        self,
        gang: Gang,
        rank: Rank,
        agent: AgentState,
        reason: str,
        at: float,
        *,
        joins: bool = False,
        spreads: bool = False,
    ) -> Commands:
        """Start the next process of member `rank` on an idle agent."""
        handover, start = self._processes.start(gang, rank, agent, reason, at + READY_TIMEOUT_S)
        handover.joins = joins
        handover.spreads = spreads
        gang.handovers.current = handover
        self._pending[gang.trial] = None
        return [start]

    def _may_move(self, gang: Gang, at: float) -> bool:
        """Whether the members can change their ring now for a process that is prepared, and none is yet."""
        has_room = gang.handovers.current is None and gang.handovers.failures < MOST_FAILURES
        return has_room and self._standbys.may_change(gang, at)

    def is_settling(self, gang: Gang, at: float) -> bool:
        """Whether the members have changed their ring just now, and can soon do so again for an agent that is idle."""
        handovers = gang.handovers
        if handovers.changed_at is None or at >= handovers.changed_at + SETTLE_TIMEOUT_S:
            return False
        # Those that are not new declare it still; a loop that keeps its size never does.
        able = 0 < len(gang.attendance.moves) < len(gang.ranks) and handovers.failures < MOST_FAILURES
        return able and bool(idle(self._agents, self._sweep, at))

    def _is_due(self, gang: Gang, handover: Handover) -> bool:
        """Whether the member is to move still: users can cancel a drain."""
        if handover.joins or handover.spreads:
            return True
        agent = self._agents.get(gang.agents[handover.rank])
        return agent is None or self._sweep.drains.covers(agent)

    # ---- messages about processes that are no members

    def on_message(self, agent_id: AgentId, message: m.MemberMessage, at: float) -> Commands | None:
        """A message about a process that is no member of its gang; None where it is none that was prepared either."""
        agent = self._agents.get(agent_id)
        has_ended = isinstance(message, m.MemberEnded) and agent is not None and agent.member == message.member
        if has_ended and agent is not None:
            self._processes.ended(agent_id)
            self._agents.release(agent)
        gang = self._sweep.gangs.get(message.member.trial) if self._sweep.run == message.member.run else None
        if gang is not None and (standby := self._standbys.of(gang, agent_id, message.member)) is not None:
            return self._standbys.on_message(gang, standby, message)
        handover = None if gang is None else self._current_of(gang, agent_id, message.member)
        if gang is None or handover is None:
            return [] if has_ended else None
        match message:
            case m.MemberEnded():
                return self._withdraw(gang)
            case m.MemberReserved(port=port):
                return self._processes.reserved(gang, handover, port)
            case m.MemberPrepared() if handover.stage is HandoverStage.PREPARING and handover.place.port:
                able = self._standbys.may_change(gang, at)
                return self._offer(gang, handover, at) if able else self._fail(gang, at)
        return []

    def _current_of(self, gang: Gang, agent: AgentId, member: Member) -> Handover | None:
        """The process that is prepared for a member that moves, if it is this one."""
        handover = gang.handovers.current
        is_current = handover is not None and (handover.agent, handover.member) == (agent, member)
        return handover if is_current else None

    def _offer(self, gang: Gang, handover: Handover, at: float) -> Commands:
        gang.absences.newest_ring += 1
        handover.ring = gang.absences.newest_ring
        handover.stage = HandoverStage.OFFERED
        handover.by = at + LEAVE_TIMEOUT_S
        rank = handover.rank
        places = places_with(gang, handover)
        return [do.Send(agent, m.OfferHandover(member, rank, handover.ring, places)) for agent, member in gang.live()]

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
        if handover is None or message.ring != handover.ring:
            return None
        rank = handover.rank
        if message.member.rank != (CHIEF if handover.joins else rank):
            return None
        # Should the ring not form, the gang restarts for a reason that counts against no limit.
        failure = gang.located(Failure(FailureKind.LOST, handover.reason, loss=Loss.DECOMMISSIONED), rank)
        by = at + self._sweep.limits.join_timeout_s
        absence = Absence(failure, at, AbsenceStage.WAITING, by, reserved=True, ring=handover.ring)
        absence.planned = RestartHow.JOINED if handover.joins else RestartHow.MOVED
        if handover.joins:
            absence.failure = replace(failure, host=handover.place.host)
            gang.absences.vacant.discard(rank)
        else:
            self._processes.leave(gang.agents[rank], message.member, at)
            gang.handovers.moved_after = message.step
        gang.depart(rank, absence)
        # One that has ended meanwhile, perhaps for its ring that was left, cannot join the next one.
        if gang.attendance.ended:
            gang.fail(failure, at, rank)
        return self._take_place(gang, handover, by)

    def lost(self, gang: Gang, rank: Rank, at: float) -> Commands:
        """Member `rank` is really lost, and the ring heals: its prepared process joins that ring if it is ready, and is
        ended in any other case; then one that waits for a loss joins the ring."""
        handover = gang.handovers.current
        if handover is None:
            return self._standbys.lost(gang, rank, at)
        absence = gang.absences.by_rank[rank]
        if handover.rank != rank or handover.stage is not HandoverStage.OFFERED or not absence.ring:
            return [*self._end(gang, at), *self._standbys.lost(gang, rank, at)]
        absence.reserved = True
        handover.ring = absence.ring
        formed = self._take_place(gang, handover, at + self._sweep.limits.join_timeout_s)
        peers = [(agent, peer) for agent, peer in gang.live() if peer.rank != rank]
        return [*formed, *(do.Send(agent, gang.form(peer, absence.ring)) for agent, peer in peers)]

    def _take_place(self, gang: Gang, handover: Handover, by: float) -> Commands:
        gang.handovers.current = None
        renamed = self._processes.take_place(gang, handover, by)
        member = gang.member(handover.rank)
        return [*renamed, do.Send(handover.agent, gang.form(member, handover.ring))]

    # ---- a prepared process is not needed, or fails

    def gone(self, agent: AgentId, member: Member) -> Commands | None:
        """The agent of a process that is no member of its gang is lost; None for that of a member."""
        was_ending = self._processes.ended(agent)
        gang = self._sweep.gangs.get(member.trial) if self._sweep.run == member.run else None
        if gang is not None and (standby := self._standbys.of(gang, agent, member)) is not None:
            self._standbys.gone(gang, standby)
            return []
        if gang is not None and self._current_of(gang, agent, member) is not None:
            return self._withdraw(gang)
        return [] if was_ending else None

    def end(self, gang: Gang, at: float) -> Commands:
        """The gang ends, and with it the processes that are prepared for it."""
        current = [] if gang.handovers.current is None else self._end(gang, at)
        return [*current, *self._standbys.end(gang, at)]

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
            elif at >= handover.by or not self._standbys.may_change(gang, at):
                commands += self._fail(gang, at)
        return commands

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
        ring = handover.ring
        return [do.Send(agent, m.OfferHandover(member, handover.rank, ring)) for agent, member in gang.live()]

    def _end(self, gang: Gang, at: float) -> Commands:
        handover = gang.handovers.current
        assert handover is not None
        gang.handovers.current = None
        return [self._processes.end(handover, at)]
