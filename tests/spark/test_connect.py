"""The same calls on a Spark Connect session."""

import json
import subprocess
import sys
from pathlib import Path


def test_sweep_and_pool_work_on_a_connect_session(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.spark.connect_driver", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    seen = json.loads(done.stdout.splitlines()[-1])
    assert seen["session"] == "pyspark.sql.connect.session"
    assert seen["sweep"] == [1.0, 4.0, 9.0]
    assert seen["pool"] == [{"result": 8.0}, {"result": 10.0}]
    assert seen["afterwards"] == 10
