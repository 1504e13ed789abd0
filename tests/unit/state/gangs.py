"""One gang in a world, for tests."""

from sparktrain.base.ids import AgentId, TrialId
from sparktrain.state.trial import Trial
from tests.unit.state.world import World


def gang(world: World, size: int = 2, spare: int = 0, **limits: object) -> list[AgentId]:
    """The agents of a running gang, by rank."""
    world.begin(size=size, recovers=True, **limits)
    names = [world.join(f"a{number}") for number in range(size + spare)]
    world.suggest()
    agents = by_rank(world)
    assert len(agents) == size
    run(world, agents)
    assert set(names) >= set(agents)
    return agents


def by_rank(world: World) -> list[AgentId]:
    return sorted(world.running, key=lambda agent: world.running[agent].rank)


def run(world: World, agents: list[AgentId]) -> None:
    for agent in agents:
        world.reserve(agent)
    for agent in agents:
        world.enter(agent)


def trial(world: World) -> Trial:
    assert world.machine.last is not None
    return world.machine.last.trials[TrialId(0)]
