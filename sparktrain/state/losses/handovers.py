"""Members of a ring move to prepared processes while the gang trains: which ones, and what becomes of a process. Pure.

The next process of the member starts on an idle agent, runs the training function up to its ring, and waits there.
Only then are the members offered to leave their ring: they agree on a step, after which the member leaves for good, and
the others form the next ring with the process, which gets the state there. Its member is the same one with the next
incarnation, so that fencing is that of any restart alone. Once the member has left, the rest is that of a ring that
heals (`member_restart`): the gang trains on when all members have reported equal state.

Until that moment the process is none of the gang: what it sends for the others is refused, and its end, its lateness or
the loss of its agent only withdraw the offer. When the member is really lost before it has left, the process takes its
place at once if it is ready; in every other case it is ended.

A gang that heals has up to `standby` processes that wait for a loss, on idle agents. One takes the place of a lost or
drained member at once, of any rank unless its function has read one; then the next one starts on an idle agent. A lost
member without an idle agent gets that of a process that waits for another rank, or is not ready.

A gang with one vacant place takes its next process in likewise, when an agent is idle: no member leaves then.
"""

from functools import partial

from msgspec.structs import replace

from sparktrain.base.ids import CHIEF, AgentId, Member, Rank, TrialId
from sparktrain.state import agent_messages as m
from sparktrain.state import commands as do
from sparktrain.state import records as fact
from sparktrain.state.gangs import timeouts
from sparktrain.state.gangs.gang import Gang, GangStatus
from sparktrain.state.losses.absence import Absence
from sparktrain.state.losses.handover import MOST_STANDBY_FAILURES, Handover
from sparktrain.state.losses.member_restart import form_ring
from sparktrain.state.losses.prepared import PreparedProcesses, places_with
from sparktrain.state.outcome import Failure, FailureKind, Loss, RestartHow
from sparktrain.state.seats.gang_facts import FactSources, GangFacts
from sparktrain.state.seats.seat import SeatState
from sparktrain.state.seats.seat_change import ChangeReason, SeatChange

Commands = list[do.Command]


class Handovers:
    """Decides about the prepared processes of one run's gangs, on the agents of the pool."""

    def __init__(self, run: FactSources, processes: PreparedProcesses) -> None:
        self._run = run
        self._sweep = run.sweep
        self._agents = run.agents
        self._processes = processes
        self._pending: dict[TrialId, None] = {}
        """Trials with a gang that may have a prepared process: each tick looks at them."""

    # ---- a prepared process starts

    def start(self, gang: Gang, change: SeatChange, at: float) -> Commands:
        """Prepare the next process of the member that moves or comes back, or one that waits for a loss.

        A process that waits already is offered at once.
        """
        handovers = gang.handovers
        if change.reason is ChangeReason.STANDBY:
            by = at + max(timeouts.HANDOVER_S, self._sweep.limits.join_timeout_s)
            standby, start = self._processes.start(gang, change, by)
            handovers.standbys.append(standby)
            return [start]
        self._pending[gang.trial] = None
        if change.agent is None and (handover := self.pop_ready(gang, change.rank)) is not None:
            handover.change = change
            handovers.current = handover
            return self._offer(gang, handover, at)
        handovers.current, start = self._processes.start(gang, change, at + timeouts.HANDOVER_S)
        return [start]

    # ---- processes that wait for a loss, see `standbys`

    def trim(self, gang: Gang, at: float) -> Commands:
        """End the processes that wait for a loss and are late or in the way; after lost members have agents."""
        commands: Commands = []
        standbys = gang.handovers.standbys
        for standby in list(standbys):
            agent = self._agents.get(standby.agent)
            is_late = standby.state is SeatState.JOINING and at >= standby.by
            if is_late or (agent is not None and self._sweep.drains.covers(agent)):
                gang.handovers.standby_failures += is_late
                commands += self._processes.end(gang, standby, at)
        # Those that end already leave agents for as many members.
        waiting = len(gang.in_state(SeatState.EMPTY)) - self._processes.ending
        for _ in range(min(waiting, len(standbys))):
            first = next((standby for standby in standbys if standby.state is SeatState.JOINING), standbys[-1])
            commands += self._processes.end(gang, first, at)
        return commands

    def note_standbys(self, gang: Gang) -> None:
        """Record the processes of a gang, where they have changed."""
        attempt = self._sweep.trials[gang.trial].attempt
        line = standby_line(gang, self._sweep.spec.gang.standby)
        if gang.status is GangStatus.RUNNING and line != attempt.standby:
            attempt.standby = line
            self._sweep.note([fact.StandbysNoted(trial=gang.trial, text=line)])

    def _on_standby(self, gang: Gang, standby: Handover, message: m.MemberMessage) -> None:
        """A message about a process that waits for a loss, or is to."""
        match message:
            case m.MemberStands(standing=standing) if standing.waits and standby.state is SeatState.JOINING:
                standby.state = SeatState.WAITING
            case m.MemberEnded():
                gang.handovers.standbys.remove(standby)
                gang.handovers.standby_failures += 1

    def pop_ready(self, gang: Gang, rank: Rank) -> Handover | None:
        """A process that is ready to take the place of member `rank`, which is for that from now on."""
        standby = gang.handovers.ready_for(rank)
        if standby is None:
            return None
        gang.handovers.standbys.remove(standby)
        gang.handovers.standby_failures = 0
        standby.rank = rank
        standby.place = replace(standby.place, role=gang.places[rank].role)
        return standby

    def _is_due(self, gang: Gang, handover: Handover) -> bool:
        """Whether the member is to move still: users can cancel a drain."""
        if handover.change.reason is not ChangeReason.DRAINED:
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
        prepared = self._process(agent_id, message.member)
        if prepared is None:
            return [] if has_ended else None
        gang, process = prepared
        if isinstance(message, m.MemberStands):
            process.standing = message.standing
        match message:
            case m.MemberStands(standing=standing) if not process.place.port:
                return self._processes.reserved(gang, process, standing.port) if standing.port else []
            case _ if process is not gang.handovers.current:
                self._on_standby(gang, process, message)
            case m.MemberEnded():
                return self._withdraw(gang, process)
            case m.MemberStands(standing=standing) if standing.waits and process.state is SeatState.JOINING:
                able = GangFacts(self._run, gang, at).moves
                return self._offer(gang, process, at) if able else self._end(gang, process, at, fails=True)
        return []

    def _process(self, agent: AgentId, member: Member) -> tuple[Gang, Handover] | None:
        """The process of `agent` that is prepared as `member`, and its gang."""
        gang = self._sweep.gangs.get(member.trial) if self._sweep.run == member.run else None
        if gang is None:
            return None
        processes = gang.handovers.processes
        return next(((gang, entry) for entry in processes if (entry.agent, entry.member) == (agent, member)), None)

    def _offer(self, gang: Gang, handover: Handover, at: float) -> Commands:
        gang.absences.newest_ring += 1
        handover.ring = gang.absences.newest_ring
        handover.state = SeatState.WAITING
        handover.by = at + timeouts.HANDOVER_S
        offer = partial(m.Seating, ring=handover.ring, places=places_with(gang, handover), moving=handover.rank)
        return [do.Send(agent, offer(member=member)) for agent, member in gang.live()]

    def listeners(self, gang: Gang) -> list[tuple[AgentId, Member]]:
        """Prepared processes that get what members share: the first to leave the ring shares before all have left."""
        handover = gang.handovers.current
        return [(handover.agent, handover.member)] if handover is not None and handover.ring else []

    # ---- the ring changes

    def left(self, gang: Gang, message: m.MemberStands, at: float) -> Commands:
        """The members may have left their ring for the next one, which the prepared process joins.

        The one that leaves for good reports it, and the chief where the place was vacant.
        """
        handover = gang.handovers.current
        if handover is None or not handover.ring or message.standing.leaves != handover.ring:
            return []
        rank = handover.rank
        joins = handover.change.reason is ChangeReason.VACANT
        if message.member.rank != (CHIEF if joins else rank):
            return []
        # Should the ring not form, the gang restarts for a reason that counts against no limit.
        failure = gang.located(Failure(FailureKind.LOST, handover.change.text, loss=Loss.DECOMMISSIONED), rank)
        by = at + self._sweep.limits.join_timeout_s
        absence = Absence(failure, at, SeatState.EMPTY, by, reserved=True, ring=handover.ring)
        absence.planned = RestartHow.JOINED if joins else RestartHow.MOVED
        if joins:
            absence.failure = replace(failure, host=handover.place.host)
            gang.absences.vacant.discard(rank)
        else:
            self._processes.leave(gang.agents[rank], message.member, at)
            gang.handovers.moved_after = message.standing.step
        gang.depart(rank, absence)
        # One that has ended meanwhile, perhaps for its ring that was left, cannot join the next one.
        if gang.attendance.ended:
            gang.fail(failure, at, rank)
        gang.handovers.current = None
        renamed = self._processes.take_place(gang, handover, by)
        seated = [do.Send(agent, seating) for agent, seating in gang.seatings() if agent == handover.agent]
        return [*renamed, *seated]

    def lost(self, gang: Gang, rank: Rank, at: float) -> Commands:
        """Member `rank` is really lost: where its ring heals, a process that is ready joins that ring.

        That is the one that is prepared for the member, or one that waits for a loss; another one ends, which was on
        its way.
        """
        absence = gang.absences.by_rank[rank]
        process = gang.handovers.current
        ended: Commands = []
        if process is not None and not (process.rank == rank and process.ring and absence.ring):
            ended = self._processes.end(gang, process, at)
            process = None
        gang.handovers.current = None
        if process is None and absence.ring:
            process = self.pop_ready(gang, rank)
        if process is None:
            return ended
        absence.reserved = True
        renamed = self._processes.take_place(gang, process, at + self._sweep.limits.join_timeout_s)
        return [*ended, *renamed, *form_ring(gang)]

    # ---- a prepared process is not needed, or fails

    def gone(self, agent: AgentId, member: Member) -> Commands | None:
        """The agent of a process that is no member of its gang is lost; None for that of a member."""
        was_ending = self._processes.ended(agent)
        prepared = self._process(agent, member)
        if prepared is None:
            return [] if was_ending else None
        gang, process = prepared
        if process is gang.handovers.current:
            return self._withdraw(gang, process)
        gang.handovers.remove(process)
        return []

    def end(self, gang: Gang, at: float) -> Commands:
        """The gang ends, and with it the processes that are prepared for it."""
        processes = gang.handovers.processes
        return [command for process in processes for command in self._processes.end(gang, process, at)]

    def check(self, at: float) -> Commands:
        """End processes that are late, or that the gang cannot take any more."""
        commands: Commands = []
        for trial in list(self._pending):
            gang = self._sweep.gangs.get(trial)
            handover = None if gang is None else gang.handovers.current
            if gang is None or handover is None:
                del self._pending[trial]
            elif not self._is_due(gang, handover):
                commands += self._end(gang, handover, at)
            elif at >= handover.by or not GangFacts(self._run, gang, at).moves:
                commands += self._end(gang, handover, at, fails=True)
        return commands

    def _end(self, gang: Gang, handover: Handover, at: float, *, fails: bool = False) -> Commands:
        """The prepared process is not needed, or `fails`: the gang cannot take it, or not in time."""
        gang.handovers.failures += fails
        return [*self._processes.end(gang, handover, at), *self._withdrawn(gang, handover)]

    def _withdraw(self, gang: Gang, handover: Handover) -> Commands:
        """The prepared process is gone."""
        gang.handovers.current = None
        gang.handovers.failures += 1
        return self._withdrawn(gang, handover)

    def _withdrawn(self, gang: Gang, handover: Handover) -> Commands:
        present = gang.seatings(joined=True) if handover.ring else []
        return [do.Send(agent, seating) for agent, seating in present]


def standby_line(gang: Gang, standby: int) -> str:
    """The processes of a gang that wait for a loss, in one line; empty without `standby`."""
    if not standby:
        return ""
    ready = [process for process in gang.handovers.standbys if process.state is SeatState.WAITING]
    starting = len(gang.handovers.standbys) - len(ready)
    bound = sorted({process.member.rank for process in ready if process.standing.bound})
    # A loop of the user's own passes its step only once it trains.
    traced = " and step traced" if gang.attendance.moves else ""
    parts = [f"{len(ready)} ready, model built{traced}"] if ready else []
    parts += [f"for rank {', '.join(map(str, bound))} alone, which the function has read"] if bound else []
    parts += [f"{starting} starting"] if starting else []
    if not parts and gang.handovers.standby_failures >= MOST_STANDBY_FAILURES:
        parts = [f"none, for {MOST_STANDBY_FAILURES} processes ended, and none took a place"]
    return f"standby: {'; '.join(parts) or f'0 of {standby}'}"
