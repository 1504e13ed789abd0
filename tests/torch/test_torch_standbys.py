"""A loop of PyTorch that loses members while a process waits for the place of any of them."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import sparktrain as st
from tests.support.healed_members import Members, members_in
from tests.support.standby_kills import kill_each
from tests.torch.healing_loops import STEPS
from tests.torch.standby_programs import train

pytestmark = [pytest.mark.torch, pytest.mark.timeout(240)]


@pytest.fixture(scope="module")
def pool() -> Iterator[st.Pool]:
    """Three warm agents on this machine."""
    with st.pool(st.local(slots=3), preload=["torch"]) as opened:
        yield opened


def trained(
    pool: st.Pool, folder: Path, kills: list[int], standby: int, reads: str = ""
) -> tuple[st.RunResult, Members, int]:
    """The result, the members, and how many processes there were."""
    notes = folder / "notes"
    notes.mkdir(parents=True)
    thread = threading.Thread(target=kill_each, args=(pool, notes, kills))
    thread.start()
    params = {"folder": str(notes), "holds": len(kills), "reads": reads}
    result = pool.run(
        train, params, workers=2, standby=standby, backend="torch", dir=str(folder), name="run", seed=1, progress=False
    )
    thread.join(10)
    return result, *members_in(notes, 2)


@pytest.fixture(scope="module")
def undisturbed(pool: st.Pool, tmp_path_factory: pytest.TempPathFactory) -> Members:
    """The members of a gang without a loss."""
    result, members, processes = trained(pool, tmp_path_factory.mktemp("undisturbed"), [], 0)
    assert not result.restarts
    assert processes == 2
    return members


def without_process(facts: dict[str, object]) -> dict[str, object]:
    """What a member has noted that another run repeats."""
    return {name: value for name, value in facts.items() if name != "pid"}


def unequal(variables: dict[str, bytes], expected: dict[str, bytes]) -> list[str]:
    """The variables with other bits. Statistics of a layer are those that the sender had: DDP averages none."""
    return [name for name in variables if variables[name] != expected[name] and "running" not in name]


@pytest.mark.parametrize("kills", [[1, 0], [0, 1]])
def test_a_process_that_waits_takes_the_place_of_each_member_and_the_bits_are_those_of_no_loss(
    pool: st.Pool, tmp_path: Path, undisturbed: Members, kills: list[int]
) -> None:
    result, members, processes = trained(pool, tmp_path, kills, 1)

    assert [(restart.rank, restart.healed, restart.steps_lost) for restart in result.restarts] == [
        (rank, True, 0) for rank in kills
    ], [restart.cause for restart in result.restarts]
    # At the end a third process may wait.
    assert processes in (4, 5), "the two processes that took places had waited"
    for (variables, facts), (expected, expected_facts) in zip(members, undisturbed, strict=True):
        assert not unequal(variables, expected)
        assert without_process(facts) == without_process(expected_facts)
        assert facts["step"] == STEPS
    notes = tmp_path / "notes"
    first, second = kills
    pids = [[int((notes / f"held-{number}-{rank}").read_text()) for rank in (0, 1)] for number in (0, 1)]
    assert pids[1][second] == pids[0][second], "the other member keeps its process"
    assert pids[1][first] != pids[0][first]
    assert members[first][1]["pid"] == pids[1][first], "the first process that waited trains to the end"


@pytest.mark.parametrize("reads", ["group", "environment"])
def test_a_process_with_a_function_that_has_read_its_rank_takes_the_place_of_that_rank_alone(
    pool: st.Pool, tmp_path: Path, undisturbed: Members, reads: str
) -> None:
    result, members, _ = trained(pool, tmp_path, [1, 0], 1, reads)

    assert [(restart.rank, restart.healed, restart.steps_lost) for restart in result.restarts] == [
        (1, True, 0),
        (0, True, 0),
    ], [restart.cause for restart in result.restarts]
    for (variables, facts), (expected, expected_facts) in zip(members, undisturbed, strict=True):
        assert not unequal(variables, expected)
        assert without_process(facts) == without_process(expected_facts)
    notes = tmp_path / "notes"
    for rank in (0, 1):
        pid = members[rank][1]["pid"]
        assert (notes / f"rank-{rank}-{pid}").exists(), "each process has the rank that its function has read"
