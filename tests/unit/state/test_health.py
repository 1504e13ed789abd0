"""A sick host costs a few retries, and no trial: it is backed off from, avoided, and excluded in the end."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparktrain.base.ids import AgentId, TrialId
from sparktrain.state import commands as do
from sparktrain.state.ending import Ending
from sparktrain.state.health import EXCLUDED_AFTER, FIRST_BACK_OFF_S
from sparktrain.state.outcome import Failure, FailureKind, Outcome
from sparktrain.state.prospects import AGENTS_TIMEOUT_S
from tests.support.examples import examples
from tests.unit.state.world import World

FULL = Failure(FailureKind.LOST, "no member can be set up: [Errno 28] No space left on device")
MISSING = Failure(FailureKind.LOAD, "ModuleNotFoundError: No module named 'lib'")
CRASH = Failure(FailureKind.SIGNAL, "ended by SIGILL")
LIMIT_S = 3600.0


@pytest.fixture
def world() -> World:
    return World()


def begin(world: World, *hosts: str, **limits: object) -> list[AgentId]:
    """A run on one agent for each of the hosts, a slot for each name that comes again."""
    world.begin(agents=len(hosts), **limits)
    agents = [world.join(f"a{index}", host, hosts[:index].count(host)) for index, host in enumerate(hosts)]
    world.suggest()
    return agents


def spoil(world: World, agent: AgentId, failure: Failure = FULL) -> list[do.Command]:
    """The agent's member fails before it enters."""
    return world.end(agent, Outcome(0.0, failure=failure))


def complete(world: World, agent: AgentId) -> None:
    world.enter(agent)
    world.succeed(agent)


def trial_of(world: World, agent: AgentId) -> int:
    return world.running[agent].trial


def play(world: World, hosts: dict[AgentId, str], sick: dict[str, Failure], lasts_s: float) -> None:
    """The whole run: members on sick hosts fail at once, the others train for so long. Ends, or fails."""
    due: dict[AgentId, float] = {}
    while world.machine.sweep is not None:
        assert world.at < LIMIT_S, "the run does not end"
        world.suggest()
        for agent in sorted(world.running):
            if hosts[agent] in sick:
                spoil(world, agent, sick[hosts[agent]])
            elif agent not in due:
                world.enter(agent)
                due[agent] = world.at + lasts_s
            elif world.at >= due[agent]:
                del due[agent]
                world.succeed(agent)
        world.suggest()
        world.tick(0.5)


# ---- one sick host among others


@pytest.mark.long
@examples(25)
@given(
    slots=st.integers(1, 3),
    order=st.permutations(["bad", "good"]),
    failure=st.sampled_from([FULL, MISSING, CRASH]),
    lasts_s=st.sampled_from([0.5, 20.0]),
    lookahead=st.sampled_from([0, 2, 30]),
)
def test_a_sick_host_of_two_fails_no_trial_and_costs_three_retries_a_slot(
    slots: int, order: list[str], failure: Failure, lasts_s: float, lookahead: int
) -> None:
    world = World(cases=30)
    hosts = order * slots
    agents = begin(world, *hosts, lookahead=lookahead)
    play(world, dict(zip(agents, hosts, strict=True)), {"bad": failure}, lasts_s)
    trials = world.machine.last.trials.values()
    assert [trial.status for trial in trials] == ["succeeded"] * 30
    assert sum(len(trial.restarts) for trial in trials) <= EXCLUDED_AFTER * slots
    assert max(len(trial.restarts) for trial in trials) <= 1
    assert all(trial.host == "good" for trial in trials)


def test_a_module_that_is_missing_on_one_host_fails_none_of_200_trials() -> None:
    world = World(cases=200)
    hosts = ("bad", "good", "good")
    agents = begin(world, *hosts)
    play(world, dict(zip(agents, hosts, strict=True)), {"bad": MISSING}, 1.0)
    trials = world.machine.last.trials.values()
    assert [trial.status for trial in trials] == ["succeeded"] * 200
    [reason, *_] = [restart for trial in trials for restart in trial.restarts]
    assert reason.kind is FailureKind.LOST
    assert reason.cause == f"the training function was not entered on bad: {MISSING.summary}"
    [excluded] = world.all(do.ExcludeAgent)
    assert excluded.agent == agents[0]
    assert excluded.reason == (
        "3 trials failed on bad before they entered the training function, the last with: " + MISSING.summary
    )


def test_a_trial_that_failed_on_a_host_waits_for_another_and_others_need_not(world: World) -> None:
    bad, good = begin(world, "bad", "good")
    world.enter(good)
    assert trial_of(world, bad) == 0
    spoil(world, bad)
    world.tick(FIRST_BACK_OFF_S)
    world.suggest()
    assert trial_of(world, bad) == 2
    world.succeed(good)
    assert trial_of(world, good) == 0


def test_an_agent_is_backed_off_from_for_twice_as_long_each_time_until_a_member_enters(world: World) -> None:
    world.cases = 1
    [agent] = begin(world, "only", max_retries=9)
    for seconds in (5.0, 10.0, 20.0):
        spoil(world, agent)
        world.tick(seconds - 0.1)
        assert not world.running
        world.tick(0.2)
    world.enter(agent)
    world.fail(agent, FailureKind.LOST)
    assert trial_of(world, agent) == 0
    spoil(world, agent)
    world.tick(FIRST_BACK_OFF_S)
    assert trial_of(world, agent) == 0


def test_an_agent_whose_member_entered_is_well_again_and_so_is_its_host_for_all_trials(world: World) -> None:
    world.cases = 30
    flaky, other = begin(world, "flaky", "other", lookahead=9)
    world.enter(other)
    for _ in range(EXCLUDED_AFTER + 1):
        spoil(world, flaky)
        world.tick(40.0)
        complete(world, flaky)
    assert not world.all(do.ExcludeAgent)
    assert not world.machine.last.health.barred(TrialId(0))


def test_a_trial_lost_in_the_middle_is_tried_on_another_host_where_one_is_free(world: World) -> None:
    first, second, third = begin(world, "a", "a", "b")
    for agent in (first, second, third):
        world.enter(agent)
    world.cases = 0
    world.succeed(second)
    world.suggest()
    world.succeed(third)
    world.suggest()
    world.fail(first, FailureKind.LOST)
    assert {agent: member.trial for agent, member in world.running.items() if member.trial == 0} == {third: 0}


def test_a_trial_lost_in_the_middle_does_not_wait_for_another_host(world: World) -> None:
    first, second = begin(world, "a", "b")
    for agent in (first, second):
        world.enter(agent)
    world.fail(first, FailureKind.LOST)
    assert world.running[first].generation == 2


def test_a_gang_forms_without_the_host_on_which_it_failed(world: World) -> None:
    agents = begin(world, "bad", "bad", "good", "good", size=2)
    [bad, _] = [agent for agent in agents[:2] if agent in world.running]
    spoil(world, bad)
    for agent in list(world.running):
        if world.running[agent].trial == 0:
            world.fail(agent, FailureKind.STOPPED)
    hosts = {start.member.generation: start.agent for start in world.all(do.PlaceMember) if start.member.trial == 0}
    assert hosts[1] in agents[:2]
    assert 2 not in hosts  # the other gang has the agents of the good host
    for agent in list(world.running):
        world.reserve(agent)
    for agent in list(world.running):
        world.enter(agent)
    for agent in list(world.running):
        world.succeed(agent)
    assert {agent for agent, member in world.running.items() if member.trial == 0} == set(agents[2:])


# ---- no host that is well


@pytest.mark.parametrize("failure", [FULL, CRASH])
def test_a_run_whose_agents_are_all_sick_ends_with_the_cause_and_can_be_resumed(failure: Failure) -> None:
    world = World(cases=30)
    hosts = ("a", "a", "b")
    agents = begin(world, *hosts, lookahead=3, recovers=True)
    play(world, dict(zip(agents, hosts, strict=True)), {"a": failure, "b": failure}, 1.0)
    [end] = world.all(do.EndRun)
    assert end.ending == Ending.UNAVAILABLE
    assert end.reason.startswith("3 of 3 agents are excluded: 3 trials failed on a before they entered")
    assert "3 trials failed on b" in end.reason
    assert failure.summary in end.reason
    assert {trial.status for trial in world.machine.last.trials.values()} == {"lost"}
    assert world.at < 60.0


def test_one_trial_on_a_sick_host_is_lost_after_its_retries(world: World) -> None:
    world.cases = 1
    [agent] = begin(world, "only", max_retries=2)
    play(world, {agent: "only"}, {"only": FULL}, 1.0)
    assert world.status(0) == "lost"
    assert [each.ending for each in world.all(do.EndRun)] == [Ending.COMPLETE]


def test_excluded_agents_are_waited_for_where_others_may_come(world: World) -> None:
    world.cases = 30
    world.begin(agents=2, lookahead=5, start_timeout_s=100.0)
    bad = world.join("bad")
    world.suggest()
    for seconds in (5.0, 10.0, 20.0):
        spoil(world, bad)
        world.tick(seconds)
    assert not world.running
    world.tick(50.0)
    assert world.machine.sweep is not None
    good = world.join("good")
    assert good in world.running


def test_and_no_longer_than_a_run_waits_for_agents(world: World) -> None:
    world.begin(agents=2, lookahead=5, start_timeout_s=100.0)
    bad = world.join("bad")
    world.suggest()
    for seconds in (5.0, 10.0, 105.0):
        spoil(world, bad)
        world.tick(seconds)
    [end] = world.all(do.EndRun)
    assert end.ending == Ending.UNAVAILABLE
    assert end.reason.startswith("1 of 1 agents are excluded")


# ---- what cannot be loaded


def test_what_the_first_host_cannot_load_is_tried_on_another_before_the_run_ends(world: World) -> None:
    first, second = begin(world, "a", "b")
    spoil(world, first, MISSING)
    assert not world.all(do.EndRun)
    complete(world, second)
    assert world.status(1) == "succeeded"
    assert trial_of(world, second) == 0


def test_what_no_host_can_load_ends_the_run(world: World) -> None:
    first, second = begin(world, "a", "b")
    spoil(world, first, MISSING)
    spoil(world, second, MISSING)
    [end] = world.all(do.EndRun)
    assert (end.ending, end.failure) == (Ending.UNLOADABLE, MISSING)


def test_what_a_host_cannot_load_waits_for_agents_that_are_to_come_and_not_for_long(world: World) -> None:
    world.begin(agents=2)
    first = world.join("a")
    world.suggest()
    spoil(world, first, MISSING)
    world.tick(AGENTS_TIMEOUT_S - 0.1)
    assert not world.running
    assert not world.all(do.EndRun)
    world.tick(0.2)
    [end] = world.all(do.EndRun)
    assert (end.ending, end.failure) == (Ending.UNLOADABLE, MISSING)
    assert world.status(0) == "stopped"


def test_the_agent_that_comes_can_load_it(world: World) -> None:
    world.begin(agents=2)
    first = world.join("a")
    world.suggest()
    spoil(world, first, MISSING)
    world.tick(5.0)
    second = world.join("b")
    assert trial_of(world, second) == 0
    complete(world, second)
    assert world.status(0) == "succeeded"


def test_members_that_crash_before_they_enter_fail_where_nothing_says_that_others_would_not(world: World) -> None:
    [agent] = begin(world, "only")
    spoil(world, agent, CRASH)
    assert world.status(0) == "failed"
