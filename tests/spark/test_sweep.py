"""The API on two real executor processes."""

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import sparktrain as st
from tests.support.functions import once, square
from tests.support.processes import Sighted, descendants, kill, wait_until

QUICK: dict[str, Any] = {"preload": []}
"""By default agents import all that any of the tests uses."""


def test_a_grid_runs_every_combination_and_names_the_best(spark: SparkSession, runs: Path) -> None:
    def train(x: int, y: int) -> dict[str, float]:
        return {"product": x * y, "sum": x + y}

    result = st.sweep(
        train, {"x": [1, 2, 3], "y": [4, 5]}, metric="product", mode="max", dir=str(runs), name="grid", **QUICK
    )
    assert result.status == "succeeded"
    assert [trial.params for trial in result.trials] == [{"x": x, "y": y} for x in (1, 2, 3) for y in (4, 5)]
    assert [trial.metrics["product"] for trial in result.trials] == [4, 5, 8, 10, 12, 15]
    assert result.best.params == {"x": 3, "y": 5}
    assert list(result.to_pandas()["metrics.product"]) == [4, 5, 8, 10, 12, 15]


def test_launch_takes_values_position_by_position(spark: SparkSession, runs: Path) -> None:
    def mnist(learning_rate: float, dropout: float) -> None:
        print(f"lr={learning_rate} dropout={dropout}")

    args = {"learning_rate": [0.001, 0.0001], "dropout": [0.45, 0.7]}
    result = st.launch(spark, mnist, args, dir=str(runs), name="seed", **QUICK)
    assert [tuple(trial.params.values()) for trial in result.trials] == [(0.001, 0.45), (0.0001, 0.7)]
    assert [Path(str(trial.log)).read_text() for trial in result.trials] == [
        "lr=0.001 dropout=0.45\n",
        "lr=0.0001 dropout=0.7\n",
    ]


def test_results_are_written_to_the_run_directory(spark: SparkSession, runs: Path) -> None:
    result = st.sweep(square, {"x": [1, 2]}, metric="y", mode="min", dir=str(runs), name="written", seed=7, **QUICK)
    written = json.loads((runs / "written" / "results.json").read_text())
    assert written["status"] == "succeeded"
    assert written["best"]["params"] == {"x": 1}
    assert [trial["metrics"] for trial in written["trials"]] == [{"y": 1.0}, {"y": 4.0}]
    assert json.loads((runs / "written" / "run.json").read_text())["seed"] == 7
    assert result.directory == str(runs / "written")


def test_trials_get_the_variables_that_are_named(
    spark: SparkSession, runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def train(x: int) -> dict[str, float]:
        return {"y": float(os.environ["GIVEN"]) + float(os.environ["FORWARDED_1"])}

    monkeypatch.setenv("FORWARDED_1", "40")  # executors have been started before
    named: dict[str, Any] = {"env": {"GIVEN": "2"}, "forward_env": ["FORWARDED_*"]}
    result = st.sweep(train, {"x": [1]}, metric="y", mode="max", dir=str(runs), name="variables", **named, **QUICK)
    assert result.trials[0].metrics == {"y": 42.0}


def test_trials_run_in_two_executors_each_in_a_process_of_its_own(
    spark: SparkSession, runs: Path, tmp_path: Path
) -> None:
    def train(x: int) -> dict[str, float]:
        Path(tmp_path, f"entered-{x}").touch()
        if x < 2:  # the first two meet, however long the second executor takes
            wait_until(lambda: Path(tmp_path, f"entered-{1 - x}").exists(), 60.0, "the other executor's trial")
        return {"pid": os.getpid(), "zygote": os.getppid()}

    result = st.sweep(train, {"x": [0, 1, 2, 3]}, metric="pid", mode="max", dir=str(runs), name="processes", **QUICK)
    assert [trial.status for trial in result.trials] == ["succeeded"] * 4
    assert len({trial.metrics["pid"] for trial in result.trials}) == 4
    assert len({trial.metrics["zygote"] for trial in result.trials}) == 2


def test_the_seed_of_a_trial_is_of_the_sweep_and_the_trial_alone(spark: SparkSession, runs: Path) -> None:
    def train(x: int, ctx: Any) -> dict[str, float]:
        import random

        import numpy as np

        return {"seed": ctx.seed, "draw": random.random(), "array": float(np.random.rand()), "trial": ctx.trial}

    options: dict[str, Any] = {"metric": "draw", "mode": "max", "dir": str(runs), "preload": ["numpy"]}
    first = st.sweep(train, {"x": [0, 1]}, name="first", seed=3, max_concurrent_trials=1, **options)
    again = st.sweep(train, {"x": [0, 1]}, name="again", seed=3, max_concurrent_trials=2, **options)
    other = st.sweep(train, {"x": [0, 1]}, name="other", seed=4, **options)
    drawn = [[trial.metrics for trial in result.trials] for result in (first, again, other)]
    assert drawn[0] == drawn[1]
    assert drawn[0][0]["draw"] != drawn[0][1]["draw"] != drawn[2][1]["draw"]


def test_reports_files_and_logs_come_to_the_run_directory(spark: SparkSession, runs: Path) -> None:
    def train(x: int, ctx: Any) -> dict[str, float]:
        for step in range(3):
            ctx.report(step, loss=1.0 / (step + 1))
        Path(ctx.log_dir, "events").mkdir()
        Path(ctx.log_dir, "events", "summary.txt").write_text("whole")
        return {"y": x}

    result = st.sweep(train, {"x": [0]}, metric="y", mode="max", dir=str(runs), name="files", **QUICK)
    reported = result.history()[["trial", "generation", "rank", "step", "loss"]]
    assert reported.values.tolist() == [[0, 1, 0, 0, 1.0], [0, 1, 0, 1, 0.5], [0, 1, 0, 2, 1.0 / 3]]
    member = runs / "files" / "trials" / "0000" / "generation-1" / "rank-0"
    lines = [json.loads(line) for line in (member / "metrics.jsonl").read_text().splitlines()]
    assert [(line["step"], line["loss"]) for line in lines] == [(0, 1.0), (1, 0.5), (2, 1.0 / 3)]
    assert (member / "files" / "events" / "summary.txt").read_text() == "whole"


def test_a_failed_trial_names_its_root_cause_and_the_others_go_on(spark: SparkSession, runs: Path) -> None:
    def train(x: int) -> float:
        print("about to divide")
        return 1 / x

    result = st.sweep(train, {"x": [0, 1]}, metric="result", mode="max", dir=str(runs), name="failed", **QUICK)
    failed, succeeded = result.trials
    assert (failed.status, succeeded.status) == ("failed", "succeeded")
    assert failed.error is not None
    assert failed.error.summary == "ZeroDivisionError: division by zero"
    assert "return 1 / x" in failed.error.traceback
    assert failed.error.log_tail[0] == "about to divide"
    assert result.status == "succeeded"


def test_a_trial_over_its_time_is_stopped(spark: SparkSession, runs: Path) -> None:
    def train(x: int) -> float:
        import time

        time.sleep(60 if x == 0 else 0)
        return 1.0

    result = st.sweep(
        train, {"x": [0, 1]}, metric="result", mode="max", dir=str(runs), name="slow", trial_timeout=1.0, **QUICK
    )
    assert [trial.status for trial in result.trials] == ["failed", "succeeded"]
    assert "trial_timeout (1 s)" in str(result.trials[0].error)


def test_the_timeout_of_a_sweep_stops_it_and_should_stop_tells(spark: SparkSession, runs: Path) -> None:
    def train(x: int, ctx: Any) -> float:
        import time

        while not ctx.should_stop():
            time.sleep(0.02)
        return 1.0

    result = st.sweep(
        train, {"x": [0, 1, 2]}, metric="result", mode="max", dir=str(runs), name="stopped", timeout=8.0, **QUICK
    )
    assert result.status == "stopped"
    assert [trial.status for trial in result.trials[:2]] == ["succeeded", "succeeded"]


def test_a_pool_serves_several_calls_with_warm_agents(spark: SparkSession, runs: Path) -> None:
    def train(x: int) -> dict[str, float]:
        return {"zygote": os.getppid()}

    with st.pool(spark, agents=2, preload=["numpy"]) as pool:
        results = [
            pool.sweep(
                train, {"x": [0, 1, 2, 3]}, metric="zygote", mode="max", dir=str(runs), name=f"call-{call}", **QUICK
            )
            for call in range(3)
        ]
        zygotes = {trial.metrics["zygote"] for result in results for trial in result.trials}
        assert len(zygotes) == 2
    with pytest.raises(st.PoolError, match="closed"):
        pool.sweep(train, {"x": [0]}, metric="zygote", mode="max", dir=str(runs), name="late", **QUICK)
    assert spark.range(0, 2, 1, 2).count() == 2


def test_a_pool_gives_its_slots_back_when_idle_and_starts_anew(spark: SparkSession, runs: Path) -> None:
    with st.pool(spark, agents=2, preload=[], idle_timeout=0.5) as pool:
        first = pool.sweep(square, {"x": [1]}, metric="y", mode="max", dir=str(runs), name="before", **QUICK)
        wait_until(
            lambda: not descendants(os.getpid(), "sparktrain.training"), 10.0, "the idle pool's zygotes are gone"
        )
        again = pool.sweep(square, {"x": [1]}, metric="y", mode="max", dir=str(runs), name="after", **QUICK)
    assert first.trials[0].metrics == again.trials[0].metrics


@pytest.mark.parametrize("victim", ["agent", pytest.param("zygote", marks=pytest.mark.all), "executor"])
def test_a_lost_process_loses_no_trial_and_repeats_no_finished_one(
    spark: SparkSession, runs: Path, tmp_path: Path, victim: str
) -> None:
    noted, hold = tmp_path / "noted", tmp_path / "hold"
    noted.mkdir()
    hold.touch()
    import threading

    def strike() -> None:
        wait_until(lambda: len({path.name[0] for path in noted.iterdir()}) == 4, 60.0, "every trial has begun")
        pid = int(next(noted.glob("0-*")).name.split("-")[1])
        zygote = Sighted([pid]).processes[0].parent()
        assert zygote is not None
        agent = zygote.parent()
        assert agent is not None
        target = {"zygote": zygote, "agent": agent, "executor": agent.parent().parent()}[victim]
        gone = Sighted([pid])
        kill(target.pid)
        gone.wait_gone(5.0)
        hold.unlink()

    striker = threading.Thread(target=strike)
    striker.start()
    space = {"x": [0, 1, 2, 3], "runs": [str(noted)], "hold": [str(hold)]}
    result = st.sweep(once, space, metric="result", mode="max", dir=str(runs), name=victim, **QUICK)
    striker.join()
    assert [trial.metrics["result"] for trial in result.trials] == [0.0, 1.0, 2.0, 3.0]
    assert [trial.generations for trial in result.trials] == [2, 1, 1, 1]
    assert len(list(noted.glob("0-*"))) == 2
    assert all(len(list(noted.glob(f"{x}-*"))) == 1 for x in (1, 2, 3))


def test_sigint_is_handled_as_before_after_a_call(spark: SparkSession, runs: Path) -> None:
    before = signal.getsignal(signal.SIGINT)
    st.sweep(square, {"x": [1]}, metric="y", mode="max", dir=str(runs), name="signals", **QUICK)
    assert signal.getsignal(signal.SIGINT) is before
