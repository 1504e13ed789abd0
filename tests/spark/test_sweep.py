"""Sweeps on two executor processes."""

import os
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import sparktrain as st
from tests.support.functions import once, square
from tests.support.processes import Sighted, descendants, kill, wait_until

OTHER_LOSSES = pytest.mark.all(
    case="a lost agent, and a lost zygote",
    covered_by="a lost executor; `process/test_local_runs`: a killed agent; `faults/test_gangs`: a killed zygote",
)

QUICK: dict[str, Any] = {"preload": []}
"""By default agents import everything that one of the tests uses."""


def test_launch_pairs_values_by_position(spark: SparkSession, runs: Path) -> None:
    def mnist(learning_rate: float, dropout: float) -> None:
        print(f"lr={learning_rate} dropout={dropout}")

    args = {"learning_rate": [0.001, 0.0001], "dropout": [0.45, 0.7]}
    result = st.launch(spark, mnist, args, dir=str(runs), name="seed", **QUICK)
    assert [tuple(trial.params.values()) for trial in result.trials] == [(0.001, 0.45), (0.0001, 0.7)]
    assert [Path(str(trial.log)).read_text() for trial in result.trials] == [
        "lr=0.001 dropout=0.45\n",
        "lr=0.0001 dropout=0.7\n",
    ]


def test_trials_get_the_variables_of_the_call(spark: SparkSession, runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def train(x: int) -> dict[str, float]:
        return {"y": float(os.environ["GIVEN"]) + float(os.environ["FORWARDED_1"])}

    monkeypatch.setenv("FORWARDED_1", "40")  # after the start of the executors
    named: dict[str, Any] = {"env": {"GIVEN": "2"}, "forward_env": ["FORWARDED_*"]}
    result = st.sweep(train, {"x": [1]}, metric="y", mode="max", dir=str(runs), name="variables", **named, **QUICK)
    assert result.trials[0].metrics == {"y": 42.0}


def test_trials_run_on_both_executors_in_separate_processes(spark: SparkSession, runs: Path, tmp_path: Path) -> None:
    def train(x: int) -> dict[str, float]:
        Path(tmp_path, f"entered-{x}").touch()
        if x < 2:  # the first two wait for each other, so that both executors have a trial
            wait_until(lambda: Path(tmp_path, f"entered-{1 - x}").exists(), 60.0, "the other executor's trial")
        return {"pid": os.getpid(), "zygote": os.getppid()}

    result = st.sweep(train, {"x": [0, 1, 2, 3]}, metric="pid", mode="max", dir=str(runs), name="processes", **QUICK)
    assert [trial.status for trial in result.trials] == ["succeeded"] * 4
    assert len({trial.metrics["pid"] for trial in result.trials}) == 4
    assert len({trial.metrics["zygote"] for trial in result.trials}) == 2


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


def test_an_idle_pool_releases_its_slots_and_starts_agents_for_the_next_call(spark: SparkSession, runs: Path) -> None:
    with st.pool(spark, agents=2, preload=[], idle_timeout=0.5) as pool:
        first = pool.sweep(square, {"x": [1]}, metric="y", mode="max", dir=str(runs), name="before", **QUICK)
        wait_until(
            lambda: not descendants(os.getpid(), "sparktrain.training"), 10.0, "the idle pool's zygotes are gone"
        )
        again = pool.sweep(square, {"x": [1]}, metric="y", mode="max", dir=str(runs), name="after", **QUICK)
    assert first.trials[0].metrics == again.trials[0].metrics


@pytest.mark.parametrize(
    "victim", ["executor", *(pytest.param(victim, marks=OTHER_LOSSES) for victim in ("agent", "zygote"))]
)
def test_a_lost_process_costs_one_retry_and_repeats_no_finished_trial(
    spark: SparkSession, runs: Path, tmp_path: Path, victim: str
) -> None:
    noted, hold = tmp_path / "noted", tmp_path / "hold"
    noted.mkdir()
    hold.touch()
    import threading

    def strike() -> None:
        wait_until(lambda: len({path.name[0] for path in noted.iterdir()}) == 4, 60.0, "every trial has started")
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
