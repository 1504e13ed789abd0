"""Who keeps copies of parts of a state, which snapshots make a whole state, and who sends what."""

import pytest

from sparktrain.base.ids import AgentId
from sparktrain.state import agent_messages as m
from sparktrain.state import commands as do
from sparktrain.state.gangs.memory_parts import PartCopy, PartSend, PartTransfers, copies, numbered, transfers
from sparktrain.state.outcome import FailureKind
from tests.unit.state.gangs import by_rank, gang, trial
from tests.unit.state.world import World

FULL = (0, 1, 2, 3)
HYBRID = (0, 1, 0, 1)


def test_members_with_equal_digests_hold_one_part() -> None:
    assert numbered([7, 7, 7]) == (0, 0, 0)
    assert numbered([9, 4, 9, 4]) == HYBRID


@pytest.mark.parametrize(
    ("layout", "hosts", "expected"),
    [
        (FULL, "aabb", [(0, 0, 2), (1, 1, 3), (2, 2, 0), (3, 3, 1)]),  # each on the other host
        (FULL, "aaab", [(0, 0, 3), (1, 1, 3), (2, 2, 3), (3, 3, 0)]),
        (FULL, "aaaa", [(0, 0, 1), (1, 1, 2), (2, 2, 3), (3, 3, 0)]),  # one host: the loss of an agent
        (HYBRID, "aabb", []),  # a replica on each host
        (HYBRID, "abab", [(0, 0, 1), (1, 1, 2)]),  # both replicas of a part on one host
        (HYBRID, "aaaa", []),
        ((0, 0), "ab", []),
    ],
)
def test_each_part_outlasts_the_loss_of_any_host(
    layout: tuple[int, ...], hosts: str, expected: list[tuple[int, int, int]]
) -> None:
    planned = copies(layout, hosts)
    assert planned == [PartCopy(*each) for each in expected]
    holders = [(part, hosts[rank]) for rank, part in enumerate(layout)]
    holders += [(copy.part, hosts[copy.target]) for copy in planned]
    for lost in set(hosts) if len(set(hosts)) > 1 else ():
        assert {part for part, host in holders if host != lost} == set(layout)


def test_a_member_gets_the_part_of_its_rank_and_in_another_gang_all_parts() -> None:
    held = [(0, 3), (1, 0), (), (3, 2)]
    assert transfers(FULL, held) == [PartTransfers((PartSend(2, 3),), (part,), True) for part in FULL]
    smaller = PartTransfers(tuple(map(PartSend, FULL, (0, 1, 1, 0))), FULL, True)
    assert transfers(FULL, [(0, 3), (2, 1)]) == [smaller, smaller]
    assert transfers((0,), [(), (0,)]) == [PartTransfers((PartSend(0, 1),), (0,), False)] * 2


@pytest.fixture
def world() -> World:
    return World(cases=1)


def hold(world: World, agent: AgentId, step: int, *parts: int) -> None:
    """The agent of a member of a gang of four holds parts of the state after a step."""
    message = m.SnapshotHeld(world.running[agent], step, f"{agent}-{step}", layout=FULL, parts=parts)
    assert world.receive(agent, message) == []


def placed(world: World) -> dict[AgentId, tuple[int, str, PartTransfers | None] | None]:
    """Step, checksum and transfers of the members of the newest gang, by rank."""
    newest = trial(world).generation
    found = [each for each in world.commands if isinstance(each, do.PlaceMember) and each.member.generation == newest]
    return {
        each.agent: each.memory and (each.memory.step, each.memory.checksum, each.memory.transfers)
        for each in sorted(found, key=lambda each: each.member.rank)
    }


def restart(world: World, lost: list[AgentId], others: list[AgentId]) -> None:
    """Agents are lost with their members, and others join."""
    for agent in lost:
        world.lose(agent)
    for agent in others:
        world.fail(agent, FailureKind.RING)
    for number in range(len(lost)):
        world.join(f"new-{number}")


def test_the_part_of_a_lost_member_comes_from_its_copy(world: World) -> None:
    agents = gang(world, size=4)
    for rank, agent in enumerate(agents):
        hold(world, agent, 7, rank, (rank - 1) % 4)
    restart(world, [agents[2]], [agents[0], agents[1], agents[3]])
    bases = placed(world)
    assert {agent: base and base[:2] for agent, base in bases.items()} == {
        agent: (7, f"{agent}-7" if agent in agents else "") for agent in bases
    }
    ranks = list(bases)
    [sends] = {base[2].sends for base in bases.values() if base and base[2]}
    lacking = [rank for rank, agent in enumerate(ranks) if rank not in parts_of(agents, agent)]
    assert [send.part for send in sends] == lacking
    assert all(send.part in parts_of(agents, ranks[send.rank]) for send in sends)
    assert trial(world).restarts[-1].resumed_from_step == 7


def parts_of(agents: list[AgentId], agent: AgentId) -> set[int]:
    """What an agent of the first gang holds."""
    return {agents.index(agent), (agents.index(agent) - 1) % 4} if agent in agents else set()


def test_the_step_before_counts_where_only_some_have_the_newest(world: World) -> None:
    agents = gang(world, size=4)
    for step in (7, 8):
        for rank, agent in enumerate(agents[: 4 if step == 7 else 2]):
            hold(world, agent, step, rank, (rank - 1) % 4)
    restart(world, [], agents)
    assert {base and base[0] for base in placed(world).values()} == {7}


def test_the_store_is_read_where_a_part_has_no_holder_left(world: World) -> None:
    agents = gang(world, size=4)
    world.write(agents[0], 3)
    for rank, agent in enumerate(agents):
        hold(world, agent, 7, rank, (rank - 1) % 4)
    restart(world, agents[1:3], [agents[0], agents[3]])
    assert set(placed(world).values()) == {None}
    assert trial(world).restarts[-1].resumed_from_step == 3


def test_holders_get_their_ranks_again_though_their_host_lost_a_member(world: World) -> None:
    agents = gang(world, size=4, spare=3)
    for rank, agent in enumerate(agents):
        hold(world, agent, 7, rank, (rank - 1) % 4)
    restart(world, [], list(reversed(agents)))
    assert by_rank(world) == agents
    assert {base and base[2] for base in placed(world).values()} == {None}
