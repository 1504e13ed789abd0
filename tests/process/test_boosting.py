"""Real sweeps of boosting libraries: rules stop trials, and a killed one resumes from its checkpoint."""

import os
from pathlib import Path

import numpy as np
import pytest

import sparktrain as st
from tests.support.boosted import DEATH, METRIC, ROUNDS, SLOW, USES, boost, boost_to_death

LIBRARIES = pytest.mark.parametrize("use", [name for name in USES if "-" not in name])


AGENTS = 1, "pandas", "sklearn.base", "scipy.sparse"
"""One warm agent: trials come one after the other, so that their order is known."""


def rounds(trial: st.TrialResult, generation: int) -> list[int]:
    """The rounds that one generation of a trial has started, as its training counts them."""
    log = trial.read_log(generation=generation)
    return [int(line.split()[1]) for line in log.splitlines() if line.startswith("round ")]


@LIBRARIES
def test_asha_stops_trainings_that_cannot_win(pool: st.Pool, runs: Path, use: str) -> None:
    etas = [0.4, 0.3, 0.001, 0.002]
    result = pool.sweep(
        boost,
        {"use": [use], "eta": etas},
        metric=METRIC,
        mode="min",
        stopper=st.ASHA(most=ROUNDS),
        dir=str(runs),
    )
    assert [trial.status for trial in result.trials if trial.params["eta"] < SLOW] == ["pruned"] * 2
    assert result.best.status == "succeeded"
    assert rounds(result.best, 1) == list(range(ROUNDS))
    for trial in result.trials:
        if trial.status == "pruned":
            assert len(rounds(trial, 1)) == len(trial.history) < ROUNDS
            assert trial.metrics[METRIC] == list(trial.history[METRIC])[-1]


def count_threads(rows: int) -> dict[str, int]:
    """How many threads one training starts, and how many of OpenMP it may use."""
    import xgboost

    rng = np.random.default_rng(0)
    x = rng.normal(size=(rows, 10))
    before = len(os.listdir("/proc/self/task"))
    xgboost.train({"max_depth": 3}, xgboost.DMatrix(x, x[:, 0]), 3)
    return {"threads": len(os.listdir("/proc/self/task")) - before, "limit": int(os.environ["OMP_NUM_THREADS"])}


@pytest.mark.parametrize(("env", "limit"), [({}, 1), ({"OMP_NUM_THREADS": "2"}, 2)], ids=["slot", "user"])
def test_threads_fit_the_slot_unless_the_user_sets_them(
    monkeypatch: pytest.MonkeyPatch, runs: Path, env: dict[str, str], limit: int
) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    machine = st.local(slots=os.cpu_count() or 1)
    result = st.sweep(
        count_threads, {"rows": [5000]}, metric="limit", mode="max", spark=machine, dir=str(runs), env=env
    )
    threads = min(limit, os.cpu_count() or 1)  # XGBoost uses no more than the cores
    assert result.best.metrics == {"threads": threads - 1, "limit": limit}


@LIBRARIES
def test_a_killed_training_resumes_and_ends_with_the_model_of_an_unbroken_one(
    pool: st.Pool, runs: Path, tmp_path: Path, use: str
) -> None:
    result = pool.sweep(
        boost_to_death, {"use": [use], "folder": [str(tmp_path)]}, metric=METRIC, mode="min", dir=str(runs)
    )
    [trial] = result.trials
    assert (trial.status, trial.generations) == ("succeeded", 2)
    assert rounds(trial, 1) == list(range(DEATH + 1))
    saved = DEATH // 4 * 4
    assert rounds(trial, 2) == list(range(saved, ROUNDS))
    with st.testing.local_context() as ctx:
        assert (tmp_path / "model-2").read_text() == USES[use].train(ctx).model
