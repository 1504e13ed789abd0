"""Gangs with a parameter server, for tests of members that restart alone."""

from sparktrain.base.ids import AgentId
from sparktrain.config.gang_spec import Role
from sparktrain.state import agent_messages as m
from sparktrain.state import commands as do
from tests.unit.state.gangs import by_rank
from tests.unit.state.world import World

ROLES = (Role.CHIEF, Role.WORKER, Role.WORKER, Role.PS, Role.EVALUATOR)
WORKER, OTHER, PS, EVALUATOR = 1, 2, 3, 4


def cluster(
    world: World, spare: int = 0, last_host: str = "host", serving: bool = False, **limits: object
) -> list[AgentId]:
    """The agents of a running gang with a parameter server, by rank. The last may have its host.

    Its workers train by themselves, or all serve the chief.
    """
    world.begin(**{"roles": ROLES, "recovers": True, "restarts_members": True, "hang_timeout_s": 10.0, **limits})
    for number in range(len(ROLES) + spare):
        world.join(f"a{number}", last_host if number == EVALUATOR else "host", number)
    world.suggest()
    agents = by_rank(world)
    for rank, agent in enumerate(agents):
        world.reserve(agent, 4000 + rank)
    for agent, role in zip(agents, ROLES, strict=True):
        world.enter(agent, trains=role is Role.WORKER and not serving)
    return agents


def placed(commands: list[do.Command]) -> list[do.PlaceMember]:
    """The members that `commands` start."""
    return [each for each in commands if isinstance(each, do.PlaceMember)]


def again(world: World, rank: int) -> AgentId:
    """The agent that starts the member of `rank` now."""
    [agent] = [agent for agent, member in world.running.items() if member.rank == rank]
    return agent


def come_back(world: World, rank: int, serving: bool = False) -> AgentId:
    """The next process of the member of `rank` reserves its port and enters; returns its agent."""
    agent = again(world, rank)
    world.reserve(agent, 4000 + rank)
    world.enter(agent, trains=ROLES[rank] is Role.WORKER and not serving)
    return agent


def whole(world: World) -> bool:
    """Whether all members are stopped, so that the gang restarts."""
    return bool(world.sent(m.StopMember))
