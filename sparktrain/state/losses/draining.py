"""An announced loss: agents that are drained get no new member, and members that they have move elsewhere. Pure.

A gang that takes snapshots in memory pauses after the same step on all members, as it does to grow; then it ends, and
the next one resumes there on other agents, without a lost step. A ring that heals does not end: its member moves to a
process that is prepared on another agent, if one is idle (`handovers`). Where no snapshot outlasts the drained agents,
the gang ends when its next checkpoint counts: where all members are on drained agents, the chief is asked for one, and
pauses after it. A trial that makes none is left to finish. Neither counts as a loss.
"""

from sparktrain.base.ids import CHIEF, Rank
from sparktrain.state import agent_messages as m
from sparktrain.state import commands as do
from sparktrain.state import events as on
from sparktrain.state import records as fact
from sparktrain.state.agents import Agents, AgentState
from sparktrain.state.allocation.preemption import may_pause
from sparktrain.state.gangs.gang import Gang
from sparktrain.state.gangs.gang_stop import GangPause
from sparktrain.state.losses.drains import drained_agents, matching_agents
from sparktrain.state.losses.handovers import Handovers
from sparktrain.state.losses.memory_tier import MemoryTier
from sparktrain.state.prospects import has_member_of
from sparktrain.state.sweep import Sweep

DRAINED = "drained"
"""Why a gang ends that leaves drained agents, in one word."""


class Draining:
    """Decides how the members of drained agents leave them. The state machine calls it at each tick."""

    def __init__(self, sweep: Sweep, agents: Agents, memory: MemoryTier, handovers: Handovers) -> None:
        self._sweep = sweep
        self._agents = agents
        self._memory = memory
        self._handovers = handovers

    def decide(self, event: on.DrainAsked) -> None:
        """Accept a request, or note why it is refused; each one counts once."""
        drains = self._sweep.drains
        if event.request in drains.answered:
            return
        if event.cancels:
            self._cancel(event)
            return
        matches, problem = matching_agents(self._agents.all(), event.host, event.agent)
        problem = event.problem or problem
        host = matches[0].host if matches else event.host
        decided = fact.DrainDecided(request=event.request, host=host, agent=event.agent, problem=problem)
        drains.fold(decided)
        if event.agent is not None and not problem:
            drains.agents.update(agent.id for agent in matches)
        self._sweep.note([decided])

    def _cancel(self, event: on.DrainAsked) -> None:
        drains = self._sweep.drains
        host, agents, problem = drained_agents(drains, self._agents.all(), event.host, event.agent)
        decided = fact.DrainDecided(
            request=event.request, host=host or event.host, agent=event.agent, problem=event.problem or problem,
            cancels=True,
        )  # fmt: skip
        drains.fold(decided)
        if not decided.problem:
            drains.agents.difference_update(agent.id for agent in agents)
        self._sweep.note([decided])

    def announce(self, agent: AgentState) -> None:
        """The agent has notice that it leaves: it is drained, as by a user."""
        drains = self._sweep.drains
        request = f"notice-{agent.id}"
        if request in drains.answered:
            return
        decided = fact.DrainDecided(
            request=request,
            host=agent.host,
            agent=agent.slot,
            notice=agent.notice,
            within_s=agent.leaves_within_s,
        )
        drains.fold(decided)
        drains.agents.add(agent.id)
        self._sweep.note([decided])

    def advance(self, at: float) -> list[do.Command]:
        """Have the members of gangs on drained agents pause where they can, and note which requests are complete."""
        drains = self._sweep.drains
        if not drains.open:
            return []
        busy = [agent for agent in self._agents.all() if has_member_of(agent, self._sweep) and drains.covers(agent)]
        for request, decided in list(drains.open.items()):
            if not any(_concerns(decided, agent) for agent in busy) and not self._lacks_copies():
                drains.complete(request)
                self._sweep.note([fact.DrainCompleted(request=request)])
        commands: list[do.Command] = []
        for trial in dict.fromkeys(agent.member.trial for agent in busy if agent.member is not None):
            gang = self._sweep.gangs.get(trial)
            if gang is None or gang.handovers.current is not None or not self._may_pause(gang):
                continue
            drained = self._drained(gang)
            moves = [] if drained is None else self._handovers.start(gang, drained, self._reason(gang, drained), at)
            waits = gang.stop.pauses(at) or self._handovers.is_settling(gang, at)
            commands += moves or ([] if waits else self._pause(gang, at))
        return commands

    def _lacks_copies(self) -> bool:
        """Whether a member has moved, and no agent that stays holds a snapshot of its gang since."""
        return any(self._lacks_copy(gang) for gang in self._sweep.gangs.values())

    def _lacks_copy(self, gang: Gang) -> bool:
        moved_after = gang.handovers.moved_after
        newest = self._memory.held.newest(gang.trial)
        if moved_after is None or newest is None or newest.generation != gang.generation:
            return False
        agents = {agent: self._agents.get(agent) for agent in gang.agents}
        staying = [name for name, agent in agents.items() if agent is not None and not self._sweep.drains.covers(agent)]
        copy = self._memory.held.newest(gang.trial, staying)
        return copy is None or copy.step < moved_after

    def held(self, gang: Gang, rank: Rank, at: float) -> bool:
        """Member `rank` has paused, and its agent holds the snapshot; whether the gang can end.

        Also without an agent for the next one: those that it has are about to leave.
        """
        pause = gang.stop.pause
        if pause is None or pause.drained is None or pause.in_store or not self._may_pause(gang):
            return False
        pause.paused.add(rank)
        return len(pause.paused) == len(gang.ranks) and self._complete(gang, pause, at)

    def stored(self, gang: Gang, at: float) -> bool:
        """A checkpoint of the gang counts; whether the gang ends there, because its agents are drained."""
        drained = self._drained(gang)
        if drained is None or not self._may_pause(gang) or self._outlives(gang):
            return False
        pause = GangPause(reason=self._reason(gang, drained), asked_at=at, drained=drained, in_store=True)
        gang.stop.pause = pause
        return self._complete(gang, pause, at)

    def _complete(self, gang: Gang, pause: GangPause, at: float) -> bool:
        pause.complete = True
        gang.fault.failed_at = at
        return True

    def _pause(self, gang: Gang, at: float) -> list[do.Command]:
        in_store = not self._outlives(gang)
        if in_store and len(self._drained_ranks(gang)) < len(gang.ranks):
            return []  # until its members have taken a snapshot in memory: it ends at its next checkpoint, if any
        drained = self._drained(gang)
        reason = self._reason(gang, drained)
        gang.stop.pause = GangPause(reason=reason, asked_at=at, drained=drained, in_store=in_store)
        # Of a gang the chief alone saves in the store: it stops there if it can do so without the others, who wait for
        # it in the next step. Else the gang ends at its next checkpoint.
        asked = [entry for entry in gang.live() if not in_store or entry[1].rank == CHIEF]
        return [do.Send(agent, m.AskSnapshot(member, in_store)) for agent, member in asked]

    def _may_pause(self, gang: Gang) -> bool:
        return may_pause(gang, self._sweep)

    def _outlives(self, gang: Gang) -> bool:
        """The members take snapshots in memory, and an agent that is not drained will hold the next one."""
        newest = self._memory.held.newest(gang.trial)
        if newest is None or newest.generation != gang.generation:
            return False
        trains = any(pace.training for pace in gang.progress.paces.values())
        return trains and len(self._drained_ranks(gang)) < len(gang.ranks)

    def _reason(self, gang: Gang, drained: Rank | None) -> str:
        agent = None if drained is None else self._agents.get(gang.agents[drained])
        return DRAINED if agent is None or not agent.notice else f"{DRAINED}: {agent.notice}"

    def _drained(self, gang: Gang) -> Rank | None:
        """The first member on a drained agent."""
        return next(iter(self._drained_ranks(gang)), None)

    def _drained_ranks(self, gang: Gang) -> list[Rank]:
        agents = [(rank, self._agents.get(gang.agents[rank])) for rank in gang.ranks]
        drains = self._sweep.drains
        return [rank for rank, agent in agents if agent is not None and drains.covers(agent)]


def _concerns(decided: fact.DrainDecided, agent: AgentState) -> bool:
    return agent.host == decided.host and decided.agent in (None, agent.slot)
