"""Moves members of a ring that heals off a host that has more than half of them. Pure.

A ring heals as long as half of its members keep their processes. So a host that has more than half of them is the one
that the gang cannot lose, and after other losses the members that were on several hosts may be on one. As soon as
another host has an idle agent, a member moves there as one does from a drained agent (`handovers`): its next process
comes first, the ring changes between two steps, and no step is repeated.
"""

from sparktrain.base.ids import Rank
from sparktrain.state import commands as do
from sparktrain.state.agents import Agents
from sparktrain.state.gangs.gang import Gang
from sparktrain.state.losses.handovers import Handovers
from sparktrain.state.placement import members_on_hosts, most_on_host
from sparktrain.state.prospects import idle
from sparktrain.state.sweep import Sweep

SETTLED_S = 2.0
"""How long a ring trains before a member moves for this: right after a loss another one may follow."""


class Spreading:
    """Decides which members of one run's gangs move to other hosts, on the agents of the pool."""

    def __init__(self, sweep: Sweep, agents: Agents, handovers: Handovers) -> None:
        self._sweep = sweep
        self._agents = agents
        self._handovers = handovers

    def check(self, at: float) -> list[do.Command]:
        """Have one member of each gang move that has too many on one host, where another host has room."""
        if not (self._sweep.spec.gang.spread and self._sweep.limits.heals):
            return []
        return [command for gang in self._sweep.gangs.values() for command in self._check(gang, at)]

    def _check(self, gang: Gang, at: float) -> list[do.Command]:
        most = most_on_host(self._sweep, gang.size)
        on_host = members_on_hosts(gang, self._agents)
        crowded = max(on_host, key=lambda host: on_host[host], default=None)
        changed_at = gang.handovers.changed_at or gang.attendance.running_since
        if most is None or crowded is None or on_host[crowded] <= most or changed_at is None:
            return []
        if at < changed_at + SETTLED_S:
            return []
        candidates = [
            agent for agent in idle(self._agents, self._sweep, at) if on_host.get(agent.host, 0) + 1 < on_host[crowded]
        ]
        candidates.sort(key=lambda agent: (on_host.get(agent.host, 0), -agent.gpus))
        reason = f"spread: its host had {on_host[crowded]} of {gang.size} members"
        return self._handovers.spread(gang, self._last_on(gang, crowded), reason, candidates, at)

    def _last_on(self, gang: Gang, host: str) -> Rank:
        """The last member on a host: the chief moves only alone."""
        agents = [(rank, self._agents.get(gang.agents[rank])) for rank in gang.ranks]
        return max(rank for rank, agent in agents if agent is not None and agent.host == host)
