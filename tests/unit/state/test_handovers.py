"""A member of a drained agent moves to a process that is prepared elsewhere, while the others keep theirs."""

import pytest
from msgspec.structs import replace

from sparktrain.base.ids import AgentId, Member, Rank
from sparktrain.state import agent_messages as m
from sparktrain.state import commands as do
from sparktrain.state import events as on
from sparktrain.state.losses.handovers import LEAVE_TIMEOUT_S, READY_TIMEOUT_S
from sparktrain.state.losses.prepared import END_TIMEOUT_S
from sparktrain.state.outcome import Failure, FailureKind, Outcome
from sparktrain.state.records import DrainCompleted, MemberRestarted
from sparktrain.state.seats.policies import SETTLE_TIMEOUT_S
from tests.unit.state.gangs import by_rank, trial
from tests.unit.state.test_healing_rings import STEP, live_gang, ring
from tests.unit.state.world import RUN, World, stage_of


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


def test_a_drain_of_a_gang_without_memory_checkpoints_is_complete_when_its_member_has_moved() -> None:
    world = World()
    agents = ring(world, 2, spare=1)
    world.drain(f"host-{agents[0]}")
    [start] = [each for each in world.all(do.PlaceMember) if each.prepared]
    world.prepare(start.agent)
    world.tick(0.1)
    assert not of(world, DrainCompleted)
    move(world, agents, 0, start.agent, STEP)
    world.tick(0.1)
    assert of(world, DrainCompleted)


def test_without_an_idle_agent_the_gang_pauses() -> None:
    world = World()
    agents = ring(world, 2)
    for agent in agents:
        world.hold(agent, STEP)
    world.drain(f"host-{agents[1]}")
    assert not [each for each in world.all(do.PlaceMember) if each.prepared]
    assert len(world.sent(m.AskSnapshot)) == 2


@pytest.mark.parametrize("offered", [False, True])
def test_a_process_that_fails_does_not_disturb_the_gang_and_the_gang_pauses_instead(offered: bool) -> None:
    world = World()
    agents, prepared = drained(world)
    if offered:
        world.prepare(prepared)
    world.fail(prepared)
    withdrawn = {agent: (offer.ring, offer.moving) for agent, offer in offers(world).items()}
    assert withdrawn == (dict.fromkeys(agents, (0, None)) if offered else {})
    assert not world.sent(m.StopMember)
    assert not trial(world).restarts
    world.tick(0.1)
    assert len(world.sent(m.AskSnapshot)) == 2, "the way of a gang that cannot move"
    assert len([each for each in world.all(do.PlaceMember) if each.prepared]) == 1


def test_a_member_that_cannot_change_its_ring_withdraws_the_offer_also_where_it_heals_again_at_once() -> None:
    world = World()
    agents, prepared = drained(world)
    world.prepare(prepared)
    world.declare(agents[0], heals=False)
    world.declare(agents[0])
    assert {agent: offer.moving for agent, offer in offers(world).items()} == dict.fromkeys(agents)
    assert [stop.member for stop in world.sent(m.StopMember)] == [world.running[prepared]]
    world.tick(0.1)
    assert len(world.sent(m.AskSnapshot)) == 2


@pytest.mark.parametrize(("offered", "limit_s"), [(False, READY_TIMEOUT_S), (True, LEAVE_TIMEOUT_S)])
def test_a_process_that_is_late_is_ended(offered: bool, limit_s: float) -> None:
    world = World()
    agents, prepared = drained(world, hang_timeout_s=1000.0)
    if offered:
        world.prepare(prepared)
    world.tick(limit_s - 1)
    assert not world.sent(m.StopMember)
    world.tick(2)
    [stop] = world.sent(m.StopMember)
    assert stop.member == world.running[prepared]
    assert len(world.sent(m.AskSnapshot)) == 2
    world.tick(END_TIMEOUT_S + 1)
    [dropped] = world.all(do.DropAgent)
    assert dropped.agent == prepared, "it does not end"
    assert set(world.running) == set(agents)


def test_a_loss_of_its_agent_withdraws_the_offer() -> None:
    world = World()
    agents, prepared = drained(world)
    world.prepare(prepared)
    world.lose(prepared)
    assert {agent: offer.moving for agent, offer in offers(world).items()} == dict.fromkeys(agents)
    assert live_gang(world).fault.first is None


def test_when_the_member_is_lost_before_it_leaves_the_process_that_waits_takes_its_place() -> None:
    world = World()
    agents, prepared = drained(world)
    world.prepare(prepared)
    commands = world.lose(agents[1])
    assert [each.message for each in commands if isinstance(each, do.Send) and each.agent == agents[0]] == [
        m.Seating(member=world.running[agents[0]], ring=2),
        m.Seating(member=world.running[agents[0]], places=live_gang(world).places, ring=2),
    ]
    for agent in (agents[0], prepared):
        world.heal(agent, 2, STEP)
    [restart] = trial(world).restarts
    assert (restart.kind, restart.drained, restart.healed) == (FailureKind.LOST, False, True)


@pytest.mark.parametrize("offered", [False, True])
def test_when_another_member_is_lost_the_process_is_ended_and_the_member_moves_later(offered: bool) -> None:
    world = World()
    agents, prepared = drained(world)
    spare = world.join("spare")
    if offered:
        world.prepare(prepared)
    world.fail(agents[0], FailureKind.MEMORY)
    assert [stop.member for stop in world.sent(m.StopMember)] == [world.running[prepared]]
    world.fail(prepared, FailureKind.STOPPED)
    [lost] = [each for each in world.all(do.PlaceMember) if each.ring]
    world.reserve(lost.agent, 5000)
    for agent in (lost.agent, agents[1]):
        world.heal(agent, lost.ring, STEP)
        world.declare(agent)
    world.tick(0.1)
    [_, second] = [each for each in world.all(do.PlaceMember) if each.prepared]
    assert second.member.incarnation == 2, "no two processes have the same number"
    assert second.agent in (prepared, spare)


@pytest.mark.parametrize("steps", [True, False])
def test_two_drained_members_move_one_after_the_other(steps: bool) -> None:
    world = World()
    agents = ring(world, 3, spare=2)
    for agent in agents:
        world.hold(agent, STEP)
    for number, agent in enumerate(agents[:2]):
        world.drain(f"host-{agent}", request=str(number))
    [first] = [start for start in world.all(do.PlaceMember) if start.prepared]
    world.prepare(first.agent)
    member = world.running[agents[0]]
    world.leave_ring(agents[0], 1, STEP)
    del world.running[agents[0]]
    end_as_moved(world, agents[0], member)
    for agent in by_rank(world):
        world.heal(agent, 1, STEP)
    world.tick(SETTLE_TIMEOUT_S - 1)
    assert not world.sent(m.AskSnapshot), "the first process has made no step"
    if steps:
        world.declare(first.agent)
        world.tick(0.1)
        [_, second] = [start for start in world.all(do.PlaceMember) if start.prepared]
        assert (second.member.rank, second.member.incarnation) == (1, 1)
    world.tick(2)
    assert bool(world.sent(m.AskSnapshot)) != steps, "the way of a gang that cannot move"


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


def test_a_drain_that_is_cancelled_ends_the_process() -> None:
    world = World()
    agents, prepared = drained(world)
    world.prepare(prepared)
    world.feed(on.DrainAsked(world.at, RUN, "second", f"host-{agents[1]}", None, cancels=True))
    world.tick(0.1)
    assert [stop.member for stop in world.sent(m.StopMember)] == [world.running[prepared]]
    assert {agent: offer.moving for agent, offer in offers(world).items()} == dict.fromkeys(agents)
    assert live_gang(world).handovers.failures == 0, "the member can move later"


def test_a_member_that_has_left_can_send_nothing_more() -> None:
    world = World()
    agents, prepared = drained(world, 0)
    world.prepare(prepared)
    old = world.running[agents[0]]
    world.leave_ring(agents[0], 1, STEP)
    commands = world.write(agents[0], STEP + 1)
    assert [type(each) for each in commands] == [do.Refused]
    assert live_gang(world).member(Rank(0)) != old
