"""Runs of one gang on two executor processes."""

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import sparktrain as st
from sparktrain.display.progress import NullDisplay
from sparktrain.driver import agent_server as server_module
from sparktrain.driver.agent_sources import OwnAgents
from sparktrain.driver.engines.selection import engine_of
from sparktrain.driver.launch import launch
from sparktrain.driver.options import RunOptions
from sparktrain.driver.pool import PoolTimes
from sparktrain.driver.prepare.checked_call import compose
from sparktrain.search.space import single
from tests.faults.test_gangs import check, run
from tests.support.drill import Strike

QUICK: dict[str, Any] = {"backend": "none", "preload": []}
"""By default agents import everything that one of the tests uses."""


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


def test_more_members_than_slots_are_refused_before_anything_is_written(spark: SparkSession, runs: Path) -> None:
    with pytest.raises(st.ResourceError, match="the gang has 3 members and the session has 2 slots: "):
        st.run(lambda: None, workers=3, dir=str(runs), name="large", **QUICK)
    assert not (runs / "large").exists()


def test_the_slot_of_a_refused_agent_is_submitted_again(
    spark: SparkSession, runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = iter(["", "keras is 3.15 on the driver and 3.12 on the executor"])
    monkeypatch.setattr(server_module, "mismatch", lambda *_: next(answers, ""))
    options = RunOptions(workers=2, dir=str(runs), name="again", start_timeout=60, **QUICK)
    agents = OwnAgents(engine_of(spark), PoolTimes(outlook_s=0.5, vacancy_s=0.5))
    result = launch(compose(lambda ctx: ctx.size, single({}), options), agents, NullDisplay())
    assert [trial.metrics for trial in result.trials] == [{"result": 2.0}]
    assert next(answers, None) is None


def test_a_killed_executor_costs_a_restart(spark: SparkSession, runs: Path) -> None:
    strikes = [Strike(1, 17, 1, "executor")]
    result, folder = run(runs, strikes, spark=spark)
    check(result, folder, strikes)
