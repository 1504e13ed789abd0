"""Members of a gang with `spread` are on several hosts, and move there. No member starts on a host that is silent."""

from collections import Counter

import pytest

from sparktrain.base.ids import AgentId
from sparktrain.state import agent_messages as m
from sparktrain.state import commands as do
from sparktrain.state.agents import AgentState
from sparktrain.state.gangs import timeouts
from sparktrain.state.liveness import ANSWER_S
from sparktrain.state.placement import seat
from tests.unit.state.gangs import by_rank, run, trial
from tests.unit.state.test_handovers import move
from tests.unit.state.test_healing_rings import STEP
from tests.unit.state.world import World


def begun(hosts: str, size: int = 3, *, heals: bool = True, spread: bool = True) -> World:
    """A world with one agent for each letter of `hosts`, which names its host, and a gang that trains and can heal."""
    world = World(cases=1)
    world.begin(size=size, recovers=True, heals=heals, spread=spread)
    for number, host in enumerate(hosts):
        world.join(f"{host}{number}", host, number)
    world.suggest()
    agents = by_rank(world)
    run(world, agents)
    for agent in agents:
        if heals:
            world.declare(agent)
        world.step(agent, STEP)
    return world


def members_on(world: World) -> Counter[str]:
    """How many members each host has."""
    return Counter(agent[0] for agent in world.running)


def prepared(world: World) -> list[do.PlaceMember]:
    """The processes that were prepared for members that move."""
    return [start for start in world.all(do.PlaceMember) if start.prepared]


@pytest.mark.parametrize(
    ("hosts", "size", "most"),
    [
        ("aabbcc", 3, 1),
        ("aaabb", 4, 2),
        ("aaabbb", 2, 1),
        ("abbb", 3, 2),  # the others lack agents
        ("aaa", 3, 3),
    ],
)
def test_no_host_has_more_than_half_of_the_members_if_the_others_have_agents(hosts: str, size: int, most: int) -> None:
    assert max(members_on(begun(hosts, size)).values()) == most


@pytest.mark.parametrize(("most", "expected"), [(None, "a0 a2 a1 a3"), (2, "a0 a2 b4 b5")])
def test_members_of_one_pod_are_next_to_each_other_and_spread_is_over_nodes(most: int | None, expected: str) -> None:
    pods = (
        ("a", "10.0.0.1"),
        ("a", "10.0.0.2"),
        ("a", "10.0.0.1"),
        ("a", "10.0.0.2"),
        ("b", "10.0.1.1"),
        ("b", "10.0.1.2"),
    )
    agents = [AgentState(AgentId(f"{host}{slot}"), slot, host, address) for slot, (host, address) in enumerate(pods)]
    assert " ".join(agent.id for agent in seat(agents, 4, most=most)) == expected


def test_without_spread_members_are_on_as_few_hosts_as_possible() -> None:
    assert len(members_on(begun("aabbcc", 3, spread=False))) == 2


@pytest.mark.parametrize("hosts", ["aab", "aaa"])
def test_a_member_moves_once_another_host_has_an_agent(hosts: str) -> None:
    world = begun(hosts)
    agents = by_rank(world)
    [crowded] = [host for host, count in members_on(world).items() if count > 1]
    count = members_on(world)[crowded]
    world.join("c9", "c", 9)
    world.tick(timeouts.COOLDOWN_S / 2)
    assert not prepared(world), "the ring has just formed"
    world.tick(timeouts.COOLDOWN_S)
    [start] = prepared(world)
    rank = start.member.rank
    assert (start.agent, agents[rank][0]) == ("c9", crowded)
    assert rank == max(rank for rank, agent in enumerate(agents) if agent[0] == crowded), "the chief stays"
    world.prepare(start.agent)
    move(world, agents, rank, start.agent, STEP + 5)
    assert members_on(world)["c"] == 1
    [restart] = trial(world).restarts
    assert restart.cause == f"spread: its host had {count} of 3 members"
    assert (restart.drained, restart.steps_lost, restart.rank) == (True, 0, rank)
    assert trial(world).spent() == (0, 0)


def test_the_move_is_withdrawn_where_the_member_is_lost_before() -> None:
    world = begun("aab")
    agents = by_rank(world)
    world.join("c9", "c", 9)
    world.tick(2 * timeouts.COOLDOWN_S)
    [start] = prepared(world)
    lost = agents[start.member.rank]
    commands = world.lose(lost)
    assert m.StopMember(start.member, 0.0) in [each.message for each in commands if isinstance(each, do.Send)]


@pytest.mark.parametrize(("spread", "address"), [(True, "127.0.0.1"), (False, "127.0.0.1"), (True, "of another pod")])
def test_no_process_starts_on_a_host_that_others_cannot_reach(spread: bool, address: str) -> None:
    world = begun("abc", spread=spread)
    agents = by_rank(world)
    silent = agents[1]
    neighbor = world.join("x7", silent[0], 7, address)
    elsewhere = world.join("y8", "y", 8)
    doubts = m.MemberDoubts(world.running[agents[0]], (1,))
    asked = [command.agent for command in world.receive(agents[0], doubts) if isinstance(command, do.Send)]
    assert asked == [silent, neighbor]
    assert not world.receive(agents[0], doubts), "each agent is asked once"
    world.running.pop(silent)
    world.tick(ANSWER_S, beating=False)
    assert not world.all(do.DropAgent)
    world.tick(0.2, beating=False)
    assert {each.agent for each in world.all(do.DropAgent)} == {silent, neighbor}, "all agents of the host"
    assert world.running[elsewhere].rank == 1


def test_an_agent_of_a_doubted_host_that_is_heard_of_gets_members_again() -> None:
    world = begun("abc")
    agents = by_rank(world)
    neighbor = world.join("x7", agents[1][0], 7)
    world.receive(agents[0], m.MemberDoubts(world.running[agents[0]], (1,)))
    assert world.machine.agents.is_doubted(neighbor)
    world.receive(neighbor, m.Heartbeat())
    assert not world.machine.agents.is_doubted(neighbor)
    world.lose(agents[1])
    assert world.running[neighbor].rank == 1
