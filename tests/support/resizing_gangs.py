"""Gangs of three with a loop of `tests.support.resizing`, for tests of each framework."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

import sparktrain as st
from sparktrain.config.option_catalog import BackendName
from sparktrain.driver.engines import local_batch
from sparktrain.state.seats import policies
from tests.support.resizing import check_rows, check_weights


def trained(
    programs: tuple[Callable[..., Any], Callable[..., Any]],
    backend: BackendName,
    preload: list[str],
    folder: Path,
    kills: list[list[int]],
    *,
    lags: Sequence[int] = (),
    step_s: float = 0.0,
) -> st.RunResult:
    """The result of a gang of three with the first program. The second one trains the same steps alone after it."""
    train, repeat = programs
    options: dict[str, Any] = {"dir": str(folder), "progress": False}
    with st.pool(st.local(slots=3), preload=preload) as pool:
        params = {"folder": str(folder), "kills": kills, "lags": list(lags), "step_s": step_s}
        result = pool.run(train, params, workers=3, min_workers=1, backend=backend, name="run", seed=1, **options)
        alone = {"folder": str(folder), "steps": int(result.metrics["steps"])}
        pool.run(repeat, alone, workers=1, name="alone", **options)
    return result


def replace_agents_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lost agent has a successor after 2 s, and its gang grows soon after that."""

    def later(restarts: local_batch.Restarts, slot: int, now: float) -> bool:
        restarts._lives[slot].due = now + 2.0
        return True

    monkeypatch.setattr(policies, "GROW_AFTER_S", 0.5)
    monkeypatch.setattr(local_batch.Restarts, "lost", later)


def check_came_back(result: st.RunResult, folder: Path) -> None:
    """Rank 1 was lost, and has come back after a step: all have trained each row once."""
    lost, back = result.restarts
    assert (lost.rank, lost.healed, lost.members) == (1, True, 2), lost.cause
    assert (back.rank, back.healed, back.paused, back.steps_lost) == (1, True, True, 0), back.cause
    assert len(list(folder.glob("pid-*"))) == 4, "one process was started"
    check_rows(folder, {2, 3})
    check_weights(folder, [0, 1, 2])
