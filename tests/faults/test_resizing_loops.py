"""A loop that loses agents for good: the others continue at once, and take the next process in after a step."""

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import sparktrain as st
from sparktrain.base.clock import SystemClock
from sparktrain.driver.engines import local_batch
from sparktrain.runs.additions.drain_requests import drain
from sparktrain.runs.locate import run_in
from sparktrain.runs.watcher import Observer
from tests.faults.resizing_loops import GO, repeat, train
from tests.faults.test_draining import agent_of
from tests.support import resizing_gangs
from tests.support.processes import wait_until
from tests.support.resizing import STEPS, check_rows, check_weights

pytestmark = pytest.mark.timeout(240)
SOON_S = 120.0
PRELOAD = ["tensorflow", "keras", "horovod.tensorflow"]


def trained(folder: Path, kills: list[list[int]], lags: Sequence[int] = (), step_s: float = 0.0) -> st.RunResult:
    """See `resizing_gangs.trained`."""
    return resizing_gangs.trained((train, repeat), "horovod", PRELOAD, folder, kills, lags=lags, step_s=step_s)


@pytest.mark.parametrize(
    "kills",
    [
        [[1, 5, 0]],
        pytest.param([[2, 8, 1], [1, 15, 0]], marks=pytest.mark.all(
            case="two losses of a loop of three, one of them after a step", covered_by="one loss within a step"
        )),
    ],
)  # fmt: skip
def test_the_others_continue_at_once_and_train_each_row_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kills: list[list[int]]
) -> None:
    monkeypatch.setattr(local_batch.Restarts, "lost", lambda self, slot, now: True)
    result = trained(tmp_path, kills)

    assert [(restart.healed, restart.members, restart.steps_lost) for restart in result.restarts] == [
        (True, 3 - number, 0) for number, _ in enumerate(kills, 1)
    ], [restart.cause for restart in result.restarts]
    assert result.metrics == {"size": 3 - len(kills), "steps": STEPS}
    assert len(list(tmp_path.glob("pid-*"))) == 3, "no process was started"
    check_rows(tmp_path, {3 - number for number in range(len(kills) + 1)})
    check_weights(tmp_path, list(range(3 - len(kills))))


@pytest.mark.all(
    case="a member that is a step ahead when a loop becomes smaller", covered_by="one loss within a step; `tests/torch`"
)
def test_a_member_that_is_a_step_ahead_takes_that_step_from_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_batch.Restarts, "lost", lambda self, slot, now: True)
    result = trained(tmp_path, [[1, 8, 1]], lags=[2, 8])

    assert [(restart.healed, restart.members, restart.steps_lost) for restart in result.restarts] == [(True, 2, 0)], [
        restart.cause for restart in result.restarts
    ]
    check_rows(tmp_path, {2, 3})
    check_weights(tmp_path, [0, 1])


def test_a_member_comes_back_after_a_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    resizing_gangs.replace_agents_later(monkeypatch)
    result = trained(tmp_path, [[1, 5, 0]], step_s=0.1)
    resizing_gangs.check_came_back(result, tmp_path)


@pytest.mark.all(case="a drained member of a loop moves to another agent", covered_by="a member that comes back")
def test_a_drained_member_moves_after_a_step(tmp_path: Path) -> None:
    run = str(tmp_path / "run")

    def noted() -> int:
        return sum(path.read_text().count("\n") for path in tmp_path.glob("steps-*.jsonl"))

    def has_moved() -> bool:
        return bool(Observer(run_in(run), SystemClock()).look().trials[0].result.restarts)

    def act() -> None:
        try:
            wait_until(lambda: noted() > 30, SOON_S, "all members train")
            drain(run_in(run), None, agent_of(pool, 0, 1).slot)
            wait_until(has_moved, SOON_S, "a member has moved")
        finally:
            (tmp_path / GO).touch()

    with st.pool(st.local(slots=4), preload=PRELOAD) as pool:
        thread = threading.Thread(target=act)
        thread.start()
        params = {"folder": str(tmp_path), "kills": [], "lags": [], "step_s": 0.1, "awaits_go": True}
        options: dict[str, Any] = {"dir": str(tmp_path), "progress": False}
        result = pool.run(train, params, workers=3, backend="horovod", name="run", seed=1, **options)
        thread.join(SOON_S)
        alone = {"folder": str(tmp_path), "steps": int(result.metrics["steps"])}
        pool.run(repeat, alone, workers=1, name="alone", **options)

    [move] = result.restarts
    assert (move.rank, move.drained, move.healed, move.steps_lost) == (1, True, True, 0), move.cause
    assert len(list(tmp_path.glob("pid-*"))) == 4, "one process was started"
    check_rows(tmp_path, {3})
    check_weights(tmp_path, [0, 1, 2])
