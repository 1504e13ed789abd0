"""A gang that continues smaller grows again once agents are there, without a step lost. Pure.

Its members take a snapshot in memory after the same step, and pause; then the gang ends, and the next one, with more
members, resumes there. A ring with one vacant place takes the next process of that member in, and does not end.
"""

from sparktrain.base.ids import Rank
from sparktrain.state import agent_messages as m
from sparktrain.state import commands as do
from sparktrain.state.agents import Agents
from sparktrain.state.gangs.gang import Gang, GangStatus
from sparktrain.state.gangs.gang_stop import GangPause
from sparktrain.state.losses.handovers import Handovers
from sparktrain.state.losses.memory_tier import MemoryTier
from sparktrain.state.placement import gang_size
from sparktrain.state.prospects import idle
from sparktrain.state.sweep import Sweep

GROW_AFTER_S = 5.0
"""How long a gang trains before it grows: agents that come back one after the other do not each cost a restart."""


class Growths:
    """Decides which gangs of a run grow. The state machine calls it after each event."""

    def __init__(self, sweep: Sweep, agents: Agents, memory: MemoryTier, handovers: Handovers) -> None:
        self._sweep = sweep
        self._handovers = handovers
        self._agents = agents
        self._memory = memory

    def ask(self, at: float) -> list[do.Command]:
        """Have the members of gangs that can grow now take a snapshot. No trial in the queue waits longer for that."""
        full_size = self._sweep.limits.size
        if self._sweep.spec.gang.min_workers in (None, full_size) or self._sweep.queue or self._sweep.stop is not None:
            return []
        commands: list[do.Command] = []
        for gang in self._sweep.gangs.values():
            if gang.handovers.current is not None or not self._may_grow(gang, at):
                continue
            if spare := len(idle(self._agents, self._sweep, at)):
                size = min(full_size, len(gang.ranks) + spare)
                reason = f"grows to {size} members: agents are there again"
                vacant = next(iter(gang.absences.vacant), None)
                joins = [] if vacant is None else self._handovers.start(gang, vacant, reason, at)
                if joins or not self._holds_copy(gang) or not self._forms_at_once(gang, len(gang.ranks) + spare, at):
                    commands += joins
                    continue
                gang.stop.pause = GangPause(reason=reason, asked_at=at)
                commands += [do.Send(agent, m.AskSnapshot(member)) for agent, member in gang.live()]
        return commands

    def _may_grow(self, gang: Gang, at: float) -> bool:
        if gang.stop.pauses(at):
            return False
        absent = bool(gang.attendance.ended or gang.absences.by_rank)
        failing = gang.fault.first is not None or gang.stop.has_started or absent
        running_since = gang.attendance.running_since
        if failing or gang.status is not GangStatus.RUNNING or running_since is None:
            return False
        changed_at = max(running_since, gang.absences.shrunk_at or running_since)
        if len(gang.ranks) >= self._sweep.limits.size or at < changed_at + GROW_AFTER_S:
            return False
        return self._trains(gang) and (bool(gang.absences.vacant) or self._holds_copy(gang))

    def _forms_at_once(self, gang: Gang, agents: int, at: float) -> bool:
        """Whether the next gang forms with so many agents: soon after a loss it would wait for those of a whole one."""
        return gang_size(self._sweep, self._sweep.trials[gang.trial], self._agents, at) <= agents

    def _holds_copy(self, gang: Gang) -> bool:
        """Some agent has a snapshot of the gang: its members take them, and can pause after one."""
        newest = self._memory.held.newest(gang.trial)
        return newest is not None and newest.generation == gang.generation

    def _trains(self, gang: Gang) -> bool:
        """Its chief makes steps: between two calls of `fit` no snapshot is taken."""
        return any(pace.training for pace in gang.progress.paces.values())

    def held(self, gang: Gang, rank: Rank, at: float) -> bool:
        """Member `rank` has paused, and its agent holds the snapshot; whether the gang can end, for a larger one.

        Not without the agents for that: then the members train on by themselves.
        """
        pause = gang.stop.pause
        if (
            pause is None
            or pause.in_store
            or pause.drained is not None
            or gang.stop.has_started
            or gang.fault.cause is not None
        ):
            return False
        pause.paused.add(rank)
        if len(pause.paused) < len(gang.ranks) or not idle(self._agents, self._sweep, at):
            return False
        # The members end by the snapshot that all hold, so this is no failure: the next gang resumes from it without a
        # lost step.
        pause.complete = True
        gang.fault.failed_at = at
        return True
