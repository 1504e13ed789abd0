"""Where a member is in its gang."""

import pytest

from sparktrain.config.backends import Backend
from sparktrain.config.gang_spec import GangSpec, Role
from sparktrain.state.topology import Formation, MemberAddress


def formation(rank: int, *hosts: str) -> Formation:
    """Members on these hosts, by rank."""
    roles = [Role.CHIEF, *[Role.WORKER] * (len(hosts) - 1)]
    places = (
        MemberAddress(host, f"10.0.0.{host}", 4000 + n, role)
        for n, (host, role) in enumerate(zip(hosts, roles, strict=True))
    )
    return Formation(rank, tuple(places))


@pytest.mark.parametrize(
    ("hosts", "rank", "expected"),
    [
        ("12", 1, (0, 1, 1, 2)),
        ("11", 1, (1, 2, 0, 1)),
        ("1122", 3, (1, 2, 1, 2)),
        ("1212", 2, (1, 2, 0, 2)),
        ("112", 1, (1, 2, 0, 1)),
        ("112", 2, (0, 1, 1, 2)),
        ("122", 2, (1, 2, 0, 1)),
    ],
)
def test_ranks_within_hosts_and_across_them(hosts: str, rank: int, expected: tuple[int, ...]) -> None:
    mine = formation(rank, *hosts)
    assert (mine.local_rank, mine.local_size, mine.cross_rank, mine.cross_size) == expected


def test_every_place_in_the_grid_of_hosts_is_taken_once() -> None:
    all_of_them = [formation(rank, *"1212231") for rank in range(7)]
    grid = {(each.local_rank, each.cross_rank) for each in all_of_them}
    assert len(grid) == 7
    assert all(each.local_rank < each.local_size and each.cross_rank < each.cross_size for each in all_of_them)


def test_pods_of_one_node_are_machines_of_their_own() -> None:
    places = tuple(MemberAddress("node-a", f"10.0.0.{pod}", 4000, Role.WORKER) for pod in (1, 2, 1))
    ranks = [(Formation(rank, places).local_rank, Formation(rank, places).local_size) for rank in range(3)]
    assert ranks == [(0, 2), (0, 1), (1, 2)]
    assert [Formation(rank, places).cross_rank for rank in range(3)] == [0, 1, 0]


def test_a_cluster_as_tensorflow_writes_it() -> None:
    spec = GangSpec(workers=3, ps=1, evaluator=True, backend=Backend.TENSORFLOW)
    places = tuple(MemberAddress("h", f"10.0.0.{n}", 4000, role) for n, role in enumerate(spec.roles()))
    assert spec.size == 5
    assert Formation(2, places).cluster() == {
        "chief": ["10.0.0.0:4000"],
        "worker": ["10.0.0.1:4000", "10.0.0.2:4000"],
        "ps": ["10.0.0.3:4000"],
        "evaluator": ["10.0.0.4:4000"],
    }
    assert [(Formation(rank, places).role, Formation(rank, places).index) for rank in (2, 3)] == [
        (Role.WORKER, 1),
        (Role.PS, 0),
    ]
