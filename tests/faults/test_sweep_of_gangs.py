"""A sweep of gangs loses an executor: each trial has one result."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pyspark.sql import SparkSession

import sparktrain as st
from tests.support import drill
from tests.support.drill import Strike
from tests.support.local_spark import spark_session


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Two executors with two slots each."""
    with spark_session("local-cluster[2,2,1024]", tmp_path_factory.mktemp("spark")) as session:
        session.range(0, 4, 1, 4).count()
        yield session


@pytest.mark.all(
    case="an executor is lost in a sweep of gangs", covered_by="`faults/test_gangs`; `histories/test_gangs`"
)
def test_a_sweep_of_gangs_loses_no_trial_with_an_executor(spark: SparkSession, runs: Path) -> None:
    folder = runs / "notes"
    folder.mkdir(parents=True)
    strikes = [msgspec.to_builtins(Strike(1, 10, 0, "executor"))]
    cases = [
        {"folder": str(folder), "strikes": strikes if number == 1 else [], "number": number} for number in range(6)
    ]
    result = st.sweep(
        numbered, cases, metric="value", mode="max", workers_per_trial=2, backend="none", preload=["numpy"],
        dir=str(runs), name="sweep", progress=False,
    )  # fmt: skip
    assert [trial.status for trial in result.trials] == ["succeeded"] * 6
    assert [trial.metrics["value"] for trial in result.trials] == [drill.expected() + number for number in range(6)]
    assert sum(trial.generations for trial in result.trials) >= 7


def numbered(folder: str, strikes: list[dict[str, Any]], number: int, ctx: Any) -> dict[str, float]:
    """A drill with a result that identifies the trial."""
    return {"value": drill.train(folder, strikes, ctx)["value"] + number}
