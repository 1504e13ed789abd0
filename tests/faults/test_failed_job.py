"""Spark gives the job of the agents up when one slot has failed too often, and ends healthy agents with it."""

import subprocess
import sys
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


@pytest.mark.all(
    case="a gang that waits for an agent on an executor that Spark excludes after a loss",
    covered_by="`unit/cluster/test_spark_settings`: what explains why agents do not start",
)
@pytest.mark.timeout(500)
def test_a_gang_that_waits_for_an_excluded_executor_ends_with_the_key(tmp_path: Path) -> None:
    program = [sys.executable, "-m", "tests.faults.excluded_executor", str(tmp_path)]
    ended = subprocess.run(program, capture_output=True, text=True, timeout=450)
    assert "1 of 2 agents" in ended.stdout, ended.stderr
    assert "spark.excludeOnFailure.enabled=true: after a loss Spark may start no agent" in ended.stdout
