"""A loop of PyTorch that loses agents for good: the others continue at once, and take the next process in later."""

from collections.abc import Sequence
from pathlib import Path

import pytest

import sparktrain as st
from sparktrain.driver.engines import local_batch
from tests.support import resizing_gangs
from tests.support.resizing import STEPS, check_rows, check_weights
from tests.torch.resizing_programs import repeat, train

pytestmark = [pytest.mark.torch, pytest.mark.timeout(240)]


def trained(folder: Path, kills: list[list[int]], lags: Sequence[int] = (), step_s: float = 0.0) -> st.RunResult:
    """See `resizing_gangs.trained`."""
    return resizing_gangs.trained((train, repeat), "torch", ["torch"], folder, kills, lags=lags, step_s=step_s)


@pytest.mark.parametrize(("kills", "lags"), [([[2, 8, 1], [1, 15, 0]], []), ([[1, 8, 1]], [2, 8])])
def test_the_others_continue_at_once_and_train_each_row_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kills: list[list[int]], lags: list[int]
) -> None:
    monkeypatch.setattr(local_batch.Restarts, "lost", lambda self, slot, now: True)
    result = trained(tmp_path, kills, lags)

    assert [(restart.healed, restart.members, restart.steps_lost) for restart in result.restarts] == [
        (True, 3 - number, 0) for number, _ in enumerate(kills, 1)
    ], [restart.cause for restart in result.restarts]
    assert result.metrics == {"size": 3 - len(kills), "steps": STEPS}
    check_rows(tmp_path, {3 - number for number in range(len(kills) + 1)})
    check_weights(tmp_path, list(range(3 - len(kills))))


def test_a_member_comes_back_after_a_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    resizing_gangs.replace_agents_later(monkeypatch)
    result = trained(tmp_path, [[1, 5, 0]], step_s=0.1)
    resizing_gangs.check_came_back(result, tmp_path)
