"""A loop of PyTorch in a ring that loses members: the others keep their processes, all end with the bits of no loss."""

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import sparktrain as st
from tests.support.healed_members import Members, members_in
from tests.torch.healing_loops import STEPS, train

pytestmark = [pytest.mark.torch, pytest.mark.timeout(240)]


@pytest.fixture(scope="module")
def pool() -> Iterator[st.Pool]:
    """Three warm agents on this machine."""
    with st.pool(st.local(slots=3), preload=["torch"]) as opened:
        yield opened


def trained(
    pool: st.Pool, folder: Path, size: int, kills: list[Any], every: str = "auto", *, late: bool = False
) -> tuple[st.RunResult, Members, int]:
    """The result, the members, and how many processes there were."""
    notes = folder / "notes"
    notes.mkdir(parents=True)
    params = {"folder": str(notes), "kills": kills, "every": every, "late": late}
    result = pool.run(train, params, workers=size, backend="torch", dir=str(folder), name="run", seed=1, progress=False)
    return result, *members_in(notes, size)


@pytest.fixture(scope="module")
def undisturbed(pool: st.Pool, tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], Members]:
    """The members of a gang without a loss, by its size."""

    @cache
    def members(size: int) -> Members:
        result, trained_members, _ = trained(pool, tmp_path_factory.mktemp("undisturbed"), size, [])
        assert not result.restarts
        return trained_members

    return members


@pytest.mark.parametrize(
    ("size", "every", "kills"),
    [
        (2, "auto", [(1, "before", 5), (0, "within", 9), (1, "applying", 13)]),
        (2, "0.001s", [(0, "after", 5), (1, "end", 12), (0, "end", 14), (1, "before", 25)]),
        (2, "0.001s", [(1, "later", 5), (0, "later", 13), (1, "later", 26)]),
        (3, "auto", [(0, "within", 5), (2, "applying", 8), (1, "before", 11)]),
        (3, "auto", [(1, "applying", 6), (2, "lag", 6)]),
        (3, "0.001s", [(0, "applying", 6), (1, "lag", 6)]),
        # Lost in the step in which another process has joined, and then in one that a member repeats for others.
        (3, "0.001s", [(2, "within", 8), (1, "call 3", 8)]),
        (3, "0.001s", [(1, "applying", 6), (2, "lag", 6), (1, "call 2", 6)]),
    ],
)
def test_the_others_train_on_when_a_member_is_killed(
    pool: st.Pool,
    tmp_path: Path,
    undisturbed: Callable[[int], Members],
    size: int,
    every: str,
    kills: list[tuple[int, str, int]],
) -> None:
    result, members, processes = trained(pool, tmp_path, size, list(map(list, kills)), every)

    assert [(restart.rank, restart.healed, restart.steps_lost) for restart in result.restarts] == [
        (rank, True, 0) for rank, moment, _ in kills if moment != "lag"
    ], [restart.cause for restart in result.restarts]
    assert processes == size + len(result.restarts), "only the lost processes were replaced"
    for (variables, facts), (expected_variables, expected_facts) in zip(members, undisturbed(size), strict=True):
        unequal = [name for name in variables if variables[name] != expected_variables[name] and "running" not in name]
        assert not unequal
        assert facts == expected_facts
        assert facts["step"] == STEPS


@pytest.mark.parametrize("kills", [[[1, "before", 5], [1, "spoil", 5]], [[1, "spoil", STEPS]]], ids=["healed", "end"])
def test_members_with_other_weights_end_with_an_error_that_names_the_variable(
    pool: st.Pool, tmp_path: Path, kills: list[Any]
) -> None:
    with pytest.raises(st.RunFailedError, match=r"rank 1 differs from the others in '0.bias': the members do not"):
        trained(pool, tmp_path, 2, kills)


def test_no_member_trains_on_before_the_driver_knows_that_all_have_joined(
    pool: st.Pool, tmp_path: Path, undisturbed: Callable[[int], Members]
) -> None:
    # Rank 1 is lost in the first step in which the next process of rank 2 trains. The agent of rank 1 reports the loss
    # at once, the report of rank 2 is late.
    kills = [[2, "within", 8], [1, "call 3", 8]]
    result, members, processes = trained(pool, tmp_path, 3, kills, "0.001s", late=True)

    healed = [(restart.rank, restart.healed, restart.steps_lost) for restart in result.restarts]
    assert healed == [(2, True, 0), (1, True, 0)], [restart.cause for restart in result.restarts]
    assert processes == 5
    for (_, facts), (_, expected_facts) in zip(members, undisturbed(3), strict=True):
        assert facts == expected_facts


@pytest.mark.parametrize(
    ("size", "kills"),
    [
        (2, [(0, "together", 12), (1, "together", 12)]),
        (3, [(1, "within", 6), (0, "together", 12), (1, "together", 12)]),
    ],
)
def test_members_that_all_restart_end_with_the_bits_of_no_loss(
    pool: st.Pool,
    tmp_path: Path,
    undisturbed: Callable[[int], Members],
    size: int,
    kills: list[tuple[int, str, int]],
) -> None:
    result, members, _ = trained(pool, tmp_path, size, list(map(list, kills)), "0.001s")

    *healed, restart = result.restarts
    assert all(earlier.healed for earlier in healed)
    assert not restart.healed
    assert restart.resumed_from_step is not None
    for (variables, facts), (expected_variables, expected_facts) in zip(members, undisturbed(size), strict=True):
        assert not [name for name in variables if variables[name] != expected_variables[name]]
        assert facts == expected_facts
