"""The steps that the model repeats after a loss in a ring that heals: those with a state that no member has kept."""

import pytest

from sparktrain.state.outcome import FailureKind
from tests.unit.state.gangs import trial
from tests.unit.state.test_healing_rings import STEP, join_ring, ring
from tests.unit.state.world import World


@pytest.mark.parametrize(
    ("healed", "kept", "repeated"),
    [
        ((STEP - 1, STEP - 1, STEP), STEP, 0),
        ((STEP + 1, STEP, STEP), STEP + 1, 0),
        ((STEP - 1, STEP - 1, STEP - 1), STEP - 1, 1),
        ((STEP - 3, STEP - 3, STEP - 2), STEP - 2, 2),
    ],
    ids=["a member keeps the newest step", "and one more", "only the lost one had it", "only the lost one had them"],
)
def test_repeated_steps_are_those_that_members_had_reported_and_no_member_has_kept(
    healed: tuple[int, ...], kept: int, repeated: int
) -> None:
    world = World()
    agents = ring(world)
    world.fail(agents[1], FailureKind.MEMORY)
    world.reserve(agents[1])
    world.enter(agents[1])
    world.step(agents[0], STEP + 1)  # it trains before the others have reported
    for agent, step in zip(agents, healed, strict=True):
        world.heal(agent, 1, step)
    [restart] = trial(world).restarts
    assert (restart.resumed_from_step, restart.steps_lost) == (kept, repeated)


def test_a_step_that_only_the_lost_process_had_counts_when_the_next_one_is_lost_too() -> None:
    world = World()
    agents = ring(world)
    world.step(agents[1], STEP + 1)
    world.fail(agents[1], FailureKind.MEMORY)
    world.reserve(agents[1])
    world.fail(agents[1], FailureKind.MEMORY)
    join_ring(world, 2, STEP)
    assert [(restart.resumed_from_step, restart.steps_lost) for restart in trial(world).restarts] == [
        (STEP, 1),
        (STEP, 0),
    ]
