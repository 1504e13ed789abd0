"""Processes that wait for the loss of a member, whichever it is: how many, where, and which place each takes. Pure.

A gang that heals has up to `standby` of them, on idle agents. Each is prepared for one rank, as a process that a
drained member moves to (`handovers`): it builds its model, traces the step of a `fit`, and waits. When a member is
lost, a process that waits takes its place in the ring that the others form at once. A process with a training function
that has read its rank can take that place alone. After one has taken a place, the next process starts on the agent that
is idle then.

None of them is of the gang before it takes a place: the end of a process, or of its agent, costs the gang nothing. One
on a drained agent ends, and starts elsewhere. A lost member without an idle agent gets that of a process that waits for
another rank, or is not ready.
"""

from msgspec.structs import replace

from sparktrain.base.ids import CHIEF, AgentId, Member, Rank
from sparktrain.config.gang_spec import Role
from sparktrain.state import agent_messages as m
from sparktrain.state import commands as do
from sparktrain.state import records as fact
from sparktrain.state.agents import Agents
from sparktrain.state.gangs.gang import Gang, GangStatus
from sparktrain.state.losses.absence import AbsenceStage
from sparktrain.state.losses.handover import Handover, HandoverStage
from sparktrain.state.losses.prepared import PreparedProcesses
from sparktrain.state.prospects import idle
from sparktrain.state.sweep import Sweep

READY_TIMEOUT_S = 120.0
"""From the start of a process until it waits, where members have no longer time to join."""
MOST_FAILURES = 3
"""Processes that may end before one takes a place: then the gang trains on without any."""
REASON = "standby"

Commands = list[do.Command]


class Standbys:
    """Decides about the processes of one run's gangs that wait for a loss, on the agents of the pool."""

    def __init__(self, sweep: Sweep, agents: Agents, processes: PreparedProcesses) -> None:
        self._sweep = sweep
        self._agents = agents
        self._processes = processes

    # ---- how many, and where

    def advance(self, at: float) -> Commands:
        """End the processes that are late or in the way, and start those that lack; after lost members have agents."""
        if not self._sweep.spec.gang.standby:
            return []
        return [command for gang in self._sweep.gangs.values() for command in self._advance(gang, at)]

    def _advance(self, gang: Gang, at: float) -> Commands:
        commands: Commands = []
        standbys = gang.handovers.standbys
        for standby in list(standbys):
            agent = self._agents.get(standby.agent)
            is_late = standby.stage is HandoverStage.PREPARING and at >= standby.by
            if is_late or (agent is not None and self._sweep.drains.covers(agent)):
                gang.handovers.standby_failures += is_late
                commands.append(self._end(gang, standby, at))
        # Those that end already leave agents for as many members.
        waiting = len(gang.absences.in_stage(AbsenceStage.WAITING)) - self._processes.ending
        for _ in range(min(waiting, len(standbys))):
            first = next((standby for standby in standbys if standby.stage is HandoverStage.PREPARING), standbys[-1])
            commands.append(self._end(gang, first, at))
        if len(standbys) < self._sweep.spec.gang.standby and self._may_wait_for(gang, at) and self._needs(gang):
            commands += self._start(gang, at)
        self._note(gang)
        return commands

    def _note(self, gang: Gang) -> None:
        attempt = self._sweep.trials[gang.trial].attempt
        line = standby_line(gang, self._sweep.spec.gang.standby)
        if gang.status is GangStatus.RUNNING and line != attempt.standby:
            attempt.standby = line
            self._sweep.note([fact.StandbysNoted(trial=gang.trial, text=line)])

    def _start(self, gang: Gang, at: float) -> Commands:
        commands: Commands = []
        by = at + max(READY_TIMEOUT_S, self._sweep.limits.join_timeout_s)
        lacking = self._sweep.spec.gang.standby - len(gang.handovers.standbys)
        for agent in idle(self._agents, self._sweep, at)[:lacking]:
            standby, start = self._processes.start(gang, _next_rank(gang), agent, REASON, by)
            gang.handovers.standbys.append(standby)
            commands.append(start)
        return commands

    def _needs(self, gang: Gang) -> bool:
        """Whether the idle agents are not for something else: members that move, or that the gang lacks."""
        handovers = gang.handovers
        agents = map(self._agents.get, gang.agents)
        drains = self._sweep.drains
        moves = handovers.current is not None or any(agent is None or drains.covers(agent) for agent in agents)
        return not moves and gang.size == self._sweep.limits.size and handovers.standby_failures < MOST_FAILURES

    def may_change(self, gang: Gang, at: float) -> bool:
        """Whether all members are within calls that can change their ring, and nothing else changes the gang."""
        return len(gang.attendance.moves) == len(gang.ranks) and self._is_steady(gang, at)

    def _may_wait_for(self, gang: Gang, at: float) -> bool:
        """Whether a process can wait for the loss of a member: all heal, and nothing else changes the gang.

        Members in a loop of the user's own heal, and mostly do not change their ring before a loss.
        """
        return len(gang.attendance.heals) == len(gang.ranks) and self._is_steady(gang, at)

    def _is_steady(self, gang: Gang, at: float) -> bool:
        """Whether the gang trains in a ring that can heal, and nothing changes it."""
        is_whole = not (gang.absences.by_rank or gang.attendance.ended)
        is_over = gang.fault.first is not None or gang.stop.has_started or gang.stop.pauses(at)
        ends = self._sweep.stop is not None or self._sweep.trials[gang.trial].stopping
        if not self._sweep.limits.heals or Role.PS in self._sweep.limits.roles or gang.size < 2:
            return False
        return is_whole and gang.status is GangStatus.RUNNING and not (is_over or ends)

    # ---- messages

    def of(self, gang: Gang, agent: AgentId, member: Member) -> Handover | None:
        """The process of `agent`, if it waits for a loss, or is to."""
        standbys = gang.handovers.standbys
        return next((standby for standby in standbys if (standby.agent, standby.member) == (agent, member)), None)

    def on_message(self, gang: Gang, standby: Handover, message: m.MemberMessage) -> Commands:
        """A message about a process that waits for a loss, or is to."""
        match message:
            case m.MemberReserved(port=port):
                return self._processes.reserved(gang, standby, port)
            case m.MemberPrepared(bound=bound) if standby.stage is HandoverStage.PREPARING and standby.place.port:
                standby.stage = HandoverStage.READY
                standby.bound = bound
            case m.MemberEnded():
                gang.handovers.standbys.remove(standby)
                gang.handovers.standby_failures += 1
        return []

    # ---- a member is lost, or moves

    def lost(self, gang: Gang, rank: Rank, at: float) -> Commands:
        """Member `rank` is lost, and the ring heals: a process that is ready takes its place, if one can."""
        absence = gang.absences.by_rank[rank]
        standby = self.pop_ready(gang, rank) if absence.ring else None
        if standby is None:
            return []
        absence.reserved = True
        renamed = self._processes.take_place(gang, standby, at + self._sweep.limits.join_timeout_s)
        # Another lost member is still on its way: all form the ring when it has come.
        if not all(absent.reserved for absent in gang.absences.by_rank.values()):
            return renamed
        formed = [do.Send(agent, gang.form(peer, absence.ring)) for agent, peer in gang.live()]
        return [*renamed, *formed]

    def pop_ready(self, gang: Gang, rank: Rank) -> Handover | None:
        """A process that is ready to take the place of member `rank`, which is for that from now on."""
        ready = [standby for standby in gang.handovers.standbys if standby.stage is HandoverStage.READY]
        able = [standby for standby in ready if standby.member.rank == rank or not standby.bound]
        if not able:
            return None
        # One that can take no other rank, where there is one.
        standby = max(able, key=lambda candidate: (candidate.bound, candidate.member.rank == rank))
        gang.handovers.standbys.remove(standby)
        gang.handovers.standby_failures = 0
        standby.rank = rank
        standby.place = replace(standby.place, role=gang.places[rank].role)
        return standby

    # ---- processes that go

    def gone(self, gang: Gang, standby: Handover) -> None:
        """The agent of the process is lost."""
        gang.handovers.standbys.remove(standby)

    def end(self, gang: Gang, at: float) -> Commands:
        """The gang ends, and with it all that wait for a loss."""
        return [self._end(gang, standby, at) for standby in list(gang.handovers.standbys)]

    def _end(self, gang: Gang, standby: Handover, at: float) -> do.Command:
        gang.handovers.standbys.remove(standby)
        return self._processes.end(standby, at)


def _next_rank(gang: Gang) -> Rank:
    """The rank that the next process is prepared for: one with the fewest processes; the chief last.

    Some callbacks allow no other process in the place of the chief.
    """
    ranks = [standby.member.rank for standby in gang.handovers.standbys]
    return min(map(Rank, range(gang.size)), key=lambda rank: (ranks.count(rank), rank == CHIEF))


def standby_line(gang: Gang, standby: int) -> str:
    """The processes of a gang that wait for a loss, in one line; empty without `standby`."""
    if not standby:
        return ""
    ready = [process for process in gang.handovers.standbys if process.stage is HandoverStage.READY]
    starting = len(gang.handovers.standbys) - len(ready)
    bound = sorted({process.member.rank for process in ready if process.bound})
    # A loop of the user's own passes its step only once it trains.
    traced = " and step traced" if gang.attendance.moves else ""
    parts = [f"{len(ready)} ready, model built{traced}"] if ready else []
    parts += [f"for rank {', '.join(map(str, bound))} alone, which the function has read"] if bound else []
    parts += [f"{starting} starting"] if starting else []
    if not parts and gang.handovers.standby_failures >= MOST_FAILURES:
        parts = [f"none, for {MOST_FAILURES} processes ended, and none took a place"]
    return f"standby: {'; '.join(parts) or f'0 of {standby}'}"
