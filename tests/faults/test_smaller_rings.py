"""A `fit` in a ring that loses agents for good: the others keep process and trace, and divide what is left."""

import json
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sparktrain as st
from sparktrain.driver.engines import local_batch
from sparktrain.state.gangs import timeouts
from tests.faults.shrinking import BATCH, ROWS, repeat, shrink, table
from tests.support.fits import Fit, shown

pytestmark = pytest.mark.timeout(240)

Step = tuple[int, list[list[int]]]
"""The members that made a step, and the rows of each of them."""

OTHERS = pytest.mark.all(
    case="rings of two, three and four members that become smaller for good, in epochs of arrays, datasets and `data=`",
    covered_by="a ring of three that becomes smaller for a while; `unit/state/test_healing_rings`",
)


@pytest.fixture
def lasting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing replaces a lost agent."""
    monkeypatch.setattr(local_batch.Restarts, "lost", lambda self, slot, now: True)


def steps_in(notes: Path, size: int) -> list[Step]:
    """The steps of the training: those of a lost process count that the others have made with it."""
    noted: dict[int, dict[int, tuple[int, list[int]]]] = {}
    for rank in range(size):
        for line in (notes / f"steps-1-{rank}.jsonl").read_text().splitlines():
            step, members, rows = json.loads(line)
            noted.setdefault(step, {})[rank] = members, rows
    assert sorted(noted) == list(range(1, len(noted) + 1))
    steps = []
    for number in sorted(noted):
        members, _ = noted[number][0]
        steps.append((members, [rows for made_by, rows in noted[number].values() if made_by == members]))
    return steps


@OTHERS
@shown
@pytest.mark.parametrize(
    ("size", "data", "kills"),
    [
        (3, "arrays", [[1, 3]]),
        (3, "arrays", [[2, 8], [1, 13]]),
        (4, "arrays", [[2, 4], [1, 9]]),
        (3, "rows", [[1, 4]]),
    ],
)
def test_the_others_continue_at_once_and_train_each_row_once(
    lasting: None, fit: Fit, tmp_path: Path, size: int, data: str, kills: list[list[int]]
) -> None:
    check_smaller(fit, tmp_path, size, data, kills)


@OTHERS
@pytest.mark.parametrize(("size", "kills"), [(3, [[2, 5], [1, 9]]), (2, [[1, 6]])])
def test_the_others_divide_the_batches_of_a_dataset(
    lasting: None, fit: Fit, tmp_path: Path, size: int, kills: list[list[int]]
) -> None:
    check_smaller(fit, tmp_path, size, "batches", kills)


def check_smaller(fit: Fit, tmp_path: Path, size: int, data: str, kills: list[list[int]]) -> None:
    """A gang that loses members for good continues without them, and ends as one process with the rows of its steps."""
    params: dict[str, Any] = {"folder": str(tmp_path), "kills": kills, "data": data}
    with st.pool(st.local(slots=size), preload=fit.preload) as pool:
        result = pool.run(
            shrink, params, workers=size, min_workers=1, dir=str(tmp_path), name="run", seed=1, progress=False,
            data={"train": table()} if data == "rows" else {}, **fit.options,
        )  # fmt: skip
        steps = steps_in(tmp_path, size)
        alone = {"folder": str(tmp_path), "steps": [list(chain(*rows)) for _, rows in steps]}
        pool.run(repeat, alone, workers=1, dir=str(tmp_path), name="alone", progress=False, env=dict(fit.env))

    expected = [(rank, True, size - number, size) for number, (rank, _) in enumerate(kills, 1)]
    assert [
        (restart.rank, restart.healed, restart.members, restart.full_size) for restart in result.restarts
    ] == expected, [restart.cause for restart in result.restarts]
    assert f"the others kept their state and continue with {size - 1} of {size} members" in str(result)
    assert len(list(tmp_path.glob("pid-*"))) == size, "no process was started"
    left = sorted(set(range(size)) - {rank for rank, _ in kills})
    check_rows(steps)
    check_members(tmp_path, left, fit)


@shown
@pytest.mark.parametrize(
    "awaits_offer",
    [
        pytest.param(
            False,
            marks=pytest.mark.all(
                case="a member that comes back to a ring of three at any step",
                covered_by="one that comes back where the rest of the epoch is too short for a step of three",
            ),
        ),
        True,
    ],
)
def test_a_member_comes_back_and_all_train_each_row_once(
    fit: Fit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, awaits_offer: bool
) -> None:
    def later(restarts: local_batch.Restarts, slot: int, now: float) -> bool:
        restarts._lives[slot].due = now + 2.0
        return True

    monkeypatch.setattr(timeouts, "COOLDOWN_S", 0.5)
    monkeypatch.setattr(local_batch.Restarts, "lost", later)
    params: dict[str, Any] = {"folder": str(tmp_path), "kills": [[1, 3]], "step_s": 0.1, "awaits_offer": awaits_offer}
    with st.pool(st.local(slots=3), preload=fit.preload) as pool:
        result = pool.run(
            shrink, params, workers=3, min_workers=2, dir=str(tmp_path), name="run", seed=1, progress=False,
            **fit.options,
        )  # fmt: skip
        steps = steps_in(tmp_path, 3)
        alone = {"folder": str(tmp_path), "steps": [list(chain(*rows)) for _, rows in steps]}
        pool.run(repeat, alone, workers=1, dir=str(tmp_path), name="alone", progress=False, env=dict(fit.env))
    lost, back = result.restarts
    assert (lost.rank, lost.healed, lost.members, lost.full_size) == (1, True, 2, 3), lost.cause
    assert "the others kept their state and continue with 2 of 3 members" in str(result)
    assert (back.rank, back.healed, back.paused, back.steps_lost) == (1, True, True, 0), back.cause
    assert len(list(tmp_path.glob("pid-*"))) == 4, "one process was started"
    assert {members for members, _ in steps} == {2, 3}
    check_rows(steps)
    check_members(tmp_path, [0, 1, 2], fit)


def check_members(folder: Path, ranks: list[int], fit: Fit) -> None:
    for rank in ranks if fit.traces else []:
        until_first, in_all = json.loads((folder / f"traces-{rank}").read_text())
        assert until_first == in_all, "no step is traced again"
    weights = [np.load(folder / f"weights-{name}.npz") for name in (*ranks, "alone")]
    for name in weights[0].files:
        assert len({each[name].tobytes() for each in weights[:-1]}) == 1, "members have the same weights"
        np.testing.assert_allclose(weights[0][name], weights[-1][name], rtol=0, atol=1e-6)


def check_rows(steps: list[Step]) -> None:
    """Each epoch has each row once, but for those of a last step that lacks batches."""
    seen: set[int] = set()
    last = 0
    for members, of_members in steps:
        assert [len(batch) for batch in of_members] == [BATCH] * members
        rows = set(chain(*of_members))
        assert len(rows) == members * BATCH
        if rows & seen:
            assert ROWS - len(seen) < last * BATCH, "rows of the epoch are lost"
            seen = set()
        seen |= rows
        last = members
