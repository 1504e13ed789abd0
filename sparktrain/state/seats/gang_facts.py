"""What those who change the seats of a gang know of it at one moment: each part is computed from the gang. Pure."""

from collections import Counter
from functools import cached_property
from typing import NamedTuple

from sparktrain.base.ids import AgentId, Rank
from sparktrain.config.gang_spec import Role
from sparktrain.state.agents import Agents, AgentState
from sparktrain.state.gangs import timeouts
from sparktrain.state.gangs.gang import Gang
from sparktrain.state.memory_snapshots import HeldSnapshots, MemorySnapshot
from sparktrain.state.prospects import able, idle
from sparktrain.state.seats.seat import SeatState
from sparktrain.state.sweep import Sweep


class FactSources(NamedTuple):
    """Where the facts of all gangs of one run come from."""

    sweep: Sweep
    agents: Agents
    held: HeldSnapshots


class GangFacts:
    """One gang of a run, on the agents of the pool."""

    def __init__(self, run: FactSources, gang: Gang, at: float) -> None:
        self.run = run
        self.sweep = run.sweep
        self.gang = gang
        self.at = at

    # ---- who sits where

    @cached_property
    def agents(self) -> dict[Rank, AgentState]:
        """The agents of the newest ring that are alive, by rank."""
        gang = self.gang
        agents = [(rank, self.run.agents.get(gang.agents[rank])) for rank in gang.ranks]
        return {rank: agent for rank, agent in agents if agent is not None}

    @cached_property
    def on_host(self) -> Counter[str]:
        """How many members train on each host."""
        training = self.gang.in_state(SeatState.TRAINING)
        return Counter(agent.host for rank, agent in self.agents.items() if rank in training)

    @cached_property
    def drained(self) -> list[Rank]:
        """The members on drained agents."""
        return [rank for rank, agent in self.agents.items() if self.sweep.drains.covers(agent)]

    @cached_property
    def idle(self) -> list[AgentState]:
        """Agents that may get a member now, longest idle first."""
        return idle(self.run.agents, self.sweep, self.at)

    @cached_property
    def starting(self) -> list[AgentState]:
        """Agents that have joined just now, and may get a member once they have started."""
        return able(self.run.agents.starting(self.sweep.run, self.at - timeouts.START_S), self.sweep)

    # ---- what they can do

    @cached_property
    def heals(self) -> bool:
        """All members can form a ring without one that is lost, and nothing else changes the gang."""
        gang = self.gang
        limits = self.sweep.limits
        if not limits.heals or Role.PS in limits.roles or gang.size < 2 or gang.stop.pauses(self.at):
            return False
        return len(gang.attendance.heals) == len(gang.ranks) and is_steady(gang, self.sweep)

    @property
    def moves(self) -> bool:
        """All members are within calls that can change their ring, and nothing else changes the gang."""
        # Members in a loop of the user's own heal, and mostly do not change their ring before a loss.
        return len(self.gang.attendance.moves) == len(self.gang.ranks) and self.heals

    def may_move(self, rank: Rank) -> bool:
        """Whether the ring can change now for a process that is prepared for member `rank`, and none is yet."""
        gang = self.gang
        vacant = gang.absences.vacant
        if gang.handovers.current is not None or gang.handovers.failures or not self.moves or vacant - {rank}:
            return False
        # A process divides the data as one of a gang without vacant seats.
        return not vacant or gang.attendance.shrinks >= set(gang.ranks)

    @property
    def trains(self) -> bool:
        """Some member makes steps: between two calls of `fit` no snapshot is taken."""
        return any(pace.training for pace in self.gang.progress.paces.values())

    # ---- what outlasts them

    @cached_property
    def copy(self) -> MemorySnapshot | None:
        """The newest snapshot in memory that members of the gang have taken."""
        newest = self.run.held.newest(self.gang.trial)
        return newest if newest is not None and newest.generation == self.gang.generation else None

    @property
    def outlives_drain(self) -> bool:
        """The members take snapshots, and agents that are not drained will hold the next one."""
        if self.copy is None or not self.trains:
            return False
        # Of replicas any one suffices; of parts those that stay need all, as they have of the newest.
        if self.copy.is_split:
            return self.run.held.newest(self.gang.trial, self._staying) is not None
        return len(self.drained) < len(self.gang.ranks)

    @property
    def lacks_copy(self) -> bool:
        """A member has moved, and no agent that stays holds a snapshot since."""
        moved_after = self.gang.handovers.moved_after
        if moved_after is None or self.copy is None:
            return False
        newest = self.run.held.newest(self.gang.trial, self._staying)
        return newest is None or newest.step < moved_after

    @property
    def _staying(self) -> list[AgentId]:
        return [agent.id for rank, agent in self.agents.items() if rank not in self.drained]


def is_steady(gang: Gang, sweep: Sweep) -> bool:
    """All members of the gang train, and nothing is about to end it."""
    if not gang.is_whole or gang.fault.first is not None or gang.stop.has_started:
        return False
    return sweep.stop is None and not sweep.trials[gang.trial].stopping
