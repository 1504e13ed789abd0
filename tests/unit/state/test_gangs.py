"""Gangs: formed in two phases, ended by their first cause, and formed again from the newest checkpoint."""

import pytest

from sparktrain.base.ids import AgentId, Generation, Member, Rank, TrialId
from sparktrain.config.gang_spec import Role
from sparktrain.state import agent_messages as m
from sparktrain.state import commands as do
from sparktrain.state import events as on
from sparktrain.state.gangs import timeouts
from sparktrain.state.gangs.gang import GangStatus
from sparktrain.state.outcome import Failure, FailureKind, Outcome, Report
from sparktrain.state.records import SaveFailed, TrialConcluded, TrialReported
from sparktrain.state.run_machine import CAUSE_TIMEOUT_S
from sparktrain.state.sweep import REPORT_INTERVAL_S
from tests.unit.state.gangs import by_rank, gang, run, trial
from tests.unit.state.world import RUN, World


@pytest.fixture
def world() -> World:
    return World(cases=1)


def test_members_are_told_all_places_once_each_holds_a_port(world: World) -> None:
    world.begin(size=2)
    world.join("a")
    world.join("b")
    world.suggest()
    first, second = by_rank(world)
    assert world.reserve(first, 4001) == []
    sent = world.reserve(second, 4002)
    assert [(each.agent, each.message.member.rank) for each in sent] == [(first, 0), (second, 1)]
    assert [(place.host, place.port, place.role) for place in sent[0].message.places] == [
        ("host-a", 4001, Role.CHIEF),
        ("host-b", 4002, Role.WORKER),
    ]
    assert sent[0].message.places == sent[1].message.places
    assert world.reserve(second, 4003) == []


def test_what_a_member_shares_goes_to_all_others_of_its_generation(world: World) -> None:
    world.begin(size=3)
    for name in "abc":
        world.join(name)
    world.suggest()
    agents = by_rank(world)
    share = on.AgentSent(world.at, agents[0], m.MemberShared(world.running[agents[0]], "address", b"1"))
    assert [type(each) for each in world.feed(share)] == [do.Refused]
    for agent in agents:
        world.reserve(agent)
    passed = world.feed(share)
    assert [each.agent for each in passed] == agents[1:]
    assert {(each.message.key, each.message.value) for each in passed} == {("address", b"1")}
    stale = Member(RUN, TrialId(0), Generation(0), Rank(0))
    assert [type(each) for each in world.receive(agents[0], m.MemberShared(stale, "x", b""))] == [do.Refused]
    for agent in agents:
        world.enter(agent)
    assert len(world.feed(share)) == 2, "members share which operations of the ring they have called"


def test_a_gang_sits_on_as_few_hosts_as_possible(world: World) -> None:
    world.begin(size=2)
    for name, host in (("a", "x"), ("b", "y"), ("c", "y")):
        world.feed(on.AgentJoined(world.at, AgentId(name), 0, host))
        world.receive(AgentId(name), m.Ready(RUN))
    world.suggest()
    assert by_rank(world) == ["b", "c"]


def test_members_that_do_not_train_sit_where_no_gpu_is(world: World) -> None:
    world.begin(roles=(Role.CHIEF, Role.WORKER, Role.PS, Role.EVALUATOR))
    for name, host, gpus in (("a", "x", 0), ("b", "x", 0), ("c", "y", 1), ("d", "x", 1)):
        world.feed(on.AgentJoined(world.at, AgentId(name), 0, host, gpus=gpus))
        world.receive(AgentId(name), m.Ready(RUN))
    world.suggest()
    assert by_rank(world) == ["c", "d", "a", "b"]


def test_a_member_alone_sits_where_a_gpu_is(world: World) -> None:
    world.begin()
    for name, gpus in (("a", 0), ("b", 1)):
        world.feed(on.AgentJoined(world.at, AgentId(name), 0, "x", gpus=gpus))
        world.receive(AgentId(name), m.Ready(RUN))
    world.suggest()
    assert by_rank(world)[0] == "b"


def test_a_member_that_does_not_join_is_named_with_its_host_and_agent(world: World) -> None:
    world.begin(size=3, recovers=True, join_timeout_s=60.0)
    for name in "abc":
        world.join(name)
    world.suggest()
    first, second, third = by_rank(world)
    world.reserve(first)
    world.reserve(second)
    world.tick(61)
    for agent in (first, second, third):
        world.fail(agent, FailureKind.STOPPED)
    [restart] = trial(world).restarts
    assert (restart.kind, restart.rank) == (FailureKind.LOST, 2)
    assert restart.cause == (
        "2 of 3 members joined within 60 s; missing: rank 2 on host-c, agent c, which has not loaded the training "
        "function"
    )


def test_a_port_that_is_lost_means_a_new_generation(world: World) -> None:
    world.begin(size=2)
    world.join("a")
    world.join("b")
    world.suggest()
    first, second = by_rank(world)
    world.reserve(first)
    world.reserve(second)
    world.fail(second, FailureKind.FORM)
    world.tick(CAUSE_TIMEOUT_S)
    world.fail(first, FailureKind.STOPPED)
    assert {member.generation for member in world.running.values()} == {2}
    assert trial(world).restarts[0].kind is FailureKind.FORM


# ---- causes


def test_a_broken_ring_waits_for_the_failure_that_broke_it(world: World) -> None:
    first, second, third = gang(world, size=3)
    assert world.fail(first, FailureKind.RING) == []
    stops = world.fail(second, FailureKind.MEMORY)
    assert [each.agent for each in stops] == [third]
    world.fail(third, FailureKind.RING)
    [restart] = trial(world).restarts
    assert (restart.kind, restart.rank, restart.host) == (FailureKind.MEMORY, 1, "host-a1")


def test_a_broken_ring_without_a_cause_ends_the_gang_after_a_moment(world: World) -> None:
    first, second = gang(world)
    world.fail(first, FailureKind.RING)
    stops = world.tick(CAUSE_TIMEOUT_S)
    assert [each.agent for each in stops] == [second]


def test_a_member_that_was_told_to_stop_is_no_cause(world: World) -> None:
    first, second = gang(world)
    world.fail(first, FailureKind.RING)
    world.tick(CAUSE_TIMEOUT_S)
    world.fail(second, FailureKind.STOPPED)
    assert trial(world).restarts[0].kind is FailureKind.RING


def test_an_exception_before_any_progress_is_the_result(world: World) -> None:
    first, second = gang(world)
    world.fail(second)
    world.fail(first, FailureKind.RING)
    assert world.status(0) == "failed"
    assert trial(world).failure == Failure(FailureKind.EXCEPTION, "failed by exception", rank=1, host="host-a1")


def test_an_exception_after_progress_is_tried_again_until_it_repeats(world: World) -> None:
    agents = gang(world)
    for generation, step in ((1, 10), (2, 20)):
        assert world.running[agents[0]].generation == generation
        world.write(agents[0], step)
        world.fail(agents[0])
        world.fail(agents[1], FailureKind.RING)
        if generation == 1:
            agents = by_rank(world)
            run(world, agents)
    assert world.status(0) == "failed"
    assert len(trial(world).restarts) == 1


def test_members_that_call_different_operations_are_not_tried_again(world: World) -> None:
    first, second = gang(world)
    world.step(first, 25)
    world.write(first, 20)
    world.fail(first, FailureKind.RING)
    world.fail(second, FailureKind.MISMATCH)
    assert world.status(0) == "failed"
    assert trial(world).failure.kind is FailureKind.MISMATCH
    assert trial(world).restarts == ()


@pytest.mark.parametrize(
    "kind", [FailureKind.LOST, FailureKind.KILLED, FailureKind.FORM, FailureKind.RING, FailureKind.CHECKPOINT]
)
def test_a_gang_that_is_lost_while_the_run_stops_is_not_formed_again(world: World, kind: FailureKind) -> None:
    first, second = gang(world)
    world.stop(grace_s=5.0)
    world.fail(first, kind)
    world.fail(second, FailureKind.RING)
    assert world.status(0) == "stopped"
    assert len(world.all(do.EndRun)) == 1


def test_crashes_use_up_the_restarts_and_each_cause_is_kept(world: World) -> None:
    agents = gang(world, max_retries=2)
    for kind in (FailureKind.MEMORY, FailureKind.SIGNAL, FailureKind.HANG):
        world.fail(agents[0], kind)
        world.fail(agents[1], FailureKind.RING)
        if world.running:
            agents = by_rank(world)
            run(world, agents)
    assert world.status(0) == "failed"
    assert [each.kind for each in trial(world).restarts] == [FailureKind.MEMORY, FailureKind.SIGNAL]
    assert trial(world).failure.kind is FailureKind.HANG


@pytest.mark.parametrize("recovers", [True, False])
def test_a_process_that_is_killed_from_outside_is_a_loss(world: World, recovers: bool) -> None:
    """Of an ordinary trial as of a gang."""
    world.begin(max_retries=2, recovers=recovers)
    agent = world.join("a")
    world.suggest()
    for _ in range(3):
        world.enter(agent)
        world.fail(agent, FailureKind.KILLED)
    assert world.status(0) == "lost"
    assert [each.kind for each in trial(world).restarts] == [FailureKind.KILLED] * 2


def test_a_crash_of_an_ordinary_trial_is_its_result(world: World) -> None:
    world.begin()
    agent = world.join("a")
    world.suggest()
    world.enter(agent)
    world.fail(agent, FailureKind.MEMORY)
    assert world.status(0) == "failed"


# ---- the cluster's roles


def test_servers_and_the_evaluator_end_with_the_members_that_train(world: World) -> None:
    world.begin(roles=(Role.CHIEF, Role.WORKER, Role.PS, Role.EVALUATOR))
    for name in "abcd":
        world.join(name)
    world.suggest()
    agents = by_rank(world)
    run(world, agents)
    stops = world.succeed(agents[0])
    assert [each.agent for each in stops] == agents[1:]
    for agent in agents[1:]:
        world.fail(agent, FailureKind.STOPPED)
    assert world.status(0) == "succeeded"


def test_workers_that_train_by_themselves_are_waited_for(world: World) -> None:
    world.begin(roles=(Role.CHIEF, Role.WORKER, Role.WORKER, Role.PS))
    for name in "abcd":
        world.join(name)
    world.suggest()
    agents = by_rank(world)
    run(world, agents)
    for worker in agents[1:3]:
        world.enter(worker, trains=True)
    assert world.succeed(agents[0]) == []
    assert world.succeed(agents[1]) == []
    stops = world.enter(agents[2])  # it joins its server
    assert [each.agent for each in stops] == agents[2:]
    for agent in agents[2:]:
        world.fail(agent, FailureKind.STOPPED)
    assert world.status(0) == "succeeded"


# ---- checkpoints


def test_a_checkpoint_of_the_chief_is_acknowledged_and_the_next_generation_begins_with_it(world: World) -> None:
    first, second = gang(world)
    world.step(first, 25)
    [ack] = world.write(first, 20)
    assert isinstance(ack.message, m.AckCheckpoint)
    assert ack.durable
    world.at += 5
    world.lose(second)
    world.fail(first, FailureKind.RING)
    world.join("c")
    starts = [each for each in world.all(do.PlaceMember) if each.member.generation == 2]
    assert [start.checkpoint for start in starts] == [ack.message.checkpoint] * 2
    world.at += 2
    run(world, by_rank(world))
    [restart] = trial(world).restarts
    assert (restart.resumed_from_step, restart.steps_lost, restart.seconds) == (20, 5, 2.0)


def test_a_checkpoint_of_another_rank_generation_or_an_older_step_is_refused(world: World) -> None:
    first, second = gang(world)
    world.write(first, 20)
    assert [type(each) for each in world.write(second, 30)] == [do.Refused]
    assert [type(each) for each in world.write(first, 20)] == [do.Refused]
    zombie = world.running[first]
    world.lose(first)
    world.fail(second, FailureKind.RING)
    world.join("c")
    late = on.AgentSent(world.at, first, m.CheckpointStored(zombie, trial(world).checkpoints.retained[0]))
    assert [type(each) for each in world.feed(late)] == [do.Refused]
    assert [each.step for each in trial(world).checkpoints.retained] == [20]


def test_what_other_members_than_the_chief_report_is_not_the_trials(world: World) -> None:
    first, second = gang(world)
    world.report(first, step=7)
    assert [type(each) for each in world.report(second, step=9)] == [do.RecordReports]
    assert trial(world).attempt.last_report == Report(7, {"loss": 1.0})
    world.at += REPORT_INTERVAL_S
    world.report(second, step=10)
    assert [each.report.step for each in world.records if isinstance(each, TrialReported)] == [7]
    world.succeed(second)
    world.succeed(first)
    assert world.status(0) == "succeeded"


@pytest.mark.parametrize("failed", [False, True])
def test_what_the_chief_notices_is_the_trials_and_outlives_the_driver(world: World, failed: bool) -> None:
    first, second = gang(world)
    ended = Failure(FailureKind.RESULT, "no number") if failed else None
    world.end(second, Outcome(1.0, metrics={}, notices=("of another rank",)))
    world.end(first, Outcome(1.0, None if failed else {"accuracy": 1.0}, ended, notices=("the same batch",)))
    assert trial(world).outcome.notices == ("the same batch",)
    [concluded] = [each for each in world.records if isinstance(each, TrialConcluded)]
    assert concluded.notices == ("the same batch",)


def test_only_the_newest_and_the_best_are_kept(world: World) -> None:
    first, _ = gang(world)
    deleted = []
    for step, score in ((1, 0.5), (2, 0.9), (3, 0.7), (4, 0.6), (5, 0.8)):
        for command in world.write(first, step, score):
            deleted += [each.step for each in getattr(command, "checkpoints", ())]
    assert deleted == [1, 3]
    assert [each.step for each in trial(world).checkpoints.retained] == [2, 4, 5]


def test_a_damaged_checkpoint_is_passed_over_and_without_another_the_trial_ends(world: World) -> None:
    agents = gang(world, max_retries=9)
    world.write(agents[0], 10)
    world.write(agents[0], 20)
    world.fail(agents[0], FailureKind.MEMORY)
    world.fail(agents[1], FailureKind.RING)
    for expected in (20, 10):
        agents = by_rank(world)
        begun = [each.checkpoint.step for each in world.all(do.PlaceMember)[-2:]]
        assert begun == [expected, expected]
        world.fail(agents[1], FailureKind.CHECKPOINT)
        world.fail(agents[0], FailureKind.STOPPED)
    assert world.status(0) == "failed"
    summary = trial(world).failure.summary
    assert summary.startswith("none of the 2 checkpoints can be read (gen-1/manifest-20: ")
    assert "gen-1/manifest-10" in summary


# ---- sizes


def test_a_gang_waits_for_lost_agents_and_then_goes_on_smaller_where_it_may(world: World) -> None:
    first, second, third = gang(world, size=3, min_workers=2)
    world.lose(third)
    world.fail(first, FailureKind.RING)
    world.fail(second, FailureKind.RING)
    world.tick(timeouts.REPLACEMENT_S - 1)
    assert not world.running
    world.tick(2)
    starts = [each for each in world.all(do.PlaceMember) if each.member.generation == 2]
    assert [start.size for start in starts] == [2, 2]
    run(world, by_rank(world))
    assert world.machine.sweep.gangs[TrialId(0)].status is GangStatus.RUNNING


def test_a_gang_that_may_not_shrink_waits_until_the_run_gives_up(world: World) -> None:
    first, second = gang(world, start_timeout_s=60.0)
    world.lose(second)
    world.fail(first, FailureKind.RING)
    world.tick(62)
    [end] = world.all(do.EndRun)
    assert end.reason == "1 of 2 agents that a trial needs within 60 s"


def test_gangs_of_two_on_five_agents_do_not_block_each_other() -> None:
    world = World(cases=6)
    world.begin(size=2)
    for number in range(5):
        world.join(f"a{number}")
    for _ in range(20):
        world.suggest()
        for agent in by_rank(world):
            world.end(agent, Outcome(1.0, metrics={"accuracy": 0.5}))
    assert [str(each.status) for each in world.machine.last.trials.values()] == ["succeeded"] * 6


def test_a_snapshot_that_did_not_become_a_checkpoint_is_told_until_one_does(world: World) -> None:
    [agent] = gang(world, size=1)
    world.enter(agent)
    member = world.running[agent]
    world.receive(agent, m.CheckpointFailed(member, 10, "the store is full"))
    assert trial(world).checkpoints.unsaved == "step 10 was not checkpointed: the store is full"
    assert isinstance(world.records[-1], SaveFailed)
    world.write(agent, 20)
    assert trial(world).checkpoints.unsaved == ""
    [refused] = world.receive(AgentId("other"), m.CheckpointFailed(member, 30, "late"))
    assert isinstance(refused, do.Refused)
