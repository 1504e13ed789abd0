"""A member of a drained agent moves to a process that is prepared elsewhere, while the others keep theirs."""

import pytest
from msgspec.structs import replace

from sparktrain.base.ids import AgentId, Member, Rank
from sparktrain.state import agent_messages as m
from sparktrain.state import commands as do
from sparktrain.state.outcome import Failure, FailureKind, Outcome
from sparktrain.state.records import DrainCompleted, MemberRestarted
from tests.unit.state.gangs import by_rank, trial
from tests.unit.state.test_healing_rings import STEP, live_gang, ring
from tests.unit.state.world import World, stage_of


def of(world: World, kind: type) -> list[object]:
    return [each for each in world.records if isinstance(each, kind)]


def drained(world: World, rank: int = 1, size: int = 2, **limits: object) -> tuple[list[AgentId], AgentId]:
    """The agents of a gang that holds snapshots, and the one with the process that is prepared for member `rank`."""
    agents = ring(world, size, spare=1, **limits)
    for agent in agents:
        world.hold(agent, STEP)
    world.drain(f"host-{agents[rank]}")
    [start] = [each for each in world.all(do.PlaceMember) if each.prepared]
    return agents, start.agent


def offers(world: World) -> dict[AgentId, m.Seating]:
    """The newest offer to each agent, or what has withdrawn it."""
    sent = [each for each in world.all(do.Send) if stage_of(each.message) in ("offered", "joined")]
    return {each.agent: each.message for each in sent}


def end_as_moved(world: World, agent: AgentId, member: Member) -> list[do.Command]:
    """The process of a member that has left its ring ends."""
    failure = Outcome(1.0, failure=Failure(FailureKind.LOST, "it continues elsewhere"))
    return world.receive(agent, m.MemberEnded(member, failure))


def move(world: World, agents: list[AgentId], rank: int, prepared: AgentId, step: int) -> None:
    """The member leaves the ring after `step`, and all join the next one."""
    member = world.running[agents[rank]]
    world.leave_ring(agents[rank], offers(world)[agents[rank]].ring, step)
    del world.running[agents[rank]]
    end_as_moved(world, agents[rank], member)
    for agent in by_rank(world):
        world.heal(agent, 1, step)
        world.declare(agent)


@pytest.mark.parametrize("rank", [0, 1, 2])
def test_the_next_process_is_prepared_while_all_train_and_takes_the_place_after_a_step(rank: int) -> None:
    world = World()
    agents, prepared = drained(world, rank, 3)
    [start] = [each for each in world.all(do.PlaceMember) if each.prepared]
    assert (start.member.rank, start.member.incarnation, start.ring) == (rank, 1, 0)
    assert not world.sent(m.AskSnapshot), "no member pauses"
    assert not world.seatings("broken")
    offered = world.prepare(prepared)
    assert {each.agent for each in offered if isinstance(each, do.Send)} == set(agents), "the leaving one too"
    offer = offers(world)[agents[0]]
    assert (offer.moving, offer.ring, offer.places[rank].port, offer.places[rank].host) == (
        rank, 1, 6000, f"host-{prepared}"
    )  # fmt: skip
    world.at = 5.0
    member = world.running[agents[rank]]
    [formed] = world.leave_ring(agents[rank], 1, STEP + 5)
    assert isinstance(formed, do.Send)
    assert formed.agent == prepared
    assert formed.message == replace(offer, member=start.member, moving=None), "the others know the places by the offer"
    del world.running[agents[rank]]
    end_as_moved(world, agents[rank], member)
    world.at = 5.3
    for agent in by_rank(world):
        assert not trial(world).restarts
        world.heal(agent, 1, STEP + 5)
    [restart] = trial(world).restarts
    assert (restart.rank, restart.host, restart.cause) == (rank, f"host-{agents[rank]}", "drained")
    assert (restart.drained, restart.healed, restart.alone, restart.paused) == (True, True, True, True)
    assert (restart.resumed_from_step, restart.steps_lost) == (STEP + 5, 0)
    assert restart.seconds == pytest.approx(0.3)
    assert trial(world).spent() == (0, 0)
    assert trial(world).generation == 1
    assert [(each.restart, each.incarnation) for each in of(world, MemberRestarted)] == [(restart, 1)]
    assert world.machine.agents.get(agents[rank]).member is None


def test_a_drain_is_complete_once_another_agent_holds_the_state_after_the_move() -> None:
    world = World()
    agents, prepared = drained(world)
    world.prepare(prepared)
    move(world, agents, 1, prepared, STEP + 5)
    world.tick(0.1)
    assert not of(world, DrainCompleted)
    world.hold(prepared, STEP + 6)
    world.tick(0.1)
    assert of(world, DrainCompleted)


def test_what_a_process_shares_before_it_has_its_place_reaches_no_member() -> None:
    world = World()
    _, prepared = drained(world)
    world.receive(prepared, m.MemberShared(world.running[prepared], "key", b""))
    assert not world.sent(m.PeerShared)


def test_a_process_that_waits_gets_what_the_members_share_to_form_its_ring() -> None:
    world = World()
    agents, prepared = drained(world)
    world.prepare(prepared)
    world.receive(agents[0], m.MemberShared(world.running[agents[0]], "r1/here/0", b""))
    assert [shared.member for shared in world.sent(m.PeerShared)] == [
        world.running[agents[1]],
        world.running[prepared],
    ]


def test_the_end_of_the_gang_ends_the_process_too_and_the_run_waits_for_it() -> None:
    world = World(cases=1)
    agents, prepared = drained(world)
    for agent in agents:
        world.succeed(agent)
    assert world.sent(m.StopMember)[-1].member == world.running[prepared]
    assert not world.all(do.EndRun)
    world.fail(prepared, FailureKind.STOPPED)
    assert len(world.all(do.EndRun)) == 1


def test_when_the_process_is_lost_while_the_ring_changes_the_ring_heals_without_a_retry() -> None:
    world = World()
    agents, prepared = drained(world)
    world.prepare(prepared)
    member = world.running[agents[1]]
    world.leave_ring(agents[1], 1, STEP)
    del world.running[agents[1]]
    end_as_moved(world, agents[1], member)
    world.fail(prepared, FailureKind.MEMORY)
    assert world.seatings("broken") == [m.Seating(member=world.running[agents[0]], ring=2)]
    [start] = [each for each in world.all(do.PlaceMember) if each.ring]
    assert (start.ring, start.member.rank) == (2, 1)
    world.reserve(start.agent, 5000)
    for agent in (agents[0], start.agent):
        world.heal(agent, 2, STEP)
    [restart] = trial(world).restarts
    assert (restart.cause, restart.healed, restart.steps_lost) == ("drained", True, 0)
    assert trial(world).spent() == (0, 1)


def test_a_member_that_has_left_can_send_nothing_more() -> None:
    world = World()
    agents, prepared = drained(world, 0)
    world.prepare(prepared)
    old = world.running[agents[0]]
    world.leave_ring(agents[0], 1, STEP)
    commands = world.write(agents[0], STEP + 1)
    assert [type(each) for each in commands] == [do.Refused]
    assert live_gang(world).member(Rank(0)) != old
