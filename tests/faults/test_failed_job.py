"""Spark gives the job of the agents up when one slot has failed too often, and ends healthy agents with it."""

from pathlib import Path

import msgspec
import pytest

import sparktrain as st
from tests.support import drill
from tests.support.drill import Strike
from tests.support.local_spark import spark_session

NO_SECOND_TASK = "local[2,1]"
"""Two slots, and a job ends with the first task that fails."""


def test_a_job_that_spark_gives_up_costs_a_gang_one_restart(
    runs: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """No generation starts on an agent that Spark is about to end."""
    caplog.set_level("WARNING", "sparktrain")
    strikes = [Strike(1, 17, 1, "agent")]
    folder = tmp_path / "notes"
    folder.mkdir()
    params = {"folder": str(folder), "strikes": [msgspec.to_builtins(each) for each in strikes]}
    with spark_session(NO_SECOND_TASK, tmp_path) as spark:
        result = st.run(
            drill.train, params, workers=2, backend="none", dir=str(runs), spark=spark, max_retries=4,
            preload=["numpy"], progress=False,
        )  # fmt: skip
    assert result.metrics == {"value": drill.expected()}
    assert len(list(folder.glob("*.victim-*"))) == len(strikes), "each kill met its generation"
    assert len(result.restarts) == len(strikes), [each.cause for each in result.restarts]
    said = [each.message for each in caplog.records if "is resubmitted" in each.message]
    assert len(said) == len(strikes)
    assert said[0].startswith(
        "the Spark job of the agents is resubmitted, for it ended: org.apache.spark.SparkException"
    )
    assert said[0].endswith("raise spark.task.maxFailures, by default 4, above the losses to outlast")
