"""Sweeps by the API on the slots of this machine."""

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import sparktrain as st
from sparktrain.base.clock import pause
from tests.support.functions import square


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[st.Pool]:
    """Two warm agents for all tests of the file: no test measures their start."""
    with st.pool(st.local(slots=2), preload=["numpy"]) as pool:
        pool.sweep(square, {"x": [1, 2]}, metric="y", mode="max", dir=str(tmp_path_factory.mktemp("warm")))
        yield pool


def test_a_grid_runs_every_combination_and_names_the_best(pool: st.Pool, runs: Path) -> None:
    def train(x: int, y: int) -> dict[str, float]:
        return {"product": x * y, "sum": x + y}

    result = pool.sweep(train, {"x": [1, 2, 3], "y": [4, 5]}, metric="product", mode="max", dir=str(runs), name="grid")
    assert result.status == "succeeded"
    assert [trial.params for trial in result.trials] == [{"x": x, "y": y} for x in (1, 2, 3) for y in (4, 5)]
    assert [trial.metrics["product"] for trial in result.trials] == [4, 5, 8, 10, 12, 15]
    assert result.best.params == {"x": 3, "y": 5}
    assert list(result.to_pandas()["metrics.product"]) == [4, 5, 8, 10, 12, 15]


def test_results_are_written_to_the_run_directory(pool: st.Pool, runs: Path) -> None:
    result = pool.sweep(square, {"x": [1, 2]}, metric="y", mode="min", dir=str(runs), name="written", seed=7)
    written = json.loads((runs / "written" / "results.json").read_text())
    assert written["status"] == "succeeded"
    assert written["best"]["params"] == {"x": 1}
    assert [trial["metrics"] for trial in written["trials"]] == [{"y": 1.0}, {"y": 4.0}]
    assert json.loads((runs / "written" / "run.json").read_text())["seed"] == 7
    assert result.directory == str(runs / "written")


def test_the_seed_of_a_trial_depends_on_the_sweep_and_the_trial_alone(runs: Path) -> None:
    def train(x: int, ctx: Any) -> dict[str, float]:
        import random

        import numpy as np

        return {"seed": ctx.seed, "draw": random.random(), "array": float(np.random.rand()), "trial": ctx.trial}

    options: dict[str, Any] = {"metric": "draw", "mode": "max", "dir": str(runs), "preload": ["numpy"]}
    options["spark"] = st.local(slots=2)
    first = st.sweep(train, {"x": [0, 1]}, name="first", seed=3, max_concurrent_trials=1, **options)
    again = st.sweep(train, {"x": [0, 1]}, name="again", seed=3, max_concurrent_trials=2, **options)
    other = st.sweep(train, {"x": [0, 1]}, name="other", seed=4, **options)
    drawn = [[trial.metrics for trial in result.trials] for result in (first, again, other)]
    assert drawn[0] == drawn[1]
    assert drawn[0][0]["draw"] != drawn[0][1]["draw"] != drawn[2][1]["draw"]


def test_members_on_this_machine_do_not_find_modules_of_the_package_by_bare_names(pool: st.Pool, runs: Path) -> None:
    def train(x: int) -> float:
        import importlib.util

        return float(sum(importlib.util.find_spec(name) is not None for name in ("submit", "coordinator", "rundir")))

    assert pool.sweep(train, {"x": [1]}, metric="y", mode="max", dir=str(runs)).best.metrics == {"y": 0.0}


def test_reports_files_and_logs_are_stored_in_the_run_directory(pool: st.Pool, runs: Path) -> None:
    def train(x: int, ctx: Any) -> dict[str, float]:
        for step in range(3):
            ctx.report(step, loss=1.0 / (step + 1))
        Path(ctx.log_dir, "events").mkdir()
        Path(ctx.log_dir, "events", "summary.txt").write_text("whole")
        return {"y": x}

    result = pool.sweep(train, {"x": [0]}, metric="y", mode="max", dir=str(runs), name="files")
    reported = result.history()[["trial", "generation", "rank", "step", "loss"]]
    assert reported.values.tolist() == [[0, 1, 0, 0, 1.0], [0, 1, 0, 1, 0.5], [0, 1, 0, 2, 1.0 / 3]]
    member = runs / "files" / "trials" / "0000" / "generation-1" / "rank-0"
    assert sorted(path.name for path in member.iterdir()) == ["files"]
    assert (member / "files" / "events" / "summary.txt").read_text() == "whole"


def test_a_failed_trial_names_its_root_cause_and_the_others_continue(pool: st.Pool, runs: Path) -> None:
    def train(x: int) -> float:
        print("about to divide")
        return 1 / x

    result = pool.sweep(train, {"x": [0, 1]}, metric="result", mode="max", dir=str(runs), name="failed")
    failed, succeeded = result.trials
    assert (failed.status, succeeded.status) == ("failed", "succeeded")
    assert failed.error is not None
    assert failed.error.summary == "ZeroDivisionError: division by zero"
    assert "return 1 / x" in failed.error.traceback
    assert failed.error.log_tail[0] == "about to divide"
    assert result.status == "succeeded"


def test_a_trial_is_stopped_at_its_timeout(pool: st.Pool, runs: Path) -> None:
    def train(x: int) -> float:
        while x == 0:
            pause(0.02)
        return 1.0

    result = pool.sweep(
        train, {"x": [0, 1]}, metric="result", mode="max", dir=str(runs), name="slow", trial_timeout=1.0
    )
    assert [trial.status for trial in result.trials] == ["failed", "succeeded"]
    assert "trial_timeout (1 s)" in str(result.trials[0].error)


def test_the_timeout_of_a_sweep_stops_it_and_sets_should_stop(pool: st.Pool, runs: Path) -> None:
    def train(x: int, ctx: Any) -> float:
        while not ctx.should_stop():
            pause(0.02)
        return 1.0

    result = pool.sweep(
        train, {"x": [0, 1, 2]}, metric="result", mode="max", dir=str(runs), name="stopped", timeout=5.0
    )
    assert result.status == "stopped"
    assert [trial.status for trial in result.trials[:2]] == ["succeeded", "succeeded"]


def test_the_handler_of_sigint_is_restored_after_a_call(runs: Path) -> None:
    before = signal.getsignal(signal.SIGINT)
    st.sweep(square, {"x": [1]}, metric="y", mode="max", spark=st.local(slots=1), dir=str(runs), preload=[])
    assert signal.getsignal(signal.SIGINT) is before
