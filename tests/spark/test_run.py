"""Runs of one gang, and sweeps of gangs, on two real executor processes."""

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import sparktrain as st
from sparktrain.driver import agent_server as server_module
from sparktrain.driver import coordinator as coordinator_module
from sparktrain.driver import vacant_slots as vacancies_module

QUICK: dict[str, Any] = {"backend": "none", "preload": []}
"""By default agents import all that any of the tests uses."""


def test_every_member_of_a_run_knows_its_rank_and_the_chiefs_result_counts(spark: SparkSession, runs: Path) -> None:
    def train(base: int, ctx: Any) -> dict[str, float]:
        print(f"rank {ctx.rank} of {ctx.size}")
        return {"value": base + ctx.rank, "size": ctx.size}

    result = st.run(train, {"base": 10}, workers=2, dir=str(runs), name="ranks", **QUICK)
    assert result.metrics == {"value": 10.0, "size": 2.0}
    assert [Path(log).read_text() for log in result.log] == ["rank 0 of 2\n", "rank 1 of 2\n"]
    assert [(member.rank, member.role) for member in result.members] == [(0, "chief"), (1, "worker")]
    assert (result.restarts, result.model_path) == ((), None)
    written = json.loads((runs / "ranks" / "results.json").read_text())
    assert [member["rank"] for member in written["trials"][0]["members"]] == [0, 1]
    assert json.loads((runs / "ranks" / "run.json").read_text())["gang"]["workers"] == 2


def test_a_member_that_raises_fails_the_run_and_is_named(spark: SparkSession, runs: Path) -> None:
    def train(ctx: Any) -> float:
        if ctx.rank == 1:
            raise ValueError("rank 1 has no data")
        while not ctx.should_stop():  # until it is ended with the gang
            pass
        return 1.0

    with pytest.raises(st.RunFailedError, match="ValueError: rank 1 has no data") as caught:
        st.run(train, workers=2, dir=str(runs), name="raises", **QUICK)
    assert caught.value.rank == 1
    assert "raise ValueError" in caught.value.traceback
    assert not isinstance(caught.value, st.InfraError)
    assert json.loads((runs / "raises" / "results.json").read_text())["status"] == "failed"


def test_more_members_than_slots_are_refused_before_anything_is_written(spark: SparkSession, runs: Path) -> None:
    with pytest.raises(st.ResourceError, match="the gang has 3 members and the session has 2 slots: "):
        st.run(lambda: None, workers=3, dir=str(runs), name="large", **QUICK)
    assert not (runs / "large").exists()


def test_gangs_of_a_sweep_take_turns_on_the_slots_that_there_are(spark: SparkSession, runs: Path) -> None:
    def train(x: int, ctx: Any) -> dict[str, float]:
        return {"y": 10 * x + ctx.rank, "size": ctx.size}

    result = st.sweep(
        train, {"x": [1, 2, 3]}, metric="y", mode="max", workers_per_trial=2, dir=str(runs), name="gangs", **QUICK
    )
    assert [trial.metrics for trial in result.trials] == [{"y": 10.0 * x, "size": 2.0} for x in (1, 2, 3)]
    assert [len(trial.members) for trial in result.trials] == [2, 2, 2]


def test_a_pool_runs_gangs_and_refuses_those_that_it_is_too_small_for(spark: SparkSession, runs: Path) -> None:
    def train(ctx: Any) -> int:
        return int(ctx.size)

    with st.pool(spark, agents=2, preload=[]) as pool:
        with pytest.raises(st.ResourceError, match="the gang has 3 members and the pool has 2 agents"):
            pool.run(train, workers=3, dir=str(runs), name="large", **QUICK)
        sizes = [
            pool.run(train, workers=size, dir=str(runs), name=f"gang-{size}", **QUICK).metrics["result"]
            for size in (2, 1)
        ]
    assert sizes == [2.0, 1.0]


def test_a_slot_whose_agent_was_sent_away_is_submitted_again(
    spark: SparkSession, runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = iter(["", "keras is 3.15 on the driver and 3.12 on the executor"])
    monkeypatch.setattr(server_module, "mismatch", lambda *_: next(answers, ""))
    monkeypatch.setattr(coordinator_module, "OUTLOOK_S", 0.5)
    monkeypatch.setattr(vacancies_module, "PAUSE_S", 0.5)
    result = st.run(lambda ctx: ctx.size, workers=2, dir=str(runs), name="again", start_timeout=60, **QUICK)
    assert result.metrics == {"result": 2.0}
    assert next(answers, None) is None
