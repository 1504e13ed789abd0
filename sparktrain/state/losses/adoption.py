"""Gangs that continue under another driver: their agents have held the members since the driver before was lost. Pure.

A driver that has the agents of its predecessor does not restart the gangs that its journal shows as running. It
waits for `ADOPT_S`, while agents join and name the member that each of them holds. A gang is adopted as a whole, once
agents have offered all of its members, in exactly the generation, and the incarnations, of the journal: then it keeps
its generation, and repeats no step. What else an agent holds ends. A gang with a member that no agent has offered in
time restarts from its checkpoint, as under any other driver; where all others can form a ring without that member, the
gang is adopted, and the member is lost.

The invariants: a generation has one gang, so a trial is adopted once at most, and never after it was queued again; and
an agent continues, or ends its member, only by a decision that follows from records in the journal. A driver that was
replaced in the meantime can neither adopt nor end anything, for its commands wait for a record that it cannot write.
"""

from dataclasses import dataclass, field

from sparktrain.base.ids import AgentId, Generation, Rank, TrialId
from sparktrain.config.gang_spec import Role
from sparktrain.state import agent_messages as m
from sparktrain.state import commands as do
from sparktrain.state.agents import Agents, AgentState
from sparktrain.state.gangs.gang import Gang, GangCheckpoints, GangStatus
from sparktrain.state.gangs.gang_progress import GangAttendance, Pace
from sparktrain.state.outcome import Outcome, lost
from sparktrain.state.sweep import Sweep
from sparktrain.state.topology import MemberAddress
from sparktrain.state.trial import Trial

ADOPT_S = 4.0
"""How long a driver waits for the agents of its predecessor. They look for it four times a second, and the gangs of
those that are lost start so much later."""
NO_AGENT = AgentId("")
"""In place of the agent of a member that was lost with the driver before."""

Commands = list[do.Command]


@dataclass
class AdoptionRound:
    """What has become of the gangs that a run has waited for."""

    commands: Commands = field(default_factory=list)
    lost: list[tuple[Gang, Rank, Outcome]] = field(default_factory=list)
    """Members of gangs that continue, which were lost with the driver before."""
    given_up: list[Trial] = field(default_factory=list)
    """Trials that were lost with drivers too often."""
    freed: list[AgentState] = field(default_factory=list)
    """Agents that have a member no more."""


class Adoptions:
    """The gangs of earlier drivers that one run waits for."""

    def __init__(self, sweep: Sweep, agents: Agents) -> None:
        self._sweep = sweep
        self._agents = agents
        self._offers: dict[TrialId, dict[Rank, AgentId]] = {}
        """The agents that hold members of gangs which are not whole yet."""
        self._by = sweep.started_at + ADOPT_S

    def offer(self, agent: AgentState) -> Commands | None:
        """An agent has joined with a member. None while the run waits for the other members of its gang.

        Returns the end of a member that belongs to no gang which continues; the agent is free then.
        """
        held = self._agents.held.get(agent.id)
        if held is None:
            return []
        if not self._matches(held):
            return [self._end(agent)]
        self._offers.setdefault(held.member.trial, {})[held.member.rank] = agent.id
        return None

    def gone(self, agent: AgentId) -> None:
        """An agent is lost, and what it has offered."""
        for offers in self._offers.values():
            for rank in [rank for rank, holder in offers.items() if holder == agent]:
                del offers[rank]

    def _matches(self, held: m.HeldMember) -> bool:
        """Whether the journal has this member in a gang that may continue, and no other agent has offered it."""
        member = held.member
        trial = self._sweep.awaited.get(member.trial)
        if trial is None or (member.run, member.generation) != (self._sweep.run, trial.generation):
            return False
        size = len(trial.attempt.hosts)
        if not 0 <= member.rank < size or member.incarnation != trial.restart_history.incarnation(member.rank):
            return False
        formed = size == 1 or held.place is not None
        # Parameter servers of the gang's own know members by keys of the driver that has started them.
        if self._sweep.limits.restarts_servers:
            return False
        return formed and not held.stopping and member.rank not in self._offers.get(trial.id, ())

    def _end(self, agent: AgentState) -> do.Command:
        """Have an agent end what it holds."""
        held = self._agents.held.pop(agent.id)
        return do.Send(agent.id, m.StopMember(held.member, 0.0), durable=True)

    # ---- what has become of the gangs

    def advance(self, at: float) -> AdoptionRound:
        """Gangs that are whole continue; once the time is over, or the run stops, the other trials are queued again."""
        adopted = AdoptionRound()
        awaited = self._sweep.awaited
        for trial in [trial for trial in awaited.values() if self._is_whole(trial)]:
            self._adopt(trial, adopted, at)
        if at < self._by and self._sweep.stop is None:
            return adopted
        # The last one first: each is put before the others of the queue.
        for trial in reversed(list(awaited.values())):
            if self._heals(trial):
                self._adopt(trial, adopted, at)
            else:
                self._give_up(trial, adopted, at)
        return adopted

    def _held(self, trial: Trial) -> dict[Rank, tuple[AgentState, m.HeldMember]]:
        """What agents have offered of the gang of a trial, by rank."""
        offers: dict[Rank, tuple[AgentState, m.HeldMember]] = {}
        for rank, holder in sorted(self._offers.get(trial.id, {}).items()):
            agent = self._agents.get(holder)
            if agent is not None and holder in self._agents.held:
                offers[rank] = (agent, self._agents.held[holder])
        return offers

    def _is_whole(self, trial: Trial) -> bool:
        """Whether agents have offered all members, and those are in one ring.

        They are not where the driver before was lost while it sent them the places in their next ring: some would wait.
        """
        offers = self._held(trial)
        return len(offers) == len(trial.attempt.hosts) and len({held.ring for _, held in offers.values()}) == 1

    def _heals(self, trial: Trial) -> bool:
        """Whether the members that agents have offered can form a ring without those that are lost."""
        offers = self._held(trial)
        size = len(trial.attempt.hosts)
        trains = all(held.standing.heals and held.entered and held.step is not None for _, held in offers.values())
        return self._sweep.limits.heals and self._sweep.stop is None and trains and size <= 2 * len(offers) < 2 * size

    def _adopt(self, trial: Trial, adopted: AdoptionRound, at: float) -> None:
        """The gang of a trial continues; members that no agent has are lost."""
        offers = self._held(trial)
        hosts = trial.attempt.hosts
        newest = trial.checkpoints.newest
        progressed = newest is not None and newest.generation == trial.generation
        gang = Gang(
            run=self._sweep.run,
            trial=trial.id,
            generation=trial.generation,
            agents=tuple(offers[Rank(rank)][0].id if rank in offers else NO_AGENT for rank in range(len(hosts))),
            places=tuple(
                _place(offers.get(Rank(rank)), host, role)
                for rank, (host, role) in enumerate(zip(hosts, self._sweep.limits.roles, strict=False))
            ),
            attendance=GangAttendance(at),
            checkpoints=GangCheckpoints(newest, progressed=progressed),
        )
        if gang.size > 1:
            gang.status = GangStatus.CONNECTING
        gang.absences.ring = max(held.ring for _, held in offers.values())
        gang.absences.newest_ring = gang.absences.ring
        self._sweep.adopt(trial, gang)
        for rank, (agent, held) in offers.items():
            self._agents.adopt(agent, held.member)
            self._recover(gang, rank, agent, held, at)
            adopted.commands.append(do.AdoptMember(agent.id, held.member, trial.params))
        if len(offers) == gang.size and gang.absences.ring:
            # The driver before may have been lost before it could confirm that, and they wait for it.
            adopted.commands += [do.Send(agent, seating) for agent, seating in gang.seatings(joined=True)]
        for rank in map(Rank, range(gang.size)):
            if rank not in offers:  # the others have trained with it
                self._sweep.enter(gang, rank, None, at)
                outcome = lost(gang.places[rank].host, "it was lost with the driver before")
                adopted.lost.append((gang, rank, outcome))
        gang.attendance.backdate(max(held.seconds for _, held in offers.values()))
        del self._offers[trial.id]

    def _recover(self, gang: Gang, rank: Rank, agent: AgentState, held: m.HeldMember, at: float) -> None:
        """What the driver before knew of a member."""
        if held.member.incarnation:
            gang.absences.incarnations[rank] = held.member.incarnation
        if held.entered:
            self._sweep.enter(gang, rank, agent, at, trains=held.trains)
        gang.attendance.stand(rank, held.standing)
        if held.step is not None:
            gang.step(rank, Pace(held.step, at))

    def _give_up(self, trial: Trial, adopted: AdoptionRound, at: float) -> None:
        """The gang of a trial is lost with the driver before, and the trial is queued again; what agents hold ends."""
        holders = [agent for agent, _ in self._held(trial).values()]
        self._offers.pop(trial.id, None)
        adopted.given_up += filter(None, [self._sweep.abandon(trial, at)])
        adopted.commands += [self._end(agent) for agent in holders]
        adopted.commands.append(swept(self._sweep, trial))
        adopted.freed += holders


def swept(sweep: Sweep, trial: Trial) -> do.Command:
    """What older generations of a trial have left, which forms a gang again, is deleted."""
    return do.SweepCheckpoints(trial.id, sweep.exploits.retained(trial), Generation(trial.generation + 1))


def _place(offer: tuple[AgentState, m.HeldMember] | None, host: str, role: Role) -> MemberAddress:
    """Where a member is; of one that is lost, the host that the journal has."""
    if offer is None:
        return MemberAddress(host, "", 0, role)
    agent, held = offer
    return held.place or MemberAddress(agent.host, agent.address, 0, role)
