"""Processes that wait for the loss of a member, and the place that each of them takes."""

import pytest

from sparktrain.base.ids import AgentId, Rank
from sparktrain.state import agent_messages as m
from sparktrain.state import commands as do
from sparktrain.state import events as on
from sparktrain.state.losses.handover import MOST_STANDBY_FAILURES
from sparktrain.state.losses.handovers import standby_line
from sparktrain.state.outcome import FailureKind, Outcome
from sparktrain.state.records import StandbysNoted
from sparktrain.state.recovery import recovered
from tests.support.limits import run_limits
from tests.unit.state.gangs import gang, trial
from tests.unit.state.ps_gangs import whole
from tests.unit.state.test_handovers import end_as_moved, offers
from tests.unit.state.test_healing_rings import JOIN_S, STEP, live_gang, ring
from tests.unit.state.world import RUN, World, seatings_in


def waiting(
    world: World, size: int = 2, standby: int = 1, spare: int | None = None, *, bound: bool = False, **limits: object
) -> tuple[list[AgentId], list[AgentId]]:
    """The agents of a gang, and those of the processes that are ready to take a place."""
    spares = standby if spare is None else spare
    agents = ring(world, size, spare=spares, standby=standby, **limits)
    processes = [start.agent for start in prepared(world)]
    for agent in processes:
        world.prepare(agent, bound=bound)
    return agents, processes


def prepared(world: World) -> list[do.PlaceMember]:
    return [start for start in world.all(do.PlaceMember) if start.prepared]


def formed(commands: list[do.Command]) -> dict[AgentId, m.Seating]:
    agents = {command.message: command.agent for command in commands if isinstance(command, do.Send)}
    return {agents[seating]: seating for seating in seatings_in(commands, "formed")}


def train_on(world: World, agents: list[AgentId], number: int) -> None:
    for agent in agents:
        world.heal(agent, number, STEP)
        world.declare(agent)


@pytest.mark.parametrize("rank", [0, 1, 2])
def test_a_process_that_waits_takes_the_place_of_any_member_at_once(rank: int) -> None:
    world = World()
    agents, [process] = waiting(world, 3)
    assert standby_line(live_gang(world), 1) == "standby: 1 ready, model built and step traced"
    commands = world.fail(agents[rank], FailureKind.SIGNAL)
    survivors = {agent for agent in agents if agent != agents[rank]}
    forms = formed(commands)
    assert forms.keys() == survivors | {process}
    assert {form.ring for form in forms.values()} == {1}
    assert {form.places[rank].host for form in forms.values()} == {f"host-{process}"}
    assert (forms[process].member.rank, forms[process].member.incarnation > 0) == (rank, True)
    train_on(world, [*survivors, process], 1)
    [restart] = trial(world).restarts
    assert (restart.rank, restart.healed, restart.steps_lost, restart.kind) == (rank, True, 0, FailureKind.SIGNAL)
    assert not whole(world)


def test_the_journal_has_what_waits_each_time_that_changes() -> None:
    world = World()
    agents, [process] = waiting(world, 2)
    world.fail(agents[1], FailureKind.SIGNAL)
    train_on(world, [agents[0], process], 1)
    world.tick(0.1)
    noted = [record.text for record in world.records if isinstance(record, StandbysNoted)]
    ready = "standby: 1 ready, model built and step traced"
    assert noted == ["standby: 0 of 1", "standby: 1 starting", ready, "standby: 0 of 1", "standby: 1 starting"]
    folded = recovered(on.RunStarted(0.0, RUN, run_limits(size=2, standby=1, heals=True), tuple(world.records)))
    assert folded.trials[trial(world).id].generation == 1


def test_the_agent_learns_the_name_of_the_member_before_the_ring_forms() -> None:
    world = World()
    agents, [process] = waiting(world, 2)
    name = world.running[process]
    lost = Rank(1 - name.rank)
    commands = world.fail(agents[lost], FailureKind.SIGNAL)
    sent = [command.message for command in commands if isinstance(command, do.Send) and command.agent == process]
    member = live_gang(world).member(lost)
    assert sent == [m.RenameMember(name, member), m.Seating(member=member, places=live_gang(world).places, ring=1)]


def test_the_end_of_a_process_under_its_former_name_is_the_loss_of_the_member() -> None:
    world = World(cases=1)
    agents, [process] = waiting(world, 2, spare=2)
    name = world.running[process]
    lost = Rank(1 - name.rank)
    world.fail(agents[lost], FailureKind.SIGNAL)
    del world.running[process]
    world.receive(process, m.MemberEnded(name, Outcome(1.0, failure=None)))
    assert world.machine.agents.get(process).member is None


def test_a_process_with_a_function_that_has_read_its_rank_takes_that_place_alone() -> None:
    world = World()
    agents, [process] = waiting(world, 2, bound=True)
    rank = world.running[process].rank
    assert standby_line(live_gang(world), 1).endswith(f"for rank {rank} alone, which the function has read")
    other = Rank(1 - rank)
    assert formed(world.fail(agents[other], FailureKind.SIGNAL)) == {}, "its next process starts on its own agent"
    assert [start.agent for start in world.all(do.PlaceMember) if start.ring] == [agents[other]]
    assert not world.sent(m.StopMember), "the process waits on"
    world.reserve(agents[other], 5000)
    train_on(world, agents, 1)
    assert process in formed(world.fail(agents[rank], FailureKind.SIGNAL))


def test_the_loss_of_a_process_costs_nothing_and_another_one_starts() -> None:
    world = World(cases=1)
    _, [process] = waiting(world, 2, spare=2)
    world.lose(process)
    assert not trial(world).restarts
    assert trial(world).spent() == (0, 0)
    assert not world.seatings("broken")
    assert len(prepared(world)) == 2


def test_processes_that_end_before_one_takes_a_place_start_a_few_times_only() -> None:
    world = World()
    ring(world, 2, spare=1, standby=1)
    for _ in range(MOST_STANDBY_FAILURES):
        world.fail(prepared(world)[-1].agent, FailureKind.MEMORY)
        world.tick(0.1)
    assert len(prepared(world)) == MOST_STANDBY_FAILURES
    assert "none" in standby_line(live_gang(world), 1)
    assert not trial(world).restarts


@pytest.mark.parametrize("rank", [0, 1])
def test_a_member_of_a_drained_host_moves_to_a_process_that_waits(rank: int) -> None:
    world = World()
    agents, [process] = waiting(world, 2)
    world.drain(f"host-{agents[rank]}")
    offer = offers(world)[agents[0]]
    assert (offer.moving, offer.places[rank].host) == (rank, f"host-{process}")
    member = world.running[agents[rank]]
    assert process in formed(world.leave_ring(agents[rank], offer.ring, STEP))
    del world.running[agents[rank]]
    end_as_moved(world, agents[rank], member)
    train_on(world, [agents[1 - rank], process], offer.ring)
    [restart] = trial(world).restarts
    assert (restart.drained, restart.rank, restart.steps_lost) == (True, rank, 0)


def test_two_members_that_are_lost_at_once_get_a_process_each() -> None:
    world = World()
    agents, processes = waiting(world, 4, standby=2)
    world.fail(agents[1], FailureKind.SIGNAL)
    taker = next(agent for agent in processes if live_gang(world).agents[1] == agent)
    world.fail(agents[2], FailureKind.SIGNAL)
    # The first one is on its way into a ring that is broken, and starts again.
    assert [stop.member.rank for stop in world.sent(m.StopMember)] == [1]
    world.fail(taker, FailureKind.STOPPED)
    [again] = [start for start in world.all(do.PlaceMember) if start.ring == 2]
    forms = formed(world.reserve(again.agent, 5000))
    assert {form.ring for form in forms.values()} == {2}
    assert {form.member.rank for form in forms.values()} == {0, 1, 2, 3}
    train_on(world, list(forms), 2)
    assert len(trial(world).restarts) == 2
    assert trial(world).generation == 1


def test_the_end_of_the_gang_ends_them_all_and_the_run_waits_for_it() -> None:
    world = World(cases=1)
    agents, processes = waiting(world, 2, standby=2)
    for agent in agents:
        world.succeed(agent)
    assert {stop.member for stop in world.sent(m.StopMember)} == {world.running[agent] for agent in processes}
    assert not world.all(do.EndRun)
    for agent in processes:
        world.fail(agent, FailureKind.STOPPED)
    assert len(world.all(do.EndRun)) == 1


def test_none_starts_before_all_members_can_take_one_and_none_without_the_option() -> None:
    world = World()
    ring(world, 2, spare=1)
    assert not prepared(world)
    assert standby_line(live_gang(world), 0) == ""
    other = World()
    agents = ring(other, 2, standby=1)
    other.declare(agents[0], heals=False)
    other.join("late")
    assert not prepared(other)
    other.declare(agents[0])
    other.tick(0.1)
    assert len(prepared(other)) == 1


def test_a_process_waits_for_the_place_of_a_member_in_a_loop() -> None:
    world = World()
    agents = gang(world, 2, 1, heals=True, join_timeout_s=JOIN_S, standby=1)
    for agent in agents:
        assert not prepared(world), "not before all heal"
        world.declare(agent, moves=False)
        world.step(agent, STEP)
    [process] = [start.agent for start in prepared(world)]
    world.prepare(process, bound=False)
    assert standby_line(live_gang(world), 1) == "standby: 1 ready, model built"
    forms = formed(world.fail(agents[1], FailureKind.SIGNAL))
    assert forms.keys() == {agents[0], process}
    for agent in forms:
        world.heal(agent, 1, STEP)
    [restart] = trial(world).restarts
    assert (restart.rank, restart.healed, restart.steps_lost) == (1, True, 0)
