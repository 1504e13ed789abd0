"""A lost worker or evaluator of a gang with parameter servers restarts alone; other losses restart the whole gang."""

import pytest
from msgspec.structs import replace

from sparktrain.base.ids import Generation, Member, Rank
from sparktrain.config.gang_spec import Role
from sparktrain.state import agent_messages as m
from sparktrain.state import commands as do
from sparktrain.state import events as on
from sparktrain.state.gangs import timeouts
from sparktrain.state.machine import Machine
from sparktrain.state.outcome import FailureKind, Loss, Outcome
from sparktrain.state.records import GangRestarted, LossRecorded, MemberRestarted
from tests.unit.state.gangs import trial
from tests.unit.state.ps_gangs import EVALUATOR, OTHER, PS, ROLES, WORKER, cluster, come_back, placed, whole
from tests.unit.state.test_recovery import successor
from tests.unit.state.world import LEASE_S, World


@pytest.mark.parametrize("rank", [WORKER, OTHER, EVALUATOR])
@pytest.mark.parametrize("kind", [FailureKind.SIGNAL, FailureKind.MEMORY, FailureKind.EXIT, FailureKind.LOST])
def test_one_member_restarts_on_its_own_agent_at_its_port(rank: int, kind: FailureKind) -> None:
    world = World()
    agents = cluster(world, spare=1)
    world.at = 3.0
    [start] = placed(world.fail(agents[rank], kind))
    assert (start.agent, start.port) == (agents[rank], 4000 + rank)
    assert start.member == Member(start.member.run, start.member.trial, trial(world).generation, Rank(rank), 1)
    world.at = 4.5
    [form] = world.reserve(agents[rank], 4000 + rank)
    assert isinstance(form, do.Send)
    assert form.message == replace(world.seatings("formed")[0], member=start.member)
    world.enter(agents[rank], trains=ROLES[rank] is Role.WORKER)
    assert not whole(world)
    [restart] = trial(world).restarts
    assert restart.alone
    assert (restart.rank, restart.host, restart.kind, restart.seconds) == (rank, "host", kind, 1.5)
    assert [each.restart for each in world.records if isinstance(each, MemberRestarted)] == [restart]
    for agent in agents:
        if agent in world.running:
            world.succeed(agent)
    assert world.status(0) == "succeeded"


@pytest.mark.parametrize(
    "kind", [FailureKind.EXCEPTION, FailureKind.LOAD, FailureKind.MISMATCH, FailureKind.CHECKPOINT, FailureKind.RESULT]
)
def test_failures_that_are_not_of_one_process_are_those_of_the_gang(kind: FailureKind) -> None:
    world = World()
    world.fail(cluster(world)[WORKER], kind)
    assert whole(world)


@pytest.mark.parametrize(
    "limits",
    [
        {"restarts_members": False},
        {"max_retries": 0},
        {"roles": (Role.CHIEF, Role.WORKER, Role.WORKER, Role.WORKER, Role.WORKER)},
    ],
    ids=["data", "no restarts left", "no servers"],
)
def test_where_it_may_not_restart_alone_the_gang_does(limits: dict[str, object]) -> None:
    world = World()
    world.fail(cluster(world, **limits)[WORKER], FailureKind.SIGNAL)
    assert whole(world)


def test_messages_of_the_process_before_do_not_count() -> None:
    world = World()
    agent = cluster(world)[WORKER]
    old = world.running[agent]
    world.fail(agent, FailureKind.SIGNAL)
    late = [
        m.MemberStarted(old, 1, trains=True),
        m.MemberStands(old, m.Standing(port=4001)),
        m.MemberStepped(old, 99, 1.0),
        m.MemberShared(old, "key", b""),
        m.MemberEnded(old, Outcome(1.0, metrics={})),
    ]
    for message in late:
        assert [type(each) for each in world.receive(agent, message)] == [do.Refused], message
    assert world.machine.sweep is not None
    gang = world.machine.sweep.gangs[old.trial]
    assert (list(gang.absences.by_rank), gang.attendance.ended, gang.progress.paces) == ([WORKER], {}, {})
    come_back(world, WORKER)
    assert not gang.absences.by_rank


@pytest.mark.parametrize("explained", ["before it returns", "after it returned"])
def test_the_clusters_reason_excuses_a_restart_alone(explained: str) -> None:
    world = World(Machine(LEASE_S, 20.0))
    agents = cluster(world, spare=1)
    world.lose(agents[WORKER])
    if explained == "before it returns":
        world.explain(agents[WORKER])
    come_back(world, WORKER)
    if explained == "after it returned":
        world.explain(agents[WORKER])
        assert [each.place for each in world.records if isinstance(each, LossRecorded)] == [0]
    [restart] = trial(world).restarts
    assert (restart.alone, restart.loss, restart.excused) == (True, Loss.PREEMPTED, True)
    assert trial(world).spent() == (0, 1)


def test_restarts_alone_use_the_budget_of_the_trial() -> None:
    world = World()
    agents = cluster(world, max_retries=2)
    for _ in range(2):
        world.fail(agents[WORKER], FailureKind.SIGNAL)
        come_back(world, WORKER)
    world.fail(agents[OTHER], FailureKind.SIGNAL)
    assert whole(world)
    for agent in list(world.running):
        world.fail(agent, FailureKind.STOPPED)
    assert world.status(0) == "failed"


# ---- what happens meanwhile


def test_the_trial_ends_at_once_when_only_the_lost_evaluator_is_left() -> None:
    world = World()
    agents = cluster(world, last_host="host-2")
    world.lose(agents[EVALUATOR])
    for rank in (PS, WORKER, OTHER, 0):
        world.succeed(agents[rank])
    assert world.status(0) == "succeeded"


@pytest.mark.parametrize("stage", ["waiting", "starting"])
def test_a_stop_in_the_middle_ends_the_run_in_time(stage: str) -> None:
    world = World(cases=1)
    agents = cluster(world)
    if stage == "waiting":
        world.lose(agents[WORKER])
    else:
        world.fail(agents[WORKER], FailureKind.SIGNAL)
    world.stop(grace_s=3.0)
    if stage == "starting":
        world.at += 1.0
        [advice] = world.enter(agents[WORKER], trains=True)
        assert isinstance(advice, do.Send)
        assert isinstance(advice.message, m.Advise), "it had no process when the others were advised"
    world.tick(4.0)
    assert whole(world)
    assert len(world.all(do.PlaceMember)) == len(ROLES) + (stage == "starting")
    for agent in list(world.running):
        world.fail(agent, FailureKind.STOPPED)
    assert world.machine.sweep is None
    assert world.status(0) == "stopped"


def test_a_checkpoint_stays_while_a_member_that_restarts_may_read_it() -> None:
    world = World()
    agents = cluster(world)
    world.write(agents[0], 10)
    [start] = placed(world.fail(agents[WORKER], FailureKind.SIGNAL))
    assert start.checkpoint is not None
    assert start.checkpoint.step == 10
    world.write(agents[0], 20)
    world.write(agents[0], 30)
    assert not world.all(do.DeleteCheckpoints)
    come_back(world, WORKER)
    [deleted] = world.all(do.DeleteCheckpoints)
    assert [each.step for each in deleted.checkpoints] == [10]


def test_deadlines_move_with_a_suspended_coordinator() -> None:
    world = World()
    agents = cluster(world)
    world.tick(0.1)
    world.lose(agents[WORKER])
    world.at += 1000.0
    world.feed(on.Ticked(world.at))
    world.tick(timeouts.AGENT_S - 1.0)
    assert not whole(world)
    world.tick(2.0)
    assert whole(world)


# ---- the journal


def test_another_driver_knows_the_restarts_and_numbers_generations_as_before() -> None:
    world = World(cases=1)
    agents = cluster(world)
    world.write(agents[0], 10)
    world.fail(agents[WORKER], FailureKind.SIGNAL)
    come_back(world, WORKER)
    world.fail(agents[PS], FailureKind.SIGNAL)
    for agent in list(world.running):
        world.fail(agent, FailureKind.STOPPED)
    assert trial(world).generation == 2
    assert len([each for each in world.records if isinstance(each, GangRestarted)]) == 1
    new = successor(world, roles=ROLES)
    assert [each.alone for each in trial(new).restarts] == [True, False, False]
    assert [trial(new).restart_history.place_of(Generation(number)) for number in (1, 2, 3)] == [1, 2, None]
