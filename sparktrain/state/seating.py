"""Which agents become which members of a gang. Pure."""

from collections.abc import Iterable, Sequence

from sparktrain.spec.gang import Role
from sparktrain.state.agent import Agent
from sparktrain.state.formation import Place


def seat(idle: Sequence[Agent], size: int) -> list[Agent]:
    """`size` of the idle agents, by rank: on as few hosts as possible, those of one host next to each other.

    Agents with GPUs come first, for the last ranks are those that need none. Then agents of the hosts with the most
    idle ones; among equals, those that have been idle for longest.
    """
    if size == 1:
        return sorted(idle, key=_has_none)[:1]
    with_gpus, without = (agent for agent in idle if agent.gpus), (agent for agent in idle if not agent.gpus)
    return [*_by_host(with_gpus), *_by_host(without)][:size]


def _has_none(agent: Agent) -> bool:
    return not agent.gpus


def _by_host(agents: Iterable[Agent]) -> list[Agent]:
    hosts: dict[str, list[Agent]] = {}
    for agent in agents:
        hosts.setdefault(agent.host, []).append(agent)
    fullest_first = sorted(hosts.values(), key=len, reverse=True)
    return [agent for agents in fullest_first for agent in agents]


def places(agents: Sequence[Agent], roles: Sequence[Role]) -> tuple[Place, ...]:
    """The places of the members, their ports not reserved yet."""
    return tuple(Place(agent.host, agent.address, 0, role) for agent, role in zip(agents, roles, strict=True))
