"""Which agents become which members of a gang. Pure."""

from collections.abc import Sequence

from sparktrain.spec.gang import Role
from sparktrain.state.agent import Agent
from sparktrain.state.formation import Place


def seat(idle: Sequence[Agent], size: int) -> list[Agent]:
    """`size` of the idle agents, by rank: on as few hosts as possible, those of one host next to each other.

    Agents of the hosts with the most idle ones come first; among equals, those that have been idle for longest.
    """
    if size == 1:
        return list(idle[:1])
    hosts: dict[str, list[Agent]] = {}
    for agent in idle:
        hosts.setdefault(agent.host, []).append(agent)
    fullest_first = sorted(hosts.values(), key=len, reverse=True)
    return [agent for agents in fullest_first for agent in agents][:size]


def places(agents: Sequence[Agent], roles: Sequence[Role]) -> tuple[Place, ...]:
    """The places of the members, their ports not reserved yet."""
    return tuple(Place(agent.host, agent.address, 0, role) for agent, role in zip(agents, roles, strict=True))
