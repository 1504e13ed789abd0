"""A `fit` in a ring that loses more members before it has healed: the others keep what they have."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import sparktrain as st
from tests.faults.test_healing_fits import trained
from tests.support.fits import Fit
from tests.support.healed_members import Members

SIZE = 4

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.all(
        case="two of four members that are lost at once, or while the ring heals; the next process; a stopped member",
        covered_by="`histories/test_healing_rings`; `faults/test_healing_fits`: one member after the other",
    ),
]


@pytest.fixture(scope="module")
def pool(fit: Fit) -> Iterator[st.Pool]:
    """An agent for each member."""
    with st.pool(st.local(slots=SIZE), preload=fit.preload) as made:
        yield made


@pytest.fixture(scope="module")
def undisturbed(pool: st.Pool, fit: Fit, tmp_path_factory: pytest.TempPathFactory) -> Members:
    """The members of a gang without a loss."""
    result, members, _ = trained(pool, fit, tmp_path_factory.mktemp("undisturbed"), SIZE, False, [])
    assert not result.restarts
    return members


@pytest.mark.parametrize(
    ("kills", "lost"),
    [
        ([(1, "batch", 3), (3, "batch", 3)], [1, 3]),
        ([(0, "later", 3), (2, "later", 3)], [0, 2]),
        ([(1, "batch", 3), (2, "healing", 1)], [1, 2]),
        ([(1, "batch", 3), (1, "entering", 0)], [1, 1]),
        ([(2, "stop", 3)], [2]),
    ],
    ids=["at once", "in a step", "a survivor in healing", "the next process", "a stopped member"],
)
def test_the_others_train_on(
    pool: st.Pool, fit: Fit, tmp_path: Path, undisturbed: Members, kills: list[Any], lost: list[int]
) -> None:
    result, members, processes = trained(pool, fit, tmp_path, SIZE, False, list(map(list, kills)))

    facts = sorted((restart.rank, restart.healed, restart.steps_lost) for restart in result.restarts)
    assert facts == [(rank, True, 0) for rank in lost], [restart.cause for restart in result.restarts]
    assert processes >= SIZE + len(kills), "a place in a broken ring costs one more process"
    for (variables, noted), (expected_variables, expected) in zip(members, undisturbed, strict=True):
        assert not [name for name in variables if variables[name] != expected_variables[name]]
        assert (noted["history"], noted["traces"]) == (expected["history"], 1)
