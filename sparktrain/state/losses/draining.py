"""An announced loss: agents that are drained get no new member, and members that they have move elsewhere. Pure.

`seats.policies` decides how the members leave, without a lost step where that is possible. A trial that makes no
checkpoints is left to finish. None of that counts as a loss.
"""

from sparktrain.state import commands as do
from sparktrain.state import events as on
from sparktrain.state import records as fact
from sparktrain.state.agents import AgentState
from sparktrain.state.losses.drains import drained_agents, matching_agents
from sparktrain.state.losses.seat_changes import SeatChanges
from sparktrain.state.prospects import has_member_of
from sparktrain.state.seats.gang_facts import FactSources, GangFacts
from sparktrain.state.seats.policies import drained


class Draining:
    """Decides how the members of drained agents leave them. The state machine calls it at each tick."""

    def __init__(self, run: FactSources, changes: SeatChanges) -> None:
        self._run = run
        self._sweep = run.sweep
        self._agents = run.agents
        self._changes = changes

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
            if not any(_concerns(decided, agent) for agent in busy) and not self._lacks_copies(at):
                drains.complete(request)
                self._sweep.note([fact.DrainCompleted(request=request)])
        trials = dict.fromkeys(agent.member.trial for agent in busy if agent.member is not None)
        gangs = [gang for trial in trials if (gang := self._sweep.gangs.get(trial)) is not None]
        return self._changes.start(gangs, drained, at)

    def _lacks_copies(self, at: float) -> bool:
        return any(GangFacts(self._run, gang, at).lacks_copy for gang in self._sweep.gangs.values())


def _concerns(decided: fact.DrainDecided, agent: AgentState) -> bool:
    return agent.host == decided.host and decided.agent in (None, agent.slot)
