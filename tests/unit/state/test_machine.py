"""The machine's decisions, one history each."""

import pytest

from sparktrain.base.ids import AgentId, Generation, Member, Rank, RunId, TrialId
from sparktrain.state import agent_messages as m
from sparktrain.state import commands as do
from sparktrain.state import events as on
from sparktrain.state.ending import Ending
from sparktrain.state.gangs import timeouts
from sparktrain.state.health import FIRST_BACK_OFF_S
from sparktrain.state.outcome import FailureKind, Outcome, Report
from sparktrain.state.restart import Cause, cause_of
from tests.support.limits import run_limits
from tests.unit.state.world import LEASE_S, RUN, World, kinds


@pytest.fixture
def world() -> World:
    return World()


def running(world: World, agents: int = 1, **limits: object) -> list[AgentId]:
    """A run with its first trials entered, on so many agents."""
    world.begin(**limits)
    names = [world.join(f"a{index}") for index in range(agents)]
    world.suggest()
    for agent in list(world.running):
        world.enter(agent)
    return names


def test_trials_run_one_after_another_on_one_agent_until_the_sampler_is_exhausted(world: World) -> None:
    world.cases = 3
    [agent] = running(world)
    for _ in range(3):
        world.succeed(agent)
        world.suggest()
    assert [start.member.trial for start in world.all(do.PlaceMember)] == [0, 1, 2]
    assert world.all(do.EndRun) == [do.EndRun(RUN, Ending.COMPLETE, "")]


def test_an_idle_agent_gets_the_next_trial_in_the_event_that_freed_it(world: World) -> None:
    agents = running(world, agents=2)
    assert {world.running[agent].trial for agent in agents} == {0, 1}
    world.succeed(agents[1])
    world.suggest()
    assert world.running[agents[1]].trial == 2


def test_a_failed_trial_is_a_result_and_the_sweep_goes_on(world: World) -> None:
    [agent] = running(world)
    world.fail(agent)
    world.suggest()
    assert world.status(0) == "failed"
    assert world.running[agent].trial == 1


@pytest.mark.parametrize(
    "kind", [k for k in FailureKind if cause_of(k) is not Cause.INFRASTRUCTURE and k is not FailureKind.LOAD]
)
def test_only_lost_infrastructure_is_retried(world: World, kind: FailureKind) -> None:
    [agent] = running(world)
    world.fail(agent, kind)
    assert world.status(0) == "failed"


def test_the_trial_of_a_lost_agent_runs_again_first_on_another_in_the_next_generation(world: World) -> None:
    first, second = running(world, agents=2)
    world.lose(first)
    assert world.status(0) == "queued"
    world.succeed(second)
    assert world.running[second] == Member(RUN, TrialId(0), Generation(2))


def test_a_trial_whose_agent_ends_it_unasked_is_lost_and_runs_again_on_another(world: World) -> None:
    first, second = running(world, agents=2)
    commands = world.fail(first, FailureKind.STOPPED)
    assert commands[0] == do.DropAgent(first, "it ended its member without a request")
    assert not world.lose(first)
    world.succeed(second)
    assert world.running == {second: Member(RUN, TrialId(0), Generation(2))}
    [restart] = world.machine.last.trials[TrialId(0)].restarts
    assert (restart.kind, restart.host) == (FailureKind.LOST, "host-a0")


def test_a_member_of_a_gang_that_its_agent_ends_unasked_is_the_cause(world: World) -> None:
    first, second = running(world, agents=2, size=2)
    commands = world.fail(second, FailureKind.STOPPED)
    assert kinds(commands) == [do.DropAgent, m.StopMember]
    world.fail(first, FailureKind.STOPPED)
    [restart] = world.machine.last.trials[TrialId(0)].restarts
    assert (restart.kind, restart.rank) == (FailureKind.LOST, 1)


def test_a_trial_that_is_lost_too_often_is_lost(world: World) -> None:
    world.begin(max_retries=2)
    for life in range(3):
        agent = world.join(f"a{life}")
        world.suggest()
        world.lose(agent)
    assert world.status(0) == "lost"
    assert [start.member.generation for start in world.all(do.PlaceMember)] == [1, 2, 3]


def test_an_agent_without_sign_of_life_is_dropped_when_its_lease_is_over(world: World) -> None:
    [agent] = running(world)
    assert not world.tick(LEASE_S, beating=False)
    dropped = world.tick(0.1, beating=False)
    assert dropped[0] == do.DropAgent(agent, "no heartbeat for 15 s")
    assert world.status(0) == "queued"


def test_a_beating_agent_keeps_its_trial(world: World) -> None:
    running(world)
    world.tick(10 * LEASE_S)
    assert not world.all(do.DropAgent)


def test_messages_of_an_older_generation_are_refused_and_change_nothing(world: World) -> None:
    first, second = running(world, agents=2)
    stale = world.running[first]
    world.lose(first)
    world.succeed(second)
    for event in (
        on.AgentSent(world.at, first, m.MemberEnded(stale, Outcome(1.0, metrics={"accuracy": 1.0}))),
        on.AgentSent(world.at, second, m.MemberEnded(stale, Outcome(1.0, metrics={"accuracy": 1.0}))),
        on.AgentSent(world.at, second, m.MemberStarted(stale, 0)),
        on.AgentSent(world.at, second, m.MemberReported(stale, (Report(1, {"loss": 1.0}),))),
        on.AgentSent(world.at, second, m.MemberEnded(Member(RunId("other"), TrialId(0), Generation(2)), Outcome(1.0))),
    ):
        assert [type(command) for command in world.feed(event)] == [do.Refused]
    assert world.status(0) == "running"


def test_a_trial_ends_once_even_when_its_end_is_told_twice(world: World) -> None:
    first, _ = running(world, agents=2)
    member = world.running[first]
    world.succeed(first)
    world.receive(first, m.MemberEnded(member, Outcome(1.0, metrics={"accuracy": 9.0})))
    assert [each.trial for each in world.all(do.ConcludeTrial)] == [0]


def test_a_trial_over_its_time_is_stopped_and_fails_with_its_limit(world: World) -> None:
    [agent] = running(world, trial_timeout_s=10.0)
    assert not world.tick(9.9)
    [stop] = world.tick(0.2)
    assert stop == do.Send(agent, m.StopMember(world.running[agent], timeouts.KILL_GRACE_S))
    world.fail(agent, FailureKind.SIGNAL)
    trial = world.machine.last.trials[TrialId(0)]
    assert (trial.status, trial.failure.kind) == ("failed", FailureKind.TIMEOUT)
    assert "trial_timeout (10 s)" in trial.failure.summary


def test_the_time_of_a_trial_counts_from_its_first_line(world: World) -> None:
    world.begin(trial_timeout_s=10.0)
    world.join("a")
    world.suggest()
    world.tick(60)
    assert not world.sent(m.StopMember)


def test_a_trial_that_returns_while_it_is_being_stopped_has_succeeded(world: World) -> None:
    [agent] = running(world, trial_timeout_s=10.0)
    world.tick(11)
    world.succeed(agent)
    assert world.status(0) == "succeeded"


def test_an_agent_whose_member_does_not_end_when_stopped_is_dropped(world: World) -> None:
    [agent] = running(world, trial_timeout_s=10.0)
    world.tick(11)
    world.tick(timeouts.KILL_GRACE_S + timeouts.END_S)
    assert [each.agent for each in world.all(do.DropAgent)] == [agent]
    assert world.status(0) == "failed"


def test_a_member_that_never_enters_is_stopped_and_tried_again(world: World) -> None:
    world.begin()
    agent = world.join("a")
    world.suggest()
    world.tick(300.0)
    world.fail(agent, FailureKind.STOPPED)
    world.tick(FIRST_BACK_OFF_S)
    assert [start.member.generation for start in world.all(do.PlaceMember)] == [1, 2]


def test_a_stop_ends_queued_trials_at_once_and_running_ones_after_the_grace(world: World) -> None:
    agent, second = running(world, agents=2)
    world.lose(second)
    commands = world.stop(grace_s=5.0)
    assert world.status(1) == "stopped"
    assert do.Send(agent, m.Advise(world.running[agent])) in commands
    assert not world.tick(4.9)
    assert kinds(world.tick(0.2)) == [m.StopMember]
    world.fail(agent, FailureKind.SIGNAL)
    assert world.status(0) == "stopped"
    assert world.all(do.EndRun) == [do.EndRun(RUN, Ending.STOPPED, "interrupted")]


def test_a_trial_that_heeds_the_stop_and_returns_has_succeeded(world: World) -> None:
    [agent] = running(world)
    world.stop(grace_s=5.0)
    world.succeed(agent)
    assert world.status(0) == "succeeded"
    assert len(world.all(do.EndRun)) == 1


def test_the_timeout_of_a_run_stops_it(world: World) -> None:
    [agent] = running(world, timeout_s=60.0)
    world.tick(61)
    assert do.Send(agent, m.Advise(world.running[agent])) in world.commands
    world.tick(6)
    assert world.sent(m.StopMember)
    world.fail(agent, FailureKind.SIGNAL)
    [end] = world.all(do.EndRun)
    assert (end.ending, end.reason) == (Ending.STOPPED, "the run's timeout (60 s) is over")


def test_a_run_without_agents_ends_with_what_is_missing(world: World) -> None:
    world.begin(start_timeout_s=30.0)
    world.tick(29)
    assert not world.all(do.EndRun)
    world.tick(2)
    [end] = world.all(do.EndRun)
    assert (end.ending, end.reason) == (Ending.NO_AGENTS, "0 of 1 agents that a trial needs within 30 s")


def test_a_run_waits_for_agents_anew_after_each_loss(world: World) -> None:
    [agent] = running(world, start_timeout_s=30.0)
    world.tick(100)
    world.lose(agent)
    world.tick(29)
    assert not world.all(do.EndRun)
    agent = world.join("b")
    world.tick(100)
    assert world.running[agent].generation == 2


def test_without_agents_for_good_what_has_no_result_is_lost(world: World) -> None:
    first, second = running(world, agents=2)
    world.succeed(first)
    world.suggest()
    world.feed(on.AgentsUnavailable(world.at, "Spark stopped"))
    world.lose(first)
    world.lose(second)
    assert [world.status(trial) for trial in range(3)] == ["succeeded", "lost", "lost"]
    [end] = world.all(do.EndRun)
    assert (end.ending, end.reason) == (Ending.UNAVAILABLE, "Spark stopped")


def test_a_function_that_cannot_be_loaded_ends_the_run_before_a_trial_has_run(world: World) -> None:
    world.begin()
    agent = world.join("a")
    world.suggest()
    world.fail(agent, FailureKind.LOAD)
    [end] = world.all(do.EndRun)
    assert (end.ending, end.failure.kind) == (Ending.UNLOADABLE, FailureKind.LOAD)


def test_a_host_that_cannot_load_the_function_fails_its_trials_once_another_could(world: World) -> None:
    first, second = running(world, agents=2)
    world.succeed(first)
    world.fail(second, FailureKind.LOAD)
    assert world.status(1) == "failed"
    assert not world.all(do.EndRun)


def test_agents_of_an_earlier_run_are_prepared_for_the_next(world: World) -> None:
    world.cases = 1
    [agent] = running(world)
    world.succeed(agent)
    second = RunId("second")
    [prepare] = world.feed(on.RunStarted(world.at, second, run_limits()))
    assert prepare == do.PrepareAgent(agent, second)
    world.receive(agent, m.Ready(RUN))
    assert not world.machine.agents.idle_for(second, 1)
    world.receive(agent, m.Ready(second))
    assert [each.run for each in world.all(do.Suggest)] == [RUN, second]


def test_a_gang_forms_only_when_all_its_agents_are_idle(world: World) -> None:
    world.begin(size=3)
    world.join("a")
    world.join("b")
    world.suggest()
    assert not world.running
    world.join("c")
    world.suggest()
    assert sorted(member.rank for member in world.running.values()) == [0, 1, 2]


def test_the_first_failure_of_a_gang_is_its_cause_and_stops_the_others(world: World) -> None:
    first, second = running(world, agents=2, size=2)
    commands = world.fail(first)
    assert commands == [do.Send(second, m.StopMember(Member(RUN, TrialId(0), Generation(1), Rank(1)), grace_s=0.0))]
    world.fail(second, FailureKind.SIGNAL)
    assert world.machine.last.trials[TrialId(0)].failure.kind is FailureKind.EXCEPTION


def test_a_gang_that_lost_a_member_forms_again_as_a_whole(world: World) -> None:
    first, second = running(world, agents=2, size=2)
    world.lose(first)
    world.fail(second, FailureKind.SIGNAL)
    assert world.status(0) == "queued"
    world.join("c")
    assert {member.generation for member in world.running.values()} == {2}
    assert len(world.running) == 2
