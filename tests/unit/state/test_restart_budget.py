"""What counts against the limit of restarts, and what gives it back."""

import pytest

from sparktrain.base.ids import TrialId
from sparktrain.state.outcome import FailureKind, Restart
from sparktrain.state.restart_history import RestartHistory
from sparktrain.state.trial import Trial
from tests.unit.state.gangs import by_rank, gang, run, trial
from tests.unit.state.world import World


@pytest.fixture
def world() -> World:
    return World(cases=1)


def lose_and_replace(world: World, name: str) -> None:
    """The gang loses a member, and forms again with a new agent."""
    agents = by_rank(world)
    world.lose(agents[1])
    world.fail(agents[0], FailureKind.RING)
    world.join(name)
    run(world, by_rank(world))


def test_a_gang_that_gets_on_may_be_lost_any_number_of_times(world: World) -> None:
    gang(world, max_retries=2)
    for life in range(12):
        world.write(by_rank(world)[0], 10 * (life + 1))
        lose_and_replace(world, f"new-{life}")
    assert world.status(0) == "running"
    assert len(trial(world).restarts) == 12


def test_restarts_without_a_newer_checkpoint_use_up_the_budget(world: World) -> None:
    gang(world, max_retries=2)
    world.write(by_rank(world)[0], 10)
    for life in range(2):
        lose_and_replace(world, f"new-{life}")
    assert world.status(0) == "running"
    world.lose(by_rank(world)[1])
    world.fail(by_rank(world)[0], FailureKind.RING)
    assert world.status(0) == "lost"


def test_a_step_that_is_reached_again_gives_nothing_back() -> None:
    """As when each newest checkpoint turns out to be corrupt."""
    steps = (None, 20, 10, 20, 10)
    restarts = tuple(Restart(0, "h", FailureKind.CHECKPOINT, "corrupt", 0.0, step, None) for step in steps)
    history = RestartHistory(restarts)
    assert Trial(TrialId(0), {}, restart_history=history).spent() == (4, 0), "the one before step 20 is given back"
    history.forgiven = 3
    assert Trial(TrialId(0), {}, restart_history=history).spent() == (2, 0)
