"""A driver adopts the gangs of its predecessor: their agents have held the members meanwhile."""

from typing import Any

import pytest
from msgspec.structs import replace

from sparktrain.base.ids import AgentId, Generation, Member, Rank, TrialId
from sparktrain.config.gang_spec import Role
from sparktrain.state import agent_messages as m
from sparktrain.state import commands as do
from sparktrain.state import events as on
from sparktrain.state.losses.adoption import ADOPT_S
from sparktrain.state.machine import Machine
from sparktrain.state.outcome import FailureKind
from sparktrain.state.records import DriverStarted, GangAdopted, GangRestarted
from sparktrain.state.recovery import folded
from sparktrain.state.restart import EXCUSED_LIMIT
from sparktrain.state.topology import MemberAddress
from tests.histories.test_gangs import check_journal
from tests.support.limits import run_limits
from tests.unit.state.test_handovers import drained, move
from tests.unit.state.test_healing_rings import STEP
from tests.unit.state.world import LEASE_S, RUN, World

STARTS = DriverStarted(plan="p", at=5.0, adopts=True)


def successor(world: World, start: DriverStarted = STARTS, **limits: Any) -> World:
    """The world of a driver that adopts, after the driver of `world` was lost."""
    new = World(Machine(LEASE_S), at=world.at, cases=world.cases)
    new.feed(on.RunStarted(new.at, RUN, run_limits(**limits), tuple(world.records), start))
    new.records = [*world.records, *new.records]
    return new


def held(member: Member, **changes: Any) -> m.HeldMember:
    """A member that trains; in a gang, at its place."""
    return m.HeldMember(member=member, entered=True, **({"step": 7, "seconds": 3.0} | changes))


def rejoin(world: World, name: str, offer: m.HeldMember, host: str = "") -> list[do.Command]:
    """An agent joins with the member that it has held; what follows."""
    agent = AgentId(name)
    commands = world.feed(on.AgentJoined(world.at, agent, 0, host or f"host-{name}", held=offer))
    prepares = any(isinstance(command, do.PrepareAgent) for command in commands)
    return [*commands, *world.receive(agent, m.Ready(RUN if prepares else None))]


def adopted(world: World) -> list[Member]:
    return [command.member for command in world.all(do.AdoptMember)]


def ended(world: World) -> list[Member]:
    return [message.member for message in world.sent(m.StopMember)]


@pytest.fixture
def trained() -> World:
    """Two trials that train on two agents, and a driver that is lost after the first checkpoint of trial 0."""
    world = World(cases=2)
    world.begin()
    agents = [world.join(name) for name in ("a", "b")]
    world.suggest()
    for agent in agents:
        world.enter(agent)
    world.write(agents[0], 10)
    return world


def gang_of(size: int, **limits: Any) -> World:
    """One gang that trains, each member on a host of its own."""
    world = World(cases=1)
    world.begin(size=size, **limits)
    agents = [world.join(f"a{number}") for number in range(size)]
    world.suggest()
    for agent in agents:
        world.reserve(agent, 4000 + world.running[agent].rank)
    for agent in agents:
        world.enter(agent)
    return world


def offers_of(world: World, **changes: Any) -> dict[AgentId, m.HeldMember]:
    """What the agents of a gang hold."""
    offers = {}
    for agent, member in world.running.items():
        role = Role.WORKER if member.rank else Role.CHIEF
        place = MemberAddress(f"host-{agent}", "127.0.0.1", 4000 + member.rank, role)
        offers[agent] = held(member, place=place, **changes)
    return offers


def test_a_trial_continues_in_its_generation(trained: World) -> None:
    member = trained.running[AgentId("a")]
    new = successor(trained)
    assert new.status(0) == new.status(1) == "running"
    rejoin(new, "c", held(member))
    assert adopted(new) == [member]
    assert new.machine.last is not None
    assert new.machine.last.trials[member.trial].generation == 1
    assert [record.trial for record in new.records if isinstance(record, GangAdopted)] == [0]
    check_journal(new)
    new.report(AgentId("c"), 20)
    new.succeed(AgentId("c"))
    assert new.status(0) == "succeeded"
    assert new.machine.last.trials[member.trial].restarts == ()
    assert not [command for command in new.all(do.PlaceMember) if command.member.trial == 0]
    check_journal(new)


def test_an_agent_that_joins_before_the_run_is_there_is_asked_then(trained: World) -> None:
    member = trained.running[AgentId("b")]
    new = World(Machine(LEASE_S), at=trained.at, cases=0)
    new.feed(on.AgentJoined(new.at, AgentId("c"), 0, "host", held=held(member)))
    new.receive(AgentId("c"), m.Ready(None))
    new.feed(on.RunStarted(new.at, RUN, run_limits(), tuple(trained.records), STARTS))
    assert adopted(new) == [member]


def test_a_trial_that_no_agent_offers_restarts_from_its_checkpoint_and_no_limit_counts_that(trained: World) -> None:
    new = successor(trained, max_retries=0)
    agent = new.join("c")
    assert not new.all(do.PlaceMember), "it waits"
    new.tick(ADOPT_S)
    [start] = new.all(do.PlaceMember)
    assert (start.agent, start.member.trial, start.member.generation) == (agent, 0, 2)
    assert start.checkpoint is not None
    restarts = [record for record in new.records if isinstance(record, GangRestarted)]
    assert [(record.trial, record.forgiven) for record in restarts] == [(1, True), (0, True)]
    check_journal(new)
    new.enter(agent)
    new.fail(agent, FailureKind.EXCEPTION)
    assert new.status(0) == "failed"


def late(member: Member) -> m.HeldMember:
    return held(replace(member, generation=Generation(member.generation - 1)))


def later(member: Member) -> m.HeldMember:
    return held(replace(member, generation=Generation(member.generation + 1)))


def again(member: Member) -> m.HeldMember:
    return held(replace(member, incarnation=1))


def beyond(member: Member) -> m.HeldMember:
    return held(replace(member, rank=Rank(1)))


def stopped(member: Member) -> m.HeldMember:
    return held(member, stopping=True)


@pytest.mark.parametrize("offer", [late, later, again, beyond, stopped])
def test_what_differs_from_the_journal_is_ended(trained: World, offer: Any) -> None:
    mine = offer(trained.running[AgentId("a")])
    new = successor(trained)
    commands = rejoin(new, "c", mine)
    assert adopted(new) == []
    [stop] = [command for command in commands if isinstance(command, do.Send)]
    assert (stop.message, stop.durable) == (m.StopMember(mine.member, 0.0), True)
    assert any(isinstance(command, do.PrepareAgent) for command in commands), "the agent is free"


def test_a_member_is_adopted_once(trained: World) -> None:
    member = trained.running[AgentId("a")]
    new = successor(trained)
    rejoin(new, "c", held(member))
    rejoin(new, "d", held(member))
    assert adopted(new) == [member]
    assert ended(new) == [member]


def test_nothing_is_adopted_once_the_trial_is_queued_again(trained: World) -> None:
    member = trained.running[AgentId("a")]
    new = successor(trained)
    new.tick(ADOPT_S)
    assert new.status(0) == "queued"
    rejoin(new, "c", held(member))
    assert adopted(new) == []
    assert ended(new) == [member]


def test_a_driver_of_other_agents_adopts_nothing(trained: World) -> None:
    member = trained.running[AgentId("a")]
    new = successor(trained, DriverStarted(plan="p", at=5.0))
    assert new.status(0) == "queued"
    rejoin(new, "c", held(member))
    assert adopted(new) == []


def test_a_stop_does_not_wait_for_agents(trained: World) -> None:
    new = successor(trained)
    new.stop()
    assert [new.status(trial) for trial in (0, 1)] == ["stopped", "stopped"]
    assert new.all(do.EndRun)
    check_journal(new)


def test_the_checkpoint_of_before_is_acknowledged_again(trained: World) -> None:
    member = trained.running[AgentId("a")]
    new = successor(trained)
    rejoin(new, "c", held(member))
    new.write(AgentId("c"), 10)
    assert [ack.checkpoint.step for ack in new.sent(m.AckCheckpoint)] == [10]
    assert not new.all(do.DeleteCheckpoints)


def test_a_gang_continues_once_agents_have_offered_all_of_it() -> None:
    before = gang_of(3)
    offers = offers_of(before)
    new = successor(before, size=3)
    for agent, offer in list(offers.items())[:2]:
        rejoin(new, f"{agent}", offer)
    assert adopted(new) == []
    rejoin(new, "a2", offers[AgentId("a2")])
    assert sorted(adopted(new)) == sorted(before.running.values())
    assert new.machine.sweep is not None
    [gang] = new.machine.sweep.gangs.values()
    assert [place.port for place in gang.places] == [4000, 4001, 4002]
    assert gang.attendance.running_since == new.at - 3.0
    check_journal(new)


def test_a_gang_without_one_member_restarts_as_a_whole() -> None:
    before = gang_of(3)
    offers = offers_of(before)
    new = successor(before, size=3)
    for agent in ("a0", "a2"):
        rejoin(new, agent, offers[AgentId(agent)])
    new.tick(ADOPT_S)
    assert adopted(new) == []
    assert sorted(ended(new)) == sorted(offers[AgentId(agent)].member for agent in ("a0", "a2"))
    assert new.status(0) == "queued"
    check_journal(new)


def test_an_agent_that_is_lost_again_has_offered_nothing() -> None:
    before = gang_of(2)
    offers = offers_of(before)
    new = successor(before, size=2)
    rejoin(new, "a0", offers[AgentId("a0")])
    new.lose(AgentId("a0"))
    rejoin(new, "a1", offers[AgentId("a1")])
    assert adopted(new) == []


def test_a_trial_that_is_lost_with_each_driver_ends() -> None:
    """As where its memory has the host of the coordinator killed, and another agent takes over by itself."""
    world = World(cases=1)
    world.begin(max_retries=0)
    for number in range(EXCUSED_LIMIT + 1):
        world.join(f"a{number}")
        world.suggest()
        assert world.status(0) == "running"
        world = successor(world, max_retries=0)
        world.tick(ADOPT_S + 1)
    assert world.status(0) == "lost"
    assert len(world.all(do.ConcludeTrial)) == len(world.all(do.EndRun)) == 1
    assert folded(world.records).trials[TrialId(0)].status == "lost"


def test_a_ring_heals_without_the_member_that_was_lost_with_the_driver() -> None:
    before = gang_of(3, heals=True)
    offers = offers_of(before, standing=m.Standing(heals=True, moves=True))
    new = successor(before, size=3, heals=True, max_retries=1)
    for agent in ("a0", "a1"):
        rejoin(new, agent, offers[AgentId(agent)])
    new.tick(ADOPT_S)
    assert sorted(adopted(new)) == [offers[AgentId(agent)].member for agent in ("a0", "a1")]
    assert [message.ring for message in new.seatings("broken")] == [1, 1]
    spare = new.join("b")
    [start] = new.all(do.PlaceMember)
    assert (start.agent, start.member.rank, start.member.incarnation, start.ring) == (spare, 2, 1, 1)
    new.reserve(spare, 5000)
    new.enter(spare)
    for agent in ("a0", "a1", "b"):
        new.heal(AgentId(agent), 1, 7)
    assert new.machine.last is not None
    [restart] = new.machine.last.trials[start.member.trial].restarts
    assert (restart.healed, restart.steps_lost, restart.rank) == (True, 0, 2)
    check_journal(new)


def test_a_gang_with_parameter_servers_of_its_own_restarts() -> None:
    roles = (Role.CHIEF, Role.WORKER, Role.PS)
    before = gang_of(3, roles=roles, restarts_servers=True)
    offers = offers_of(before)
    new = successor(before, roles=roles, restarts_servers=True)
    for agent, offer in offers.items():
        rejoin(new, agent, offer)
    assert adopted(new) == []
    assert len(ended(new)) == 3


def test_a_gang_whose_ring_has_not_formed_restarts() -> None:
    before = gang_of(2)
    new = successor(before, size=2)
    for agent, member in before.running.items():
        rejoin(new, agent, held(member))
    assert adopted(new) == []
    assert len(ended(new)) == 2


def test_a_ring_that_formed_again_trains_on_though_the_driver_was_lost_before_it_said_so() -> None:
    before = gang_of(2, heals=True)
    new = successor(before, size=2, heals=True)
    for agent, offer in offers_of(before, ring=3).items():
        rejoin(new, agent, offer)
    assert {(message.member, message.ring) for message in new.seatings("joined")} == {
        (member, 3) for member in before.running.values()
    }
    assert adopted(new)
    assert ended(new) == []


def test_a_gang_continues_after_one_of_its_members_has_moved() -> None:
    before = World()
    agents, prepared = drained(before)
    before.prepare(prepared)
    move(before, agents, 1, prepared, STEP)
    new = successor(before, size=2, heals=True)
    for agent, offer in offers_of(before, ring=1).items():
        rejoin(new, agent, offer)
    assert [(member.rank, member.incarnation) for member in adopted(new)] == [(0, 0), (1, 1)]
    assert [seating.places[1].host for seating in new.seatings("joined")] == [f"host-{prepared}"] * 2


def test_a_gang_with_a_member_that_waits_for_its_next_ring_restarts() -> None:
    before = gang_of(2, heals=True)
    new = successor(before, size=2, heals=True)
    for (agent, offer), ring in zip(offers_of(before).items(), (1, 2), strict=True):
        rejoin(new, agent, replace(offer, ring=ring))
    new.tick(ADOPT_S)
    assert adopted(new) == []
    assert new.status(0) == "queued"
