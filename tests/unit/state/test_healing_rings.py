"""A ring that loses one member keeps the processes of the others, where each of them can heal; else all restart."""

import pytest
from msgspec.structs import replace

from sparktrain.base.ids import AgentId, Generation, Member, Rank
from sparktrain.state import agent_messages as m
from sparktrain.state import commands as do
from sparktrain.state import events as on
from sparktrain.state.gangs import timeouts
from sparktrain.state.machine import Machine
from sparktrain.state.memory_snapshots import MemorySnapshot
from sparktrain.state.outcome import Failure, FailureKind, Loss, Outcome, Restart
from sparktrain.state.records import GangRestarted, LossRecorded, MemberRestarted
from sparktrain.state.restart import Decision
from tests.unit.state.gangs import by_rank, gang, trial
from tests.unit.state.ps_gangs import again, placed, whole
from tests.unit.state.test_growth import small
from tests.unit.state.test_recovery import successor
from tests.unit.state.world import LEASE_S, World

STEP = 20
JOIN_S = 40.0


def ring(world: World, size: int = 3, spare: int = 0, **limits: object) -> list[AgentId]:
    """The agents of a gang with members that train and can heal, by rank."""
    agents = gang(world, size, spare, **{"heals": True, "join_timeout_s": JOIN_S, **limits})
    for agent in agents:
        world.declare(agent)
        world.step(agent, STEP)
    return agents


def join_ring(world: World, number: int = 1, step: int = STEP) -> None:
    """The next process of the lost member reserves a port and enters; then all members have the same state."""
    [agent] = [agent for agent, member in world.running.items() if member.incarnation and member not in world.reserved]
    world.reserve(agent, 5000 + number)
    world.enter(agent)
    for member_agent in by_rank(world):
        world.heal(member_agent, number, step)
        world.declare(member_agent)


def live_gang(world: World):
    assert world.machine.sweep is not None
    return world.machine.sweep.gangs[trial(world).id]


def whole_restart(world: World) -> Restart:
    """The newest restart, of the whole gang, once its other members have ended."""
    assert whole(world)
    for agent in list(world.running):
        world.fail(agent, FailureKind.STOPPED)
    restart = trial(world).restarts[-1]
    assert not restart.alone
    return restart


@pytest.mark.parametrize("rank", [0, 1, 2])
@pytest.mark.parametrize("kind", [FailureKind.SIGNAL, FailureKind.MEMORY, FailureKind.EXIT, FailureKind.LOST])
def test_the_others_keep_their_processes_and_form_the_next_ring_with_the_next_one(rank: int, kind: FailureKind) -> None:
    world = World()
    agents = ring(world, spare=1)
    others = [agent for agent in agents if agent != agents[rank]]
    world.at = 3.0
    world.commands.clear()
    # Its agent reads that after the end of the process.
    world.receive(agents[rank], m.MemberStepped(world.running[agents[rank]], STEP, 0.0, called=STEP - 1))
    commands = world.fail(agents[rank], kind)
    broken = {each.agent: each.message for each in commands if isinstance(each, do.Send)}
    assert broken == {agent: m.Seating(member=world.running[agent], ring=1) for agent in others}
    [start] = placed(commands)
    assert commands[0].agent in others, "the others hear of it before anything else"
    assert (start.agent, start.port, start.ring, start.memory) == (agents[rank], 0, 1, None)
    assert start.member == Member(start.member.run, start.member.trial, trial(world).generation, Rank(rank), 1)
    world.at = 4.0
    formed = world.reserve(agents[rank], 5000)
    messages = {each.agent: each.message for each in formed if isinstance(each, do.Send)}
    assert messages.keys() == set(agents), "the others reserve no port, and get the places again"
    assert {(message.ring, message.places[rank].port) for message in messages.values()} == {(1, 5000)}
    called = {message.member.rank: message.called for message in messages.values()}
    assert called == {Rank(number): STEP - 1 if number == rank else None for number in range(3)}
    world.enter(agents[rank])
    world.at = 4.5
    *first, last = agents
    for agent in first:
        assert world.heal(agent, 1, STEP) == []
        assert trial(world).restarts == ()
    joined = world.heal(last, 1, STEP)
    assert joined == [do.Send(agent, replace(messages[agent], called=None, joined=True)) for agent in agents]
    [restart] = trial(world).restarts
    assert (restart.rank, restart.kind, restart.seconds) == (rank, kind, 1.5)
    assert (restart.alone, restart.healed, restart.resumed_from_step, restart.steps_lost) == (True, True, STEP, 0)
    assert [each.restart for each in world.records if isinstance(each, MemberRestarted)] == [restart]
    assert not whole(world)
    for agent in agents:
        world.succeed(agent)
    assert world.status(0) == "succeeded"


def test_it_heals_again_and_again_as_long_as_it_makes_progress() -> None:
    world = World()
    agents = ring(world, max_retries=2)
    for number in range(1, 6):
        rank = number % 3
        world.fail(agents[rank], FailureKind.MEMORY)
        join_ring(world, number, STEP + number)
    assert [restart.steps_lost for restart in trial(world).restarts] == [0] * 5
    assert [live_gang(world).member(Rank(rank)).incarnation for rank in range(3)] == [1, 2, 2]
    assert trial(world).generation == 1
    assert not whole(world)


# ---- where it does not heal


@pytest.mark.parametrize(
    "kind",
    [
        FailureKind.EXCEPTION,
        FailureKind.RING,
        FailureKind.MISMATCH,
        FailureKind.HANG,
        FailureKind.CHECKPOINT,
        FailureKind.RESULT,
    ],
)
def test_only_the_loss_of_one_process_heals(kind: FailureKind) -> None:
    world = World()
    agents = ring(world)
    world.fail(agents[1], kind)
    assert not world.seatings("broken")


def test_a_gang_that_has_not_joined_restarts_as_a_whole() -> None:
    world = World()
    world.begin(size=2, recovers=True, heals=True)
    agents = [world.join(name) for name in ("a", "b")]
    world.suggest()
    for agent in agents:
        world.reserve(agent)
        world.declare(agent)
    world.enter(agents[0])
    world.fail(agents[1], FailureKind.MEMORY)
    assert whole(world)


def grown(world: World, seconds: float) -> list[AgentId]:
    """The agents of a gang of two that was asked to pause for a larger one, `seconds` ago."""
    agents = small(world, heals=True)
    for agent in agents:
        world.declare(agent)
    new = world.join("new")
    world.tick(timeouts.COOLDOWN_S)
    assert len(world.sent(m.AskSnapshot)) == len(agents)
    world.lose(new)
    world.tick(seconds)
    return agents


def test_members_that_could_not_grow_heal_again() -> None:
    world = World()
    [start] = placed(world.fail(grown(world, timeouts.PAUSE_INTERVAL_S)[1], FailureKind.MEMORY))
    assert start.may_grow, "as the others do, it looks for a request to pause"


# ---- what ends it


@pytest.mark.parametrize("kind", [FailureKind.MEMORY, FailureKind.RING, FailureKind.EXCEPTION])
def test_a_second_end_is_that_of_the_gang_with_the_first_loss_as_its_cause(kind: FailureKind) -> None:
    world = World()
    agents = ring(world)
    world.at = 3.0
    world.fail(agents[1], FailureKind.SIGNAL)
    world.at = 5.0
    world.fail(agents[2], kind)
    restart = whole_restart(world)
    assert (restart.rank, restart.kind) == (1, FailureKind.SIGNAL)
    assert restart.cause == f"failed by signal; it could not restart alone: rank 2 ended: failed by {kind}"
    assert trial(world).restart_history.failed_at == 3.0, "its cost counts from the first loss"


def test_a_next_process_that_dies_without_a_retry_has_both_causes() -> None:
    world = World()
    agents = ring(world, max_retries=1)
    world.fail(agents[1], FailureKind.SIGNAL)
    world.fail(agents[1], FailureKind.EXIT)
    assert whole_restart(world).cause == "failed by signal; it could not restart alone: failed by exit"


# ---- more losses before the ring is healed


def test_two_of_four_members_that_are_lost_at_once_come_into_one_ring() -> None:
    world = World()
    agents = ring(world, size=4)
    world.at = 1.0
    world.fail(agents[1], FailureKind.SIGNAL)
    world.at = 2.0
    broken = world.fail(agents[3], FailureKind.MEMORY)
    others = {agents[0], agents[2]}
    messages = {each.agent: each.message for each in broken if isinstance(each, do.Send)}
    assert messages == {agent: m.Seating(member=world.running[agent], ring=2) for agent in others}
    assert world.reserve(agents[1], 5001) == [], "the other next process has no port yet"
    formed = world.reserve(agents[3], 5003)
    forms = [each.message for each in formed if isinstance(each, do.Send)]
    assert {form.ring for form in forms} == {2}
    assert {form.member.rank for form in forms} == {0, 1, 2, 3}
    assert {tuple(place.port for place in form.places) for form in forms} == {(4000, 5001, 4000, 5003)}
    world.at = 4.0
    for agent in agents[:3]:
        world.heal(agent, 2, STEP)
    assert not trial(world).restarts
    world.heal(agents[3], 2, STEP)
    facts = [(each.rank, each.kind, each.seconds, each.healed, each.steps_lost) for each in trial(world).restarts]
    assert facts == [(1, FailureKind.SIGNAL, 3.0, True, 0), (3, FailureKind.MEMORY, 2.0, True, 0)]
    assert not live_gang(world).absences.by_rank


@pytest.mark.parametrize("kind", [FailureKind.SIGNAL, FailureKind.FORM, FailureKind.RING])
def test_a_next_process_that_is_lost_gets_another_one(kind: FailureKind) -> None:
    """What it sees of the loss of another member comes before the news of that."""
    world = World()
    agents = ring(world, size=2)
    world.at = 1.0
    world.fail(agents[1], FailureKind.SIGNAL)
    world.reserve(agents[1])
    world.heal(agents[0], 1, STEP)
    world.at = 3.0
    [start] = placed(world.fail(agents[1], kind))
    assert (start.ring, start.member.incarnation) == (2, 2)
    assert [message.ring for message in world.seatings("broken")] == [1, 2]
    world.reserve(agents[1])
    world.enter(agents[1])
    world.heal(agents[1], 2, STEP)
    assert not trial(world).restarts, "rank 0 has joined the ring before alone"
    world.at = 4.0
    world.heal(agents[0], 2, STEP)
    first, second = trial(world).restarts
    assert (first.kind, first.seconds, first.healed) == (FailureKind.SIGNAL, 3.0, True)
    assert (second.kind, second.seconds, second.steps_lost) == (kind, 1.0, 0)
    assert [member.incarnation for member in trial(world).restart_history.alone] == [0, 1]


# ---- fencing


def test_what_the_lost_chief_still_sends_does_not_count() -> None:
    world = World()
    agents = ring(world)
    old = world.running[agents[0]]
    world.fail(agents[0], FailureKind.MEMORY)
    world.running[agents[0]] = old
    refused = [world.write(agents[0], STEP + 5), world.report(agents[0], 9), world.hold(agents[0], STEP)]
    stands = m.Standing(port=4000, heals=True, ring=1, step=STEP)
    late = [m.MemberStands(old, stands), m.MemberEnded(old, Outcome(1.0, metrics={}))]
    refused += [world.receive(agents[0], message) for message in late]
    assert [[type(each) for each in commands] for commands in refused] == [[do.Refused]] * 5
    assert trial(world).checkpoints.newest is None
    world.running[agents[0]] = replace(old, incarnation=1)
    join_ring(world)
    assert [type(each) for each in world.write(agents[0], STEP + 5)] == [do.Send]


@pytest.mark.parametrize("number", [0, 2])
def test_a_member_cannot_join_another_ring_than_the_next(number: int) -> None:
    world = World()
    agents = ring(world)
    world.fail(agents[1], FailureKind.MEMORY)
    world.reserve(agents[1])
    assert world.heal(agents[0], number, STEP) == []
    assert not live_gang(world).joined


def test_no_member_heals_where_no_ring_is_broken_or_can_form() -> None:
    world = World()
    agents = ring(world)
    assert world.heal(agents[0], 0, STEP) == []
    world.fail(agents[1], FailureKind.MEMORY)
    assert world.heal(agents[0], 1, STEP) == []


# ---- the rest of the state


def test_the_next_gang_resumes_from_a_snapshot_that_an_agent_still_holds() -> None:
    world = World()
    agents = ring(world)
    for agent in agents:
        world.hold(agent, STEP)
    assert world.machine._run is not None
    held = world.machine._run._memory.held
    world.fail(agents[0], FailureKind.MEMORY)
    assert held.of(trial(world).id).keys() == set(agents[1:]), "its agent drops what the next process does not need"
    join_ring(world)
    assert held.newest(trial(world).id) == MemorySnapshot(Generation(1), STEP, f"{agents[1]}-{STEP}")
    world.declare(agents[2], heals=False)
    world.fail(agents[1], FailureKind.MEMORY)
    for agent in list(world.running):
        world.fail(agent, FailureKind.STOPPED)
    starts = placed(world.commands)[-3:]
    assert {start.memory.step for start in starts} == {STEP}
    assert {start.ring for start in starts} == {0}


def test_a_driver_that_takes_over_in_the_middle_restarts_the_gang() -> None:
    world = World()
    agents = ring(world)
    world.write(agents[0], STEP)
    world.fail(agents[1], FailureKind.MEMORY)
    new = successor(world, size=3, recovers=True, heals=True)
    assert new.status(0) == "queued"
    for name in ("x", "y", "z"):
        new.join(name)
    starts = placed(new.commands)
    assert [(start.member.generation, start.member.incarnation, start.ring) for start in starts] == [(2, 0, 0)] * 3


def test_a_driver_that_takes_over_knows_of_the_rings_that_healed() -> None:
    world = World()
    agents = ring(world)
    world.fail(agents[1], FailureKind.MEMORY)
    join_ring(world)
    [before] = trial(world).restarts
    new = successor(world, size=3, recovers=True, heals=True)
    assert trial(new).restarts[0] == before
    assert trial(new).generation == 1
    assert len(trial(new).restart_history.of_gang) == 1, "the loss of the driver"


def test_the_cluster_may_report_later_why_the_agent_was_lost() -> None:
    world = World(Machine(LEASE_S, 20.0))
    agents = ring(world, size=2, spare=1)
    world.lose(agents[1])
    join_ring(world)
    world.explain(agents[1], Loss.PREEMPTED)
    [restart] = trial(world).restarts
    assert (restart.loss, restart.healed) == (Loss.PREEMPTED, True)
    assert [each.place for each in world.records if isinstance(each, LossRecorded)] == [0]
    assert not [each for each in world.records if isinstance(each, GangRestarted)]


def test_a_sleep_of_the_driver_extends_the_wait() -> None:
    world = World()
    agents = ring(world)
    world.tick(1.0)
    world.lose(agents[1])
    world.at += 1000.0
    world.feed(on.Ticked(world.at))
    world.join("new")
    assert not whole(world)
    assert again(world, 1) == "new"


def test_decisions_count_the_loss_once() -> None:
    world = World()
    agents = ring(world, max_retries=1)
    world.fail(agents[1], FailureKind.MEMORY)
    lost = live_gang(world).absences.by_rank[Rank(1)].failure
    assert world.machine.sweep is not None
    assert world.machine.sweep.decide(trial(world), live_gang(world), Failure(lost.kind, "x")) is Decision.FAIL
