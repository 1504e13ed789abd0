"""Agents that are drained get no new member, and those that they have move without a lost step or a used retry."""

from typing import Any

import pytest

from sparktrain.base.ids import AgentId
from sparktrain.state import agent_messages as m
from sparktrain.state import commands as do
from sparktrain.state import events as on
from sparktrain.state.gangs import timeouts
from sparktrain.state.outcome import FailureKind, Loss
from sparktrain.state.records import DrainCompleted, DrainDecided
from sparktrain.state.recovery import recovered
from tests.support.limits import run_limits
from tests.unit.state.gangs import by_rank, gang, run, trial
from tests.unit.state.world import RUN, World


@pytest.fixture
def world() -> World:
    return World(cases=1)


def trained(world: World, size: int = 2, spare: int = 1, **limits: object) -> list[AgentId]:
    """The agents of a gang that holds snapshots of step 10."""
    agents = gang(world, size=size, spare=spare, **limits)
    for agent in agents:
        world.step(agent, 10)
        world.hold(agent, 10)
    return agents


def alone(world: World, spare: int = 1) -> AgentId:
    """The agent of a trial of one member, that is at step 10."""
    [agent] = gang(world, size=1, spare=spare)
    world.step(agent, 10)
    return agent


def asked(world: World) -> list[tuple[AgentId, bool]]:
    sent = [each for each in world.all(do.Send) if isinstance(each.message, m.AskSnapshot)]
    return [(each.agent, each.message.in_store) for each in sent]


def leave(world: World, agents: list[AgentId]) -> None:
    """The members end as the machine has commanded."""
    stops = [each for each in world.all(do.Send) if isinstance(each.message, m.StopMember)][-len(agents) :]
    assert [each.agent for each in stops] == agents
    assert {each.message.grace_s for each in stops} == {0.0}
    for agent in agents:
        world.fail(agent, FailureKind.STOPPED)


def of(world: World, kind: type) -> list[Any]:
    return [each for each in world.records if isinstance(each, kind)]


def test_a_gang_continues_on_other_agents_after_the_step_at_which_all_pause(world: World) -> None:
    first, second = trained(world)
    world.drain(f"host-{second}")
    assert asked(world) == [(first, False), (second, False)]
    world.hold(second, 12, paused=True)
    assert not of(world, DrainCompleted)
    world.hold(first, 12, paused=True)
    leave(world, [first, second])
    assert set(by_rank(world)) == {first, AgentId("a2")}
    assert by_rank(world)[0] == first, "it holds the snapshot"
    world.tick(0.4)
    run(world, by_rank(world))
    restart = trial(world).restarts[-1]
    assert (restart.rank, restart.host, restart.cause) == (1, f"host-{second}", "drained")
    assert (restart.resumed_from_step, restart.steps_lost, restart.seconds) == (12, 0, 0.4)
    assert (restart.paused, restart.drained) == (True, True)
    assert trial(world).spent() == (0, 0)
    assert [each.request for each in of(world, DrainCompleted)] == ["first"]


def test_a_smaller_gang_follows_without_the_wait_for_replacements(world: World) -> None:
    first, second = trained(world, spare=0, min_workers=1)
    world.drain(f"host-{second}")
    for agent in (first, second):
        world.hold(agent, 12, paused=True)
    before = world.at
    leave(world, [first, second])
    assert by_rank(world) == [first]
    assert world.at - before < timeouts.REPLACEMENT_S
    [start] = world.all(do.PlaceMember)[-1:]
    assert (start.size, start.memory.step) == (1, 12)


def test_without_agents_it_waits_at_its_checkpoint(world: World) -> None:
    first, second = trained(world, spare=0)
    world.drain(f"host-{second}")
    for agent in (first, second):
        world.hold(agent, 12, paused=True)
    leave(world, [first, second])
    world.tick(timeouts.REPLACEMENT_S + 1)
    assert not world.running
    new = world.join("new")
    assert set(by_rank(world)) == {first, new}
    assert [each.memory.step for each in world.all(do.PlaceMember)[-2:] if each.memory.checksum] == [12]


def test_a_trial_of_one_member_is_asked_for_a_checkpoint_and_continues_there(world: World) -> None:
    agent = alone(world)
    world.drain(f"host-{agent}")
    assert asked(world) == [(agent, True)]
    world.step(agent, 11)
    world.write(agent, 11)
    leave(world, [agent])
    assert by_rank(world) == [AgentId("a1")]
    [start] = world.all(do.PlaceMember)[-1:]
    assert start.checkpoint.step == 11
    restart = trial(world).restarts[-1]
    assert (restart.resumed_from_step, restart.steps_lost, restart.drained) == (11, 0, True)
    assert trial(world).spent() == (0, 0)


def test_a_trial_that_makes_no_checkpoint_is_left_to_finish(world: World) -> None:
    agent = alone(world, spare=0)
    world.drain(f"host-{agent}")
    world.tick(timeouts.PAUSE_INTERVAL_S - 1)
    assert len(asked(world)) == 1
    world.tick(2.0)
    assert len(asked(world)) == 2, "it may be between two calls of fit"
    world.succeed(agent)
    assert world.status(0) == "succeeded"
    assert len(of(world, DrainDecided)) == 1


def test_a_run_does_not_end_for_lack_of_agents_while_a_drained_one_finishes(world: World) -> None:
    [agent] = gang(world, size=1, start_timeout_s=20.0)
    world.drain(f"host-{agent}")
    world.tick(60.0)
    assert not world.all(do.EndRun)
    world.succeed(agent)
    assert world.status(0) == "succeeded"


def test_a_drained_agent_gets_no_new_member() -> None:
    world = World(cases=3)
    world.begin(size=1)
    first, second = world.join("a0"), world.join("a1")
    world.drain("host-a0")
    world.suggest()
    assert by_rank(world) == [second]
    assert len(of(world, DrainCompleted)) == 1, "it had none"
    world.join("a2", "host-a0")
    world.suggest()
    assert by_rank(world) == [second], "nor does one that joins there later"
    assert first not in world.running


def test_an_agent_is_drained_by_its_number() -> None:
    world = World(cases=2)
    world.begin(size=1)
    first, second = world.join("a0", "one", 0), world.join("a1", "one", 1)
    world.drain(agent=1)
    world.suggest()
    assert by_rank(world) == [first]
    assert [(each.host, each.agent) for each in of(world, DrainDecided)] == [("one", 1)]
    assert second not in world.running


@pytest.mark.parametrize(
    ("host", "agent", "problem"),
    [
        ("c", None, "the run has no agent on c: its agents are 1 on a.x, 0 on a.y, 2 on b.x; name one of these"),
        ("", 7, "the run has no agent 7: its agents are 1 on a.x, 0 on a.y, 2 on b.x; name one of these"),
        ("a", None, "a may be a.x or a.y: name one of them in full"),
    ],
)
def test_what_the_run_does_not_have_is_refused_with_what_it_has(
    world: World, host: str, agent: int | None, problem: str
) -> None:
    world.begin()
    for number, name in enumerate(("a.y", "a.x", "b.x")):
        world.join(name, name, number)
    world.drain(host, agent)
    assert [each.problem for each in of(world, DrainDecided)] == [problem]
    assert not world.machine.last.drains.active


def test_a_host_may_be_named_without_its_domain_and_a_request_counts_once(world: World) -> None:
    world.begin()
    world.join("a", "a.x")
    for _ in range(2):
        world.drain("a")
    assert [each.host for each in of(world, DrainDecided)] == ["a.x"]


def test_a_loss_while_members_pause_is_a_loss_and_spends_no_retry_on_a_drained_agent(world: World) -> None:
    first, second = trained(world)
    world.drain(f"host-{second}")
    world.hold(first, 12, paused=True)
    world.lose(second)
    world.fail(first, FailureKind.STOPPED)
    restart = trial(world).restarts[-1]
    assert (restart.kind, restart.drained, restart.loss) == (FailureKind.LOST, False, Loss.DECOMMISSIONED)
    assert restart.excused
    assert len(by_rank(world)) == 2


def test_another_driver_keeps_the_drain_of_a_host_and_forgets_that_of_an_agent(world: World) -> None:
    world.begin()
    world.join("a0", "one", 0)
    world.join("a1", "two", 1)
    world.drain("one", request="host")
    world.drain(agent=1, request="agent")
    later = World(cases=1)
    started = on.RunStarted(0.0, RUN, run_limits(), tuple(world.records))
    assert recovered(started).drains.hosts == {"one"}
    later.feed(started)
    later.join("b0", "one", 0)
    second = later.join("b1", "two", 1)
    later.suggest()
    assert by_rank(later) == [second]
    later.drain("one", request="host")
    assert not of(later, DrainDecided), "it is answered already"


def test_a_run_that_has_drained_agents_alone_says_so_when_it_ends(world: World) -> None:
    world.begin(start_timeout_s=20.0)
    world.join("a0")
    world.drain("host-a0")
    world.tick(30.0)
    [end] = world.all(do.EndRun)
    assert end.reason == "0 of 1 agents that a trial needs within 20 s; 1 more is drained"


def test_an_agent_with_notice_is_left_as_one_that_a_user_drains(world: World) -> None:
    first, second = trained(world)
    world.announce(second)
    assert asked(world) == [(first, False), (second, False)]
    for agent in (first, second):
        world.hold(agent, 12, paused=True)
    leave(world, [first, second])
    assert set(by_rank(world)) == {first, AgentId("a2")}
    restart = trial(world).restarts[-1]
    assert (restart.cause, restart.drained, restart.steps_lost) == ("drained: SIGTERM", True, 0)
    assert trial(world).spent() == (0, 0)
    world.announce(second, "again")
    assert [(each.agent, each.notice) for each in of(world, DrainDecided)] == [(0, "SIGTERM")]


@pytest.mark.parametrize("reported", [None, Loss.OTHER, Loss.PREEMPTED])
def test_an_announced_loss_uses_no_retry_whatever_the_cluster_reports(world: World, reported: Loss | None) -> None:
    [agent] = gang(world, size=1, spare=1, max_retries=0)
    world.announce(agent)
    world.lose(agent)
    if reported is not None:
        world.explain(agent, reported)
    restart = trial(world).restarts[-1]
    assert (restart.kind, restart.loss, restart.excused) == (FailureKind.LOST, Loss.ANNOUNCED, True)
    assert restart.cause.endswith("; that was announced (SIGTERM)")
    assert by_rank(world) == [AgentId("a1")]


@pytest.mark.parametrize("loss", [Loss.MEMORY, Loss.STORAGE])
def test_what_the_training_has_caused_counts_while_its_agent_leaves(loss: Loss, world: World) -> None:
    [agent] = gang(world, size=1, spare=1)
    world.announce(agent)
    world.lose(agent)
    world.explain(agent, loss)
    assert (trial(world).restarts[-1].loss, trial(world).spent()) == (loss, (1, 0))


def test_what_the_cluster_reports_of_a_drained_agent_uses_no_retry(world: World) -> None:
    [agent] = gang(world, size=1, spare=1)
    world.drain(f"host-{agent}")
    world.lose(agent)
    world.explain(agent, Loss.OTHER)
    assert (trial(world).restarts[-1].loss, trial(world).spent()) == (Loss.DECOMMISSIONED, (0, 1))


def test_the_next_run_of_a_pool_places_no_member_on_an_agent_with_notice() -> None:
    world = World(cases=1)
    first = world.join("a0")
    world.announce(first)
    second = world.join("a1")
    world.begin(size=1)
    for agent in (first, second):
        world.receive(agent, m.Ready(RUN))
    world.suggest()
    assert by_rank(world) == [second]
    [command] = world.feed(on.AgentSent(world.at, AgentId("gone"), m.AgentLeaves("SIGTERM")))
    assert isinstance(command, do.Refused)


def test_a_drain_that_is_cancelled_counts_no_more() -> None:
    world = World(cases=3)
    world.begin()
    agents = [world.join("a0", "one.x", 0), world.join("a1", "one.x", 1), world.join("a2", "two", 2)]
    world.drain("one", request="host")
    world.drain(agent=2, request="agent")
    world.announce(agents[0])
    world.drain("one", request="back", cancels=True)
    world.drain(agent=2, request="also back", cancels=True)
    world.suggest()
    assert set(world.running) == {agents[1], agents[2]}, "the first has notice, which no request cancels"
    again = recovered(on.RunStarted(0.0, RUN, run_limits(), tuple(world.records)))
    assert again.drains.hosts == set()
    assert not again.drains.open
    assert [each.host for each in of(world, DrainDecided) if each.cancels] == ["one.x", "two"]


@pytest.mark.parametrize(
    ("host", "agent", "problem"),
    [
        ("two", None, "two is not drained: drained are one.x, agent 2 on two.x; name one of these"),
        ("", 1, "agent 1 is not drained by its number: cancel the drain of its host, one.x"),
        ("", 7, "agent 7 is not drained by its number: drained are one.x, agent 2 on two.x; name one of these"),
    ],
)
def test_only_what_a_user_drains_can_be_cancelled(world: World, host: str, agent: int | None, problem: str) -> None:
    world.begin()
    for number, name in enumerate(("one.x", "one.x", "two.x")):
        world.join(f"a{number}", name, number)
    if host:
        world.drain(host, cancels=True, request="early")
        assert of(world, DrainDecided)[-1].problem == "two is not drained: nothing is drained"
    world.drain("one.x", request="1")
    world.drain(agent=2, request="2")
    world.drain(host and "elsewhere", agent, request="3", cancels=True)
    assert of(world, DrainDecided)[-1].problem == problem.replace("two is", "elsewhere is")
