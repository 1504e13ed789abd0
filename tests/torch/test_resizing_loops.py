"""A loop of PyTorch that loses agents for good: the others continue at once, and take the next process in later."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import sparktrain as st
from sparktrain.driver.engines import local_restarts
from sparktrain.state.losses import growth
from tests.support.resizing import STEPS, check_rows, check_weights
from tests.torch.resizing_programs import repeat, train

pytestmark = [pytest.mark.torch, pytest.mark.timeout(240)]


def trained(folder: Path, kills: list[list[int]], lags: Sequence[int] = (), step_s: float = 0.0) -> st.RunResult:
    """The result of a gang of three. One process trains the same steps after it."""
    options: dict[str, Any] = {"dir": str(folder), "progress": False}
    with st.pool(st.local(slots=3), preload=["torch"]) as pool:
        params = {"folder": str(folder), "kills": kills, "lags": list(lags), "step_s": step_s}
        result = pool.run(train, params, workers=3, min_workers=1, backend="torch", name="run", seed=1, **options)
        alone = {"folder": str(folder), "steps": int(result.metrics["steps"])}
        pool.run(repeat, alone, workers=1, name="alone", **options)
    return result


@pytest.mark.parametrize(("kills", "lags"), [([[2, 8, 1], [1, 15, 0]], []), ([[1, 8, 1]], [2, 8])])
def test_the_others_continue_at_once_and_train_each_row_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kills: list[list[int]], lags: list[int]
) -> None:
    monkeypatch.setattr(local_restarts.Restarts, "lost", lambda self, slot, now: True)
    result = trained(tmp_path, kills, lags)

    assert [(restart.healed, restart.members, restart.steps_lost) for restart in result.restarts] == [
        (True, 3 - number, 0) for number, _ in enumerate(kills, 1)
    ], [restart.cause for restart in result.restarts]
    assert result.metrics == {"size": 3 - len(kills), "steps": STEPS}
    check_rows(tmp_path, {3 - number for number in range(len(kills) + 1)})
    check_weights(tmp_path, list(range(3 - len(kills))))


def test_a_member_comes_back_after_a_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def later(restarts: local_restarts.Restarts, slot: int, now: float) -> bool:
        restarts._lives[slot].due = now + 2.0
        return True

    monkeypatch.setattr(growth, "GROW_AFTER_S", 0.5)
    monkeypatch.setattr(local_restarts.Restarts, "lost", later)
    result = trained(tmp_path, [[1, 5, 0]], step_s=0.1)

    lost, back = result.restarts
    assert (lost.rank, lost.healed, lost.members) == (1, True, 2), lost.cause
    assert (back.rank, back.healed, back.paused, back.steps_lost) == (1, True, True, 0), back.cause
    check_rows(tmp_path, {2, 3})
    check_weights(tmp_path, [0, 1, 2])
