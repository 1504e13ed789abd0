"""A lost worker or evaluator of a gang with parameter servers restarts alone; other losses restart the whole gang."""

import pytest
from msgspec.structs import replace

from sparktrain.base.ids import AgentId, Generation, Member, Rank
from sparktrain.config.gang_spec import Role
from sparktrain.state import agent_messages as m
from sparktrain.state import commands as do
from sparktrain.state import events as on
from sparktrain.state.losses.member_restart import AGENT_TIMEOUT_S, END_TIMEOUT_S, MOVE_TIMEOUT_S
from sparktrain.state.machine import Machine
from sparktrain.state.outcome import Failure, FailureKind, Loss, Outcome, Restart
from sparktrain.state.records import GangRestarted, LossRecorded, MemberRestarted
from tests.unit.state.gangs import trial
from tests.unit.state.ps_gangs import EVALUATOR, OTHER, PS, ROLES, WORKER, again, cluster, come_back, placed, whole
from tests.unit.state.test_recovery import successor
from tests.unit.state.world import LEASE_S, World


def whole_restart(world: World) -> Restart:
    """The one restart, of the whole gang, once its other members have ended."""
    assert whole(world)
    for agent in list(world.running):
        world.fail(agent, FailureKind.STOPPED)
    [restart] = trial(world).restarts
    return restart


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


@pytest.mark.parametrize("rank", [0, PS])
def test_the_gang_needs_its_chief_and_its_parameter_servers(rank: int) -> None:
    world = World()
    world.fail(cluster(world)[rank], FailureKind.SIGNAL)
    assert whole(world)


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


def test_a_gang_that_has_not_joined_restarts_as_a_whole() -> None:
    world = World()
    world.begin(roles=ROLES, recovers=True, restarts_members=True)
    agents = [world.join(f"a{number}", "host", number) for number in range(len(ROLES))]
    world.suggest()
    world.fail(agents[WORKER], FailureKind.SIGNAL)
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


def test_an_idle_agent_on_the_host_takes_the_place_of_a_lost_one() -> None:
    world = World()
    agents = cluster(world, spare=1)
    [start] = placed(world.lose(agents[WORKER]))
    assert start.agent not in agents
    come_back(world, WORKER)
    assert not whole(world)
    [restart] = trial(world).restarts
    assert restart.alone


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


def test_the_gang_restarts_when_no_agent_comes_on_the_host() -> None:
    world = World()
    agents = cluster(world)
    world.join("elsewhere", "host-2")
    assert not placed(world.lose(agents[WORKER]))
    world.tick(AGENT_TIMEOUT_S - 1.0)
    assert not whole(world)
    world.tick(2.0)
    restart = whole_restart(world)
    assert (restart.alone, restart.rank) == (False, WORKER)
    assert "no agent on host was idle within 5 s" in restart.cause
    assert trial(world).generation == 2


def test_an_agent_that_rejoins_in_time_gets_its_member_back() -> None:
    world = World()
    agents = cluster(world)
    world.lose(agents[WORKER])
    world.tick(2.0)
    world.join("new", "host", WORKER)
    assert again(world, WORKER) == "new"
    come_back(world, WORKER)
    assert not whole(world)


def test_the_gang_restarts_with_the_cause_when_the_port_is_taken() -> None:
    world = World()
    agents = cluster(world)
    world.fail(agents[WORKER], FailureKind.SIGNAL)
    world.end(agents[WORKER], Outcome(0.0, failure=Failure(FailureKind.FORM, "port 4001 is taken")))
    restart = whole_restart(world)
    assert (restart.alone, restart.kind) == (False, FailureKind.SIGNAL)
    assert restart.cause == "failed by signal; it could not restart alone: port 4001 is taken"


def test_the_gang_restarts_when_the_member_does_not_join_in_time() -> None:
    world = World()
    world.fail(cluster(world, join_timeout_s=30.0)[WORKER], FailureKind.SIGNAL)
    world.tick(29.0)
    assert not whole(world)
    world.tick(2.0)
    assert whole(world)


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


def test_two_members_that_are_away_at_once_count_twice() -> None:
    world = World()
    agents = cluster(world, max_retries=1)
    world.fail(agents[WORKER], FailureKind.SIGNAL)
    world.fail(agents[OTHER], FailureKind.SIGNAL)
    assert whole(world)


# ---- hangs


def step_all(world: World, agents: list[AgentId], step: int, but: tuple[int, ...] = ()) -> None:
    for rank in (0, WORKER, OTHER):
        if rank not in but:
            world.step(agents[rank], step, 10.0)


def test_a_worker_that_hangs_while_the_others_train_restarts_alone() -> None:
    world = World()
    agents = cluster(world)
    step_all(world, agents, 1)
    for step in (2, 3, 4):
        world.tick(4.0)
        step_all(world, agents, step, but=(WORKER,))
    assert [each.member.rank for each in world.sent(m.StopMember)] == [WORKER]
    [start] = placed(world.fail(agents[WORKER], FailureKind.STOPPED))
    assert start.agent == agents[WORKER]
    come_back(world, WORKER)
    [restart] = trial(world).restarts
    assert (restart.kind, restart.alone) == (FailureKind.HANG, True)
    assert len(world.sent(m.StopMember)) == 1


def test_a_hung_worker_that_does_not_end_loses_its_agent() -> None:
    world = World()
    agents = cluster(world, spare=1)
    step_all(world, agents, 1)
    for step in range(2, 10):
        world.tick(4.0)
        step_all(world, agents, step, but=(WORKER,))
    assert [each.agent for each in world.all(do.DropAgent)] == [agents[WORKER]]
    assert world.at > END_TIMEOUT_S
    assert again(world, WORKER) not in agents


def test_when_all_hang_the_gang_restarts() -> None:
    world = World()
    agents = cluster(world)
    step_all(world, agents, 1)
    world.tick(15.0)
    assert len(world.sent(m.StopMember)) == len(ROLES)


# ---- what happens meanwhile


def test_the_gang_is_not_over_while_a_worker_is_away() -> None:
    world = World()
    agents = cluster(world)
    world.fail(agents[WORKER], FailureKind.SIGNAL)
    world.succeed(agents[OTHER])
    assert not whole(world)
    assert world.status(0) == "running"


@pytest.mark.parametrize("stage", ["away", "back, without a step"])
def test_the_gang_restarts_when_the_chief_ends_before_the_worker_trains(stage: str) -> None:
    """The steps that are left to the worker may need the chief: it makes the tokens of SyncReplicasOptimizer."""
    world = World()
    agents = cluster(world)
    world.step(agents[WORKER], 5)
    world.fail(agents[WORKER], FailureKind.SIGNAL)
    if stage != "away":
        come_back(world, WORKER)
    world.succeed(agents[0])
    assert whole(world)
    for agent in list(world.running):
        world.fail(agent, FailureKind.STOPPED)
    assert trial(world).restarts[-1].rank == WORKER
    assert trial(world).generation == 2


def test_the_chief_may_end_once_the_worker_trains() -> None:
    world = World()
    agents = cluster(world)
    world.step(agents[WORKER], 5)
    world.fail(agents[WORKER], FailureKind.SIGNAL)
    come_back(world, WORKER)
    world.step(agents[WORKER], 6)
    world.succeed(agents[0])
    assert not whole(world)


def test_the_end_of_training_does_not_wait_for_an_evaluator() -> None:
    world = World()
    agents = cluster(world, last_host="host-2")
    world.lose(agents[EVALUATOR])
    for rank in (0, WORKER, OTHER):
        world.succeed(agents[rank])
    assert [each.member.rank for each in world.sent(m.StopMember)] == [PS]
    world.fail(agents[PS], FailureKind.STOPPED)
    assert world.status(0) == "succeeded"
    assert trial(world).restarts == ()


def test_the_trial_ends_at_once_when_only_the_lost_evaluator_is_left() -> None:
    world = World()
    agents = cluster(world, last_host="host-2")
    world.lose(agents[EVALUATOR])
    for rank in (PS, WORKER, OTHER, 0):
        world.succeed(agents[rank])
    assert world.status(0) == "succeeded"


def test_another_loss_restarts_the_gang_with_the_first_cause() -> None:
    world = World()
    agents = cluster(world)
    world.lose(agents[WORKER])
    world.fail(agents[0], FailureKind.RING)
    restart = whole_restart(world)
    assert (restart.rank, restart.kind) == (WORKER, FailureKind.LOST)


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
    world.tick(AGENT_TIMEOUT_S - 1.0)
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


@pytest.mark.parametrize("rank", [WORKER, PS])
def test_a_member_that_may_move_restarts_on_any_host_and_the_others_learn_where(rank: int) -> None:
    world = World()
    agents = cluster(world, restarts_servers=True)
    world.join("elsewhere", "host-2")
    [start] = placed(world.lose(agents[rank]))
    assert (start.agent, start.member.rank, start.port) == ("elsewhere", rank, 0)
    world.reserve(AgentId("elsewhere"), 5000)
    again = world.seatings("formed")[len(ROLES) :]
    assert [each.member.rank for each in again] == list(range(len(ROLES)))
    [place] = {each.places[rank] for each in again}
    assert (place.host, place.port, place.role) == ("host-2", 5000, ROLES[rank])
    world.enter(AgentId("elsewhere"), trains=rank == WORKER)
    assert not whole(world)
    assert [(each.rank, each.alone) for each in trial(world).restarts] == [(rank, True)]


def test_a_member_that_may_move_stays_where_its_agent_lives() -> None:
    world = World()
    agents = cluster(world, restarts_servers=True)
    world.join("elsewhere", "host-2")
    [start] = placed(world.fail(agents[PS], FailureKind.SIGNAL))
    assert (start.agent, start.port) == (agents[PS], 4000 + PS)
    come_back(world, PS)
    assert len(world.seatings("formed")) == len(ROLES) + 1, "the others know its place"


def test_a_member_that_moves_learns_of_one_that_moves_at_the_same_time() -> None:
    world = World()
    agents = cluster(world, restarts_servers=True, max_retries=2)
    for number, rank in enumerate((WORKER, PS)):
        world.join(f"elsewhere-{number}", f"host-{number + 2}")
        assert placed(world.lose(agents[rank]))
    for number in range(2):
        world.reserve(AgentId(f"elsewhere-{number}"), 5000 + number)
    first, *_ = [each for each in world.seatings("formed")[len(ROLES) :] if each.member.rank == WORKER]
    assert first.places[PS].port == 0, "it has no address of the second"
    newest = {each.member.rank: (each.places[WORKER].port, each.places[PS].port) for each in world.seatings("formed")}
    assert newest == dict.fromkeys(range(len(ROLES)), (5000, 5001))
    assert not whole(world)


def test_the_gang_restarts_when_no_agent_comes_for_a_member_that_may_move() -> None:
    world = World()
    world.lose(cluster(world, restarts_servers=True)[PS])
    world.tick(MOVE_TIMEOUT_S - 1.0)
    assert not whole(world)
    world.tick(2.0)
    restart = whole_restart(world)
    assert "no agent was idle within 30 s" in restart.cause
