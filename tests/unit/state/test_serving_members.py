"""Workers that serve the chief of a gang with parameter servers restart alone: its coordinator waits for them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparktrain.state.gangs import timeouts
from sparktrain.state.outcome import FailureKind
from tests.unit.state.gangs import trial
from tests.unit.state.ps_gangs import EVALUATOR, OTHER, PS, ROLES, WORKER, cluster, come_back, placed, whole
from tests.unit.state.world import World

KINDS = (FailureKind.SIGNAL, FailureKind.MEMORY, FailureKind.EXIT, FailureKind.LOST)


@given(
    losses=st.lists(st.tuples(st.sampled_from([WORKER, OTHER]), st.sampled_from(KINDS)), min_size=1, max_size=6),
    serving=st.booleans(),
)
def test_lost_workers_return_whether_they_serve_or_train(losses: list[tuple[int, FailureKind]], serving: bool) -> None:
    world = World()
    agents = cluster(world, serving=serving, max_retries=len(losses))
    for rank, kind in losses:
        [start] = placed(world.fail(agents[rank], kind))
        assert (start.agent, start.port, start.member.rank) == (agents[rank], 4000 + rank, rank)
        come_back(world, rank, serving)
    assert not whole(world)
    assert [(each.rank, each.kind, each.alone) for each in trial(world).restarts] == [
        (rank, kind, True) for rank, kind in losses
    ]
    assert trial(world).generation == 1
    for agent in agents:
        if agent in world.running:
            world.succeed(agent)
    assert world.status(0) == "succeeded"


def test_both_workers_may_be_away_at_once() -> None:
    world = World()
    agents = cluster(world, serving=True, max_retries=2)
    for rank in (WORKER, OTHER):
        assert placed(world.fail(agents[rank], FailureKind.SIGNAL))
    for rank in (OTHER, WORKER):
        come_back(world, rank, serving=True)
    assert not whole(world)
    assert len(trial(world).restarts) == 2


@pytest.mark.parametrize("rank", [0, PS])
def test_the_gang_restarts_with_its_chief_and_its_parameter_servers(rank: int) -> None:
    world = World()
    world.fail(cluster(world, serving=True)[rank], FailureKind.SIGNAL)
    assert whole(world)


def test_a_chief_that_fails_for_want_of_the_worker_restarts_the_gang_with_the_cause() -> None:
    """A chief without a coordinator cannot do without its workers."""
    world = World()
    agents = cluster(world, serving=True)
    world.fail(agents[WORKER], FailureKind.SIGNAL)
    world.fail(agents[0], FailureKind.RING)
    assert whole(world)
    for agent in list(world.running):
        world.fail(agent, FailureKind.STOPPED)
    [restart] = trial(world).restarts
    assert (restart.rank, restart.kind, restart.alone) == (WORKER, FailureKind.SIGNAL, False)


def test_the_gang_restarts_when_no_agent_comes_for_the_worker() -> None:
    world = World()
    world.lose(cluster(world, serving=True)[WORKER])
    world.tick(timeouts.AGENT_S + 1.0)
    assert whole(world)


@pytest.mark.parametrize("stage", ["away", "starting", "back"])
def test_the_chief_may_end_while_a_worker_that_serves_is_away(stage: str) -> None:
    """The chief has joined its coordinator: no work is left for the worker."""
    world = World()
    agents = cluster(world, serving=True, last_host="host-2")
    if stage == "away":
        world.lose(agents[WORKER])
    else:
        world.fail(agents[WORKER], FailureKind.SIGNAL)
    if stage == "back":
        come_back(world, WORKER, serving=True)
    world.succeed(agents[0])
    for agent in list(world.running):
        assert world.running[agent].rank in (WORKER, OTHER, PS, EVALUATOR)
        world.fail(agent, FailureKind.STOPPED)
    assert world.status(0) == "succeeded"
    assert len(ROLES) + (stage != "away") == len(placed(world.commands))
