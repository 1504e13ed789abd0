"""Lost agents with a reason that the cluster reports later: it is shown, and what the cluster took is not counted."""

import pytest

from sparktrain.base.ids import AgentId, TrialId
from sparktrain.state import commands as do
from sparktrain.state.machine import Machine
from sparktrain.state.outcome import FailureKind, Loss, Restart
from sparktrain.state.restart import EXCUSED_LIMIT
from sparktrain.state.trial import Trial
from tests.unit.state.test_recovery import successor
from tests.unit.state.world import LEASE_S, World

WORD_S = 20.0
EXCUSED = [Loss.PREEMPTED, Loss.NODE, Loss.DECOMMISSIONED, Loss.KILLED, Loss.MASTER, Loss.ANNOUNCED]
COUNTED = [Loss.MEMORY, Loss.STORAGE, Loss.OTHER]


@pytest.fixture
def world() -> World:
    return World(Machine(LEASE_S, WORD_S), cases=1)


def trial(world: World) -> Trial:
    assert world.machine.last is not None
    return world.machine.last.trials[TrialId(0)]


def train(world: World, name: str) -> AgentId:
    """An agent that has joined has the only member."""
    agent = world.join(name)
    world.suggest()
    assert list(world.running) == [agent]
    world.enter(agent)
    return agent


def gang(world: World, **limits: object) -> list[AgentId]:
    """The agents of a gang of two that trains, by rank."""
    world.begin(size=2, recovers=True, **limits)
    agents = [world.join(name) for name in "ab"]
    world.suggest()
    for agent in agents:
        world.reserve(agent)
    for agent in agents:
        world.enter(agent)
    return sorted(agents, key=lambda agent: world.running[agent].rank)


def cause_of(restart: Restart) -> tuple[object, ...]:
    return restart.rank, restart.host, restart.kind, restart.loss, restart.cause


def test_a_restart_says_why_once_the_cluster_has_said_so_and_a_later_driver_knows_it(world: World) -> None:
    first, second = gang(world)
    world.lose(second)
    world.fail(first, FailureKind.STOPPED)
    [before] = trial(world).restarts
    assert cause_of(before) == (1, "host-b", FailureKind.LOST, None, "agent on host-b was lost: its executor died")
    world.explain(second)
    [after] = trial(world).restarts
    assert cause_of(after) == (
        1,
        "host-b",
        FailureKind.LOST,
        Loss.PREEMPTED,
        "agent on host-b was lost: reason: preempted",
    )
    assert (after.resumed_from_step, after.steps_lost) == (before.resumed_from_step, before.steps_lost)
    assert successor(world).machine.last.trials[TrialId(0)].restarts[0] == after
    assert world.explain(second) == []
    assert trial(world).restarts == (after,)


def test_a_run_that_ends_for_want_of_agents_says_why_they_were_lost(world: World) -> None:
    first, second = gang(world)
    world.lose(second)
    world.fail(first, FailureKind.STOPPED)
    world.explain(second)
    world.stop()
    failure = trial(world).failure
    assert world.status(0) == "stopped"
    assert failure is not None
    assert (failure.rank, failure.host, failure.loss) == (1, "host-b", Loss.PREEMPTED)
    assert failure.summary == "agent on host-b was lost: reason: preempted"


def test_a_word_that_comes_before_the_gang_has_ended_is_its_cause(world: World) -> None:
    first, second = gang(world)
    world.lose(second)
    world.explain(second, Loss.MEMORY)
    world.fail(first, FailureKind.STOPPED)
    [restart] = trial(world).restarts
    assert cause_of(restart)[:4] == (1, "host-b", FailureKind.MEMORY, Loss.MEMORY)


def test_a_broken_ring_is_told_as_the_loss_that_it_followed_from(world: World) -> None:
    first, second = gang(world)
    world.fail(first, FailureKind.RING)
    world.tick(2.0)
    world.lose(second)
    assert [each.kind for each in trial(world).restarts] == [FailureKind.RING]
    world.explain(second, Loss.NODE)
    assert [cause_of(each)[:4] for each in trial(world).restarts] == [(1, "host-b", FailureKind.LOST, Loss.NODE)]


def test_the_loss_of_an_agent_whose_member_was_not_the_cause_changes_nothing(world: World) -> None:
    first, second = gang(world)
    world.fail(first, FailureKind.MEMORY)
    world.lose(second)
    [before] = trial(world).restarts
    world.explain(second)
    assert trial(world).restarts == (before,)


@pytest.mark.parametrize("loss", EXCUSED)
def test_what_the_cluster_took_uses_up_no_restart(world: World, loss: Loss) -> None:
    world.begin(max_retries=1)
    for number in range(5):
        agent = train(world, f"a{number}")
        world.lose(agent)
        world.explain(agent, loss)
        assert world.status(0) == "queued"
    for number in range(2):
        world.lose(train(world, f"b{number}"))
    world.tick(WORD_S)
    assert world.status(0) == "lost"


@pytest.mark.parametrize("loss", COUNTED)
def test_what_it_did_not_take_does(world: World, loss: Loss) -> None:
    world.begin(max_retries=1, recovers=True)
    for number in range(2):
        agent = train(world, f"a{number}")
        world.lose(agent)
        world.explain(agent, loss)
    assert world.status(0) == ("failed" if loss is Loss.MEMORY else "lost")
    assert trial(world).failure is not None
    assert trial(world).failure.summary == f"agent on host-a1 was lost: reason: {loss}"
    assert len(world.all(do.ConcludeTrial)) == 1


def test_before_a_trial_is_given_up_the_word_is_waited_for(world: World) -> None:
    world.begin(max_retries=0)
    agent = train(world, "a")
    world.lose(agent)
    world.tick(WORD_S - 1.0)
    assert world.all(do.ConcludeTrial) == []
    world.explain(agent)
    assert world.status(0) == "queued"
    world.succeed(train(world, "b"))
    assert world.status(0) == "succeeded"
    assert len(world.all(do.EndRun)) == 1


def test_without_a_word_it_is_given_up_when_the_time_for_it_is_over(world: World) -> None:
    world.begin(max_retries=0)
    agent = train(world, "a")
    world.lose(agent)
    world.tick(WORD_S)
    assert world.status(0) == "lost"
    assert world.explain(agent) == []
    assert world.status(0) == "lost"


def test_nobody_waits_for_a_word_that_cannot_come() -> None:
    world = World(cases=1)
    world.begin(max_retries=0)
    world.lose(train(world, "a"))
    assert world.status(0) == "lost"


def test_a_run_that_is_stopped_waits_for_no_word(world: World) -> None:
    world.begin(max_retries=0)
    world.lose(train(world, "a"))
    world.stop()
    world.tick(0.1)
    assert world.status(0) == "stopped"
    assert len(world.all(do.EndRun)) == 1


def test_a_trial_that_the_cluster_takes_again_and_again_ends(world: World) -> None:
    world.begin(max_retries=0)
    for number in range(EXCUSED_LIMIT + 1):
        agent = train(world, f"a{number}")
        world.lose(agent)
        world.explain(agent)
    assert world.status(0) == "lost"
    assert len(trial(world).restarts) == EXCUSED_LIMIT


@pytest.mark.parametrize("sign", ["report", "step", "write"])
def test_a_trial_that_gets_further_each_time_outlasts_any_number_of_losses(world: World, sign: str) -> None:
    """As one that resumes from files of its own while a cluster of spot instances takes its hosts for a week."""
    world.begin(max_retries=0)
    for number in range(3 * EXCUSED_LIMIT):
        agent = train(world, f"a{number}")
        getattr(world, sign)(agent, 10 + number)
        world.lose(agent)
        world.explain(agent, Loss.ANNOUNCED)
    assert len(trial(world).restarts) == 3 * EXCUSED_LIMIT
    for number in range(EXCUSED_LIMIT):
        agent = train(world, f"b{number}")
        world.lose(agent)
        world.explain(agent)
    assert world.status(0) == "lost"


def test_memory_is_the_result_of_a_trial_whose_crashes_are() -> None:
    world = World(Machine(LEASE_S, WORD_S), cases=1)
    world.begin(max_retries=0, recovers=False)
    agent = train(world, "a")
    world.lose(agent)
    world.explain(agent, Loss.MEMORY)
    assert world.status(0) == "failed"
