"""Streams under faults of Spark: a killed driver, and tasks that Spark starts a second time."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from sparktrain.protocol.feed_messages import FEED_LEASE_S
from tests.faults.standalone import standalone
from tests.spark.stream_drivers import ROWS
from tests.support.mortal import Mortal


@pytest.mark.all(
    case="Spark speculates on a slow task of a stream",
    covered_by="`process/test_streams`: a second attempt waits for the first, or replaces it; "
    "`spark/test_streams`: a task that fails is retried",
)
def test_rows_come_once_though_spark_speculates(tmp_path: Path) -> None:
    """Spark starts the second attempt of a slow task on another host."""
    with standalone(tmp_path, ["127.0.0.1", "127.0.0.2"]) as cluster:
        command = [sys.executable, "-m", "tests.spark.stream_drivers", cluster.url, str(tmp_path)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=150, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found == {
        "fed": [[0, ROWS // 2], [1, ROWS // 2]],
        "attempts": ["attempt-0-0", "attempt-1-0", "attempt-1-1"],
        "ids": [[0, ROWS - 1]],
    }


@pytest.mark.all(
    case="the driver is killed while it feeds",
    covered_by="`faults/test_driver_death`; `spark/test_streams`: a killed member is fed again",
)
def test_a_run_whose_driver_is_killed_while_it_feeds_is_fed_again(tmp_path: Path) -> None:
    (tmp_path / "hold").touch()
    first = Mortal("tests.spark.stream_drivers:fed", tmp_path).start()
    try:
        first.wait((tmp_path / "reads-1").exists, "the first rows")
        first.strike("both").wait_gone(FEED_LEASE_S)
    finally:
        first.close()
    (tmp_path / "hold").unlink()
    second = Mortal("tests.spark.stream_drivers:fed", tmp_path).start()
    try:
        assert second.result() == {"rows": ROWS, "different": ROWS, "generation": 2}
    finally:
        second.close()
