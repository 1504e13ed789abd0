"""The grid-search job under spark-submit, with the files of conf/: its session is the one that spark-submit makes."""

import json
import sys
from pathlib import Path

from tests.conf import CONF
from tests.spark.command import finish, start, write_files

JOB = CONF.parent / "jobs" / "grid_search.py"


def test_spark_submit_runs_the_grid_search_job(tmp_path: Path) -> None:
    target, runs = f"{write_files(tmp_path)}:train", str(tmp_path / "runs")
    submit = ["--properties-file", str(CONF / "local.conf")]
    sweep = [target, "--grid", "x=1,2", "--grid", "scale=10", "--metric", "y", "--dir", runs, "--name", "job", "--json"]
    env = {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_WORKER_DIR": str(tmp_path / "work")}
    code, out, told = finish(start(tmp_path, *submit, str(JOB), *sweep, command="spark-submit", **env))
    assert code == 0, told
    result = (tmp_path / "runs" / "job" / "results.json").read_bytes()
    assert out.endswith(b"\n" + result), out  # after the progress: spark-submit writes stderr of Python to its stdout
    assert b"job: 2 of 2 trials done" in out
    assert [trial["metrics"]["y"] for trial in json.loads(result)["trials"]] == [20.0, 40.0]
