"""Several runs share the agents of one pool."""

import pytest

from sparktrain.base.ids import RunId, TrialId
from sparktrain.config.option_rules import LEAST_WEIGHT, MOST_WEIGHT
from sparktrain.state import events as on
from sparktrain.state.allocation.allocator import FIRST_HOLD_S
from sparktrain.state.outcome import FailureKind
from tests.support.limits import run_limits
from tests.unit.state.shared_world import SharedWorld


@pytest.fixture
def world() -> SharedWorld:
    return SharedWorld()


def churn(world: SharedWorld, seconds: float, each_s: float = 1.0) -> dict[RunId, float]:
    """All trials last `each_s`, one after the other; returns the slot-seconds of each run."""
    used: dict[RunId, float] = dict.fromkeys(world.sweeps, 0.0)
    agents = list(world.codes)
    # The agents end their members one after the other within each turn.
    for _ in range(int(seconds / each_s)):
        for agent in agents:
            world.at += each_s / len(agents)
            for member in world.running.values():
                used[member.run] += each_s / len(agents)
            if agent in world.running:
                world.start_all()
                world.succeed(agent)
    return used


def test_a_second_run_gets_what_its_weight_gives_it_as_slots_become_free(world: SharedWorld) -> None:
    world.join(*[f"a{number}" for number in range(8)])
    first = world.begin("first")
    assert len(world.of(first)) == 8
    second = world.begin("second", weight=3.0)
    assert not world.of(second)
    churn(world, 1.0)
    used = churn(world, 60.0)
    assert used[second] / used[first] == pytest.approx(3.0, rel=0.04)


def test_a_run_gets_what_the_others_do_not_want(world: SharedWorld) -> None:
    world.join(*[f"a{number}" for number in range(6)])
    small = world.begin("small", weight=5.0, most=2)
    large = world.begin("large")
    assert (len(world.of(small)), len(world.of(large))) == (2, 4)
    used = churn(world, 20.0)
    assert used[large] / used[small] == pytest.approx(2.0, rel=0.05)


def test_a_run_that_ends_gives_its_agents_to_the_others_at_once(world: SharedWorld) -> None:
    first_agent, second_agent = world.join("a", "b")
    first = world.begin("first", cases=2)
    second = world.begin("second", cases=2)
    world.start_all()
    world.succeed(first_agent)
    assert world.running[first_agent].run == second
    world.start_all()
    world.succeed(second_agent)
    assert first in world.ended
    assert len(world.of(second)) == 2


def test_an_agent_that_comes_back_to_a_run_needs_no_code(world: SharedWorld) -> None:
    [agent] = world.join("a")
    world.begin("first")
    world.begin("second")
    runs = []
    for _ in range(6):
        world.at += 1.0
        world.start_all()
        world.succeed(agent)
        runs.append(world.running[agent].run)
    assert runs == ["second", "first"] * 3
    assert world.codes[agent] == {"first", "second"}


def test_a_run_with_the_name_of_one_that_is_on_is_refused(world: SharedWorld) -> None:
    world.begin("first")
    with pytest.raises(ValueError, match="run first starts while it is not over"):
        world.feed(on.RunStarted(0.0, RunId("first"), run_limits()))


def test_a_large_gang_keeps_what_becomes_free_until_it_is_whole(world: SharedWorld) -> None:
    agents = world.join(*"abcd")
    small = world.begin("small")
    world.start_all()
    gang = world.begin("gang", size=3)
    for agent in agents[:2]:
        world.at += 1.0
        world.succeed(agent)
        assert not world.of(gang)
    assert len(world.of(small)) == 2
    world.succeed(agents[2])
    assert len(world.of(gang)) == 3


def test_agents_are_not_kept_for_a_gang_that_is_larger_than_the_pool(world: SharedWorld) -> None:
    agents = world.join(*"abcd")
    small = world.begin("small")
    world.start_all()
    world.begin("gang", size=3)
    world.lose(agents[3])
    world.lose(agents[2])
    world.succeed(agents[0])
    assert len(world.of(small)) == 2, "two agents are left, and the gang needs three"


def test_a_reservation_that_gets_no_agent_is_given_up_for_a_while(world: SharedWorld) -> None:
    agents = world.join(*"abc")
    endless = world.begin("endless", most=1)
    small = world.begin("small")
    world.start_all()
    gang = world.begin("gang", size=3)
    [held] = world.of(endless)
    other, last = (agent for agent in agents if agent != held)
    world.tick(5.0)
    world.succeed(other)
    world.succeed(last)
    assert not world.of(small)
    world.tick(FIRST_HOLD_S + 1)
    assert len(world.of(small)) == 2, "the others do not wait for what may never come"
    world.tick(FIRST_HOLD_S + 1)
    world.start_all()
    world.succeed(other)
    assert len(world.of(small)) == 1, "and then the gang tries again"
    world.succeed(last)
    world.succeed(held)
    assert len(world.of(gang)) == 3


def test_an_urgent_run_gets_an_agent_at_the_next_checkpoint(world: SharedWorld) -> None:
    [agent] = world.join("a")
    patient = world.begin("patient")
    world.start_all()
    world.step(agent)
    member = world.running[agent]
    urgent = world.begin("urgent", cases=1, total=1, priority=1)
    assert world.asked == {member}
    world.step(agent)
    world.save(agent)
    world.end_stopped()
    assert world.of(urgent) == [agent]
    world.start_all()
    world.succeed(agent)
    assert world.running[agent].trial == member.trial
    [restart] = world.sweeps[patient].trials[TrialId(0)].restarts
    assert (restart.cause, restart.resumed_from_step, restart.steps_lost) == ("preempted by run urgent", 2, 0)
    assert restart.paused
    assert world.sweeps[patient].trials[TrialId(0)].spent() == (0, 0)


def test_a_trial_that_saves_nothing_is_left_to_end(world: SharedWorld) -> None:
    [agent] = world.join("a")
    patient = world.begin("patient")
    world.start_all()
    urgent = world.begin("urgent", cases=1, total=1, priority=1)
    world.tick(100.0)
    assert world.of(patient) == [agent]
    world.succeed(agent)
    assert world.of(urgent) == [agent]
    assert world.sweeps[patient].trials[TrialId(0)].status == "succeeded"


def test_only_as_many_trials_pause_as_the_urgent_run_has(world: SharedWorld) -> None:
    agents = world.join(*"abcd")
    world.begin("patient")
    world.start_all()
    for agent in agents:
        world.step(agent)
        world.save(agent)
    world.begin("urgent", cases=2, total=2, priority=1)
    world.tick(2.0)
    assert len(world.asked) == 2
    assert {member.trial for member in world.asked} == {2, 3}, "the newest trials"


def test_a_run_of_lower_priority_waits_for_what_the_higher_one_leaves(world: SharedWorld) -> None:
    agents = world.join("a", "b")
    urgent = world.begin("urgent", cases=3, total=3, priority=2)
    low = world.begin("low")
    world.start_all()
    world.succeed(agents[0])
    assert len(world.of(urgent)) == 2
    world.start_all()
    world.succeed(agents[0])
    assert world.running[agents[0]].run == low


def test_the_loss_of_an_agent_costs_its_own_run_alone(world: SharedWorld) -> None:
    agents = world.join("a", "b")
    first = world.begin("first")
    second = world.begin("second")
    world.start_all()
    world.succeed(agents[0])
    world.start_all()
    assert (world.of(first), world.of(second)) == (["b"], ["a"])
    world.lose(agents[0])
    assert str(world.sweeps[second].trials[TrialId(0)].status) == "queued"
    assert not any(trial.restarts for trial in world.sweeps[first].trials.values())
    assert [restart.kind for restart in world.sweeps[second].trials[TrialId(0)].restarts] == [FailureKind.LOST]
    assert world.of(first) == ["b"]


def test_a_run_waits_for_a_full_pool_without_a_limit_of_time(world: SharedWorld) -> None:
    world.join("a")
    world.begin("first")
    world.start_all()
    second = world.begin("second", start_timeout_s=5.0)
    world.tick(60.0)
    assert second not in world.ended
    world.succeed(world.of(RunId("first"))[0])
    assert world.of(second)


def test_a_run_is_stopped_by_itself(world: SharedWorld) -> None:
    world.join("a", "b")
    first = world.begin("first")
    second = world.begin("second")
    world.stop(first)
    world.end_stopped()
    assert set(world.ended) == {first}
    assert len(world.of(second)) == 2


@pytest.mark.parametrize("over", ["endless", "gang"])
def test_a_run_that_ends_while_a_gang_waits_frees_what_is_kept(world: SharedWorld, over: str) -> None:
    agents = world.join(*"abc")
    endless = world.begin("endless", most=1)
    small = world.begin("small")
    world.start_all()
    gang = world.begin("gang", size=3)
    [held] = world.of(endless)
    world.tick(5.0)
    for agent in agents:
        if agent != held:
            world.succeed(agent)
    assert not world.of(small), "what became free is kept for the gang"
    world.stop(RunId(over))
    world.end_stopped()
    if over == "gang":
        assert len(world.of(small)) == 2, "nothing is kept for a run that is over"
    else:
        assert len(world.of(gang)) == 3, "the run that is over has given its agent"


def test_the_least_and_the_most_weight_share(world: SharedWorld) -> None:
    world.join(*[f"a{number}" for number in range(4)])
    light = world.begin("light", weight=LEAST_WEIGHT)
    heavy = world.begin("heavy", weight=MOST_WEIGHT)
    churn(world, 2.0)
    late = world.begin("late", weight=MOST_WEIGHT)
    used = churn(world, 30.0)
    assert used[light] <= 1.0
    assert used[heavy] / used[late] == pytest.approx(1.0, rel=0.1)
