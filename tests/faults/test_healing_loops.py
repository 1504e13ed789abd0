"""A loop in a ring that loses members: the others keep process and trace, and all end with the bits of no loss."""

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import sparktrain as st
from tests.faults.healing_loops import STEPS, train
from tests.support.healed_members import Members, members_in

pytestmark = pytest.mark.timeout(240)

OTHERS = pytest.mark.all(
    case="loops that heal with eager steps, or with an optimizer that averages, and of three members",
    covered_by="a loop with a traced tape that loses each of two members",
)


@pytest.fixture(scope="module")
def pool() -> Iterator[st.Pool]:
    """Three warm agents on this machine."""
    with st.pool(st.local(slots=3), preload=["tensorflow", "keras", "horovod.tensorflow"]) as made:
        yield made


def trained(
    pool: st.Pool, folder: Path, size: int, way: str, kills: list[Any], every: str = "auto"
) -> tuple[st.RunResult, Members, int]:
    """The result, the members, and how many processes there were."""
    notes = folder / "notes"
    notes.mkdir(parents=True)
    params = {"folder": str(notes), "kills": kills, "way": way, "every": every}
    result = pool.run(
        train, params, workers=size, backend="horovod", dir=str(folder), name="run", seed=1, progress=False
    )
    return result, *members_in(notes, size)


@pytest.fixture(scope="module")
def undisturbed(pool: st.Pool, tmp_path_factory: pytest.TempPathFactory) -> Callable[[int, str], Members]:
    """The members of a gang without a loss, by its size and by how it averages."""

    @cache
    def members(size: int, way: str) -> Members:
        result, trained_members, _ = trained(pool, tmp_path_factory.mktemp("undisturbed"), size, way, [])
        assert not result.restarts
        return trained_members

    return members


@pytest.mark.parametrize(
    ("size", "way", "every", "kills"),
    [
        (2, "tape", "auto", [(1, "before", 5), (0, "after", 12), (1, "end", 18)]),
        pytest.param(2, "tape", "0.001s", [(1, "later", 4), (0, "end", 5), (1, "after", 6)], marks=OTHERS),
        pytest.param(2, "eager", "auto", [(1, "within", 5), (0, "within", 9), (1, "later", 12)], marks=OTHERS),
        pytest.param(2, "optimizer", "0.001s", [(0, "later", 5), (1, "end", 15), (1, "later", 18)], marks=OTHERS),
        pytest.param(3, "tape", "0.001s", [(1, "later", 6), (2, "later", 10), (0, "later", 15)], marks=OTHERS),
        pytest.param(3, "eager", "0.001s", [(2, "within", 6), (0, "after", 10), (1, "end", 15)], marks=OTHERS),
        pytest.param(3, "eager", "auto", [(1, "applying", 6), (2, "lag", 6)], marks=OTHERS),
        pytest.param(3, "eager", "0.001s", [(0, "applying", 6), (1, "lag", 6)], marks=OTHERS),
        # Lost in the step in which another process has joined, and then in one that a member repeats for others.
        pytest.param(3, "eager", "0.001s", [(2, "within", 8), (1, "call 2", 8)], marks=OTHERS),
        pytest.param(3, "eager", "0.001s", [(1, "applying", 6), (2, "lag", 6), (1, "call 1", 6)], marks=OTHERS),
    ],
)
def test_the_others_train_on_when_a_member_is_killed(
    pool: st.Pool,
    tmp_path: Path,
    undisturbed: Callable[[int, str], Members],
    size: int,
    way: str,
    every: str,
    kills: list[tuple[int, str, int]],
) -> None:
    result, members, processes = trained(pool, tmp_path, size, way, list(map(list, kills)), every)

    assert [(restart.rank, restart.healed, restart.steps_lost) for restart in result.restarts] == [
        (rank, True, 0) for rank, moment, _ in kills if moment != "lag"
    ], [restart.cause for restart in result.restarts]
    assert processes == size + len(result.restarts), "only the lost processes were replaced"
    for (variables, facts), (expected_variables, expected_facts) in zip(members, undisturbed(size, way), strict=True):
        unequal = [name for name in variables if variables[name] != expected_variables[name]]
        assert not unequal
        assert facts == expected_facts
        assert facts["steps"] == STEPS


@pytest.mark.parametrize("kills", [[[1, "before", 5], [1, "spoil", 5]], [[1, "spoil", STEPS]]], ids=["healed", "end"])
def test_members_with_other_weights_end_with_an_error_that_names_the_variable(
    pool: st.Pool, tmp_path: Path, kills: list[Any]
) -> None:
    with pytest.raises(st.RunFailedError, match=r"rank 1 differs from the others in '\S*dense/bias': the members"):
        trained(pool, tmp_path, 2, "tape", kills)


@OTHERS
def test_a_loop_that_no_process_can_join_restarts_as_a_whole_and_says_why(pool: st.Pool, tmp_path: Path) -> None:
    result, _, processes = trained(pool, tmp_path, 2, "late", [[1, "before", 5]])
    [restart] = result.restarts
    assert not restart.healed
    assert processes == 4
    [line] = result.notices
    assert "this loop restarts in all of them: the step changes sparse_categorical_accuracy" in line


@OTHERS
@pytest.mark.parametrize("size", [2, 3])
def test_members_that_all_restart_end_with_the_bits_of_no_loss(
    pool: st.Pool, tmp_path: Path, undisturbed: Callable[[int, str], Members], size: int
) -> None:
    kills = [[0, "together", 12], [1, "together", 12]]
    result, members, _ = trained(pool, tmp_path, size, "tape", kills, "0.001s")

    [restart] = result.restarts
    assert not restart.healed
    assert restart.resumed_from_step is not None
    for (variables, facts), (expected_variables, expected_facts) in zip(
        members, undisturbed(size, "tape"), strict=True
    ):
        assert not [name for name in variables if variables[name] != expected_variables[name]]
        assert facts == expected_facts
