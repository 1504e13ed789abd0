"""A ring that loses a member for which no agent is idle: the others form the next one at once, without it."""

import pytest

from sparktrain.base.ids import AgentId, Rank
from sparktrain.state import agent_messages as m
from sparktrain.state import commands as do
from sparktrain.state.gangs import timeouts
from sparktrain.state.records import MemberRestarted
from tests.unit.state.gangs import by_rank, gang, run, trial
from tests.unit.state.ps_gangs import placed, whole
from tests.unit.state.test_growth import asked, stopped, train
from tests.unit.state.test_healing_rings import JOIN_S, STEP, live_gang
from tests.unit.state.test_recovery import successor
from tests.unit.state.world import World, stage_of


def ring(world: World, size: int = 3, spare: int = 0, least: int | None = 1, **limits: object) -> list[AgentId]:
    """The agents of a gang with members that can continue with fewer, by rank."""
    limits = {"heals": True, "join_timeout_s": JOIN_S, "min_workers": least, **limits}
    agents = gang(world, size, spare, **limits)
    for agent in agents:
        world.declare(agent, shrinks=True)
        world.step(agent, STEP)
    return agents


def continue_in(world: World, number: int, step: int = STEP) -> None:
    """All members that have a process join the ring."""
    for agent in list(world.running):
        world.heal(agent, number, step)


@pytest.mark.parametrize("rank", [1, 2])
def test_the_others_continue_at_once_without_a_lost_agent(rank: int) -> None:
    world = World()
    agents = ring(world)
    others = [agent for agent in agents if agent != agents[rank]]
    world.at = 3.0
    commands = world.lose(agents[rank])
    sent = [(each.agent, stage_of(each.message)) for each in commands if isinstance(each, do.Send)]
    assert sent == [(agent, stage) for stage in ("broken", "formed") for agent in others]
    forms = [form for form in world.seatings("formed") if form.ring == 1]
    ranks = tuple(Rank(other) for other in range(3) if other != rank)
    assert [(form.member.rank, form.ranks) for form in forms] == [(other, ranks) for other in ranks]
    assert {tuple(place.host for place in form.places) for form in forms} == {
        tuple(f"host-{agent}" for agent in others)
    }
    world.at = 3.5
    world.heal(others[0], 1, STEP)
    assert trial(world).restarts == ()
    world.heal(others[1], 1, STEP - 1)
    [restart] = trial(world).restarts
    assert (restart.rank, restart.healed, restart.steps_lost, restart.seconds) == (rank, True, 0, 0.5)
    assert (restart.members, restart.full_size) == (2, 3)
    assert [each.restart for each in world.records if isinstance(each, MemberRestarted)] == [restart]
    assert not whole(world)
    assert not placed(commands)
    for agent in others:
        world.step(agent, STEP + 1)
        world.succeed(agent)
    assert world.status(0) == "succeeded"


def with_process(world: World, step: int = STEP + 10) -> AgentId:
    """A ring of three that has lost rank 1; the agent of a process that waits for its place."""
    agents = ring(world)
    world.lose(agents[1])
    continue_in(world, 1)
    new = world.join("new")
    assert new not in world.running, "it has just become smaller"
    world.tick(timeouts.COOLDOWN_S)
    train(world, [agents[0], agents[2]], step)
    [start] = [start for start in world.all(do.PlaceMember) if start.prepared]
    assert (start.agent, start.member.rank, start.size) == (new, 1, 3)
    world.prepare(new)
    return new


def test_the_next_process_takes_the_vacant_place_after_a_step_of_the_others() -> None:
    world = World()
    new = with_process(world)
    offers = world.seatings("offered")
    assert [(offer.member.rank, offer.moving, offer.ring) for offer in offers] == [(0, 1, 2), (2, 1, 2)]
    assert len(offers[0].places) == 3
    assert not asked(world), "the others do not pause"
    world.leave_ring(AgentId("a2"), 2, STEP + 12)
    assert live_gang(world).ranks == (0, 2), "the chief reports it"
    world.leave_ring(AgentId("a0"), 2, STEP + 12)
    assert live_gang(world).ranks == (0, 1, 2)
    [form] = [form for form in world.seatings("formed") if form.ring == 2]
    assert (form.member.rank, form.ranks, len(form.places)) == (1, (), 3)
    world.at += 0.5
    continue_in(world, 2, STEP + 12)
    restart = trial(world).restarts[-1]
    assert (restart.rank, restart.host, restart.cause) == (1, "host-new", "grows to 3 members: agents are there again")
    assert (restart.healed, restart.paused, restart.drained, restart.steps_lost) == (True, True, False, 0)
    assert (restart.members, restart.seconds) == (None, 0.5)
    for agent in ("a0", "a2", new):
        world.declare(AgentId(agent), shrinks=True)
        world.step(AgentId(agent), STEP + 13)
    world.lose(new)
    continue_in(world, 3, STEP + 13)
    assert trial(world).restarts[-1].members == 2, "and so on"


@pytest.mark.parametrize("back", [1, 2])
def test_both_members_come_back_to_two_vacant_places(back: int) -> None:
    world = World()
    agents = ring(world, size=4)
    for number, agent in enumerate(agents[:1:-1], 1):
        world.lose(agent)
        continue_in(world, number)
    assert live_gang(world).absences.vacant == {2, 3}
    train(world, agents[:2], STEP + 10)
    for number in range(back):
        world.join(f"new{number}")
    if back == 1:
        world.tick(timeouts.COOLDOWN_S)
        assert not asked(world), "so soon after the losses the next gang would wait for a fourth agent"
        world.tick(timeouts.REPLACEMENT_S - timeouts.COOLDOWN_S - 1.0)
        train(world, agents[:2], STEP + 20)
    pause_and_grow(world, agents[:2], STEP + 24)
    assert len(by_rank(world)) == 2 + back
    if back == 1:  # the other one comes later
        members = by_rank(world)
        for agent in members:
            world.declare(agent, shrinks=True)
        train(world, members, STEP + 30)
        for agent in members:
            world.hold(agent, STEP + 30)
        world.join("late")
        pause_and_grow(world, members, STEP + 44)
    assert (len(by_rank(world)), live_gang(world).size) == (4, 4)
    assert not live_gang(world).absences.vacant
    assert [restart.steps_lost for restart in trial(world).restarts] == [0] * (5 - back)


def pause_and_grow(world: World, members: list[AgentId], step: int) -> None:
    """The members are asked to pause, hold what they have after `step`, and end; the next gang trains."""
    before = len(world.sent(m.AskSnapshot))
    world.tick(timeouts.COOLDOWN_S)
    assert [ask.member.rank for ask in world.sent(m.AskSnapshot)[before:]] == list(range(len(members)))
    for agent in members:
        world.step(agent, step)
        world.hold(agent, step, paused=True)
    stopped(world, members)
    run(world, by_rank(world))


def test_the_next_driver_knows_what_was_left_out() -> None:
    world = World()
    agents = ring(world)
    world.lose(agents[1])
    continue_in(world, 1)
    assert trial(world).restart_history.incarnation(1) == 0, "the log of the lost process is its newest"
    [restart, _] = trial(successor(world)).restarts
    assert restart == trial(world).restarts[0]
