"""The coordinator beside an agent, on real executors: data, a resume, an extension, and the loss of an executor."""

import os
import time
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import sparktrain as st
from tests.support.process_cluster import coordinators
from tests.support.processes import wait_until

STARTS_S = 60.0
ENDS_S = 120.0
IN_CLUSTER: dict[str, Any] = {"coordinator": "cluster", "preload": [], "progress": False, "backend": "none"}


def test_a_table_an_extension_and_a_resume_of_a_sweep(spark: SparkSession, runs: Path) -> None:
    def rows(x: int, ctx: Any) -> dict[str, float]:
        return {"y": float(x + ctx.dataset("table").num_rows)}

    table = spark.range(0, 20).selectExpr("cast(id as float) as value")
    given = {"metric": "y", "mode": "max", "dir": str(runs), "name": "run", **IN_CLUSTER}
    first = st.sweep(rows, {"x": [1]}, data={"table": table}, **given)
    assert [trial.metrics for trial in first.trials] == [{"y": 21.0}]
    more = st.extend(runs / "run", {"x": [1, 2]}, coordinator="cluster", progress=False)
    assert [trial.metrics for trial in more.trials] == [{"y": 21.0}, {"y": 22.0}]
    again = st.resume(runs / "run", coordinator="cluster", progress=False)
    assert [trial.metrics for trial in again.trials] == [{"y": 21.0}, {"y": 22.0}]
    assert len(list((runs / "run/coordinators").iterdir())) == 2, "the last call had nothing left to do"


@pytest.mark.all(
    case="a run loses the executor of its coordinator",
    covered_by="`process/test_takeover`: the agent of a coordinator is killed; `spark/test_run`: a killed executor",
)
def test_a_run_loses_the_executor_of_its_coordinator(spark: SparkSession, runs: Path, tmp_path: Path) -> None:
    def train(folder: str, ctx: Any) -> dict[str, float]:
        Path(folder, f"pid-{ctx.generation}").write_text(str(os.getpid()))
        Path(folder, f"start-{ctx.generation}").touch()
        while Path(folder, "hold").exists():
            time.sleep(0.05)
        return {"y": float(ctx.generation)}

    (tmp_path / "hold").touch()
    params = {"folder": str(tmp_path)}
    handle = st.submit(
        train, params, kind="run", workers=1, agents=2, spark=spark, dir=str(runs), name="run", **IN_CLUSTER
    )
    wait_until((tmp_path / "start-1").exists, STARTS_S, "the trial starts")
    [coordinator] = coordinators()
    executor = next(parent for parent in coordinator.parents() if parent.name() == "java")
    trained_there = int((tmp_path / "pid-1").read_text()) in {child.pid for child in executor.children(recursive=True)}
    executor.kill()
    if trained_there:
        wait_until((tmp_path / "start-2").exists, STARTS_S, "a successor starts it again")
    (tmp_path / "hold").unlink()
    result = handle.result(ENDS_S)
    assert isinstance(result, st.RunResult)
    # The agent on the other executor holds it, and the successor adopts it: it continues in its first attempt.
    assert (result.status, result.metrics) == ("succeeded", {"y": 2.0 if trained_there else 1.0})


def test_a_client_learns_why_a_run_failed(spark: SparkSession, runs: Path) -> None:
    def train() -> float:
        raise ValueError("no such image")

    handle = st.submit(train, kind="run", workers=1, spark=spark, dir=str(runs), name="run", **IN_CLUSTER)
    with pytest.raises(st.RunFailedError, match="no such image"):
        handle.result(ENDS_S)
    assert handle.status == "failed"
