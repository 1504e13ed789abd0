"""Jobs under spark-submit with the files of conf/ use the session of spark-submit."""

import json
import sys
from pathlib import Path

import pytest

from sparktrain.cluster.spark_session import jvm_here
from tests.conf import CONF
from tests.spark.command import finish, start, write_files

JOBS = CONF.parent / "jobs"
ENDS_S = 280.0


def submitted(folder: Path, job: str, *arguments: str) -> tuple[int, bytes, str]:
    """Run a job with conf/local.conf; return exit code, stdout and stderr."""
    fast = ["--conf", f"spark.executor.extraJavaOptions={jvm_here()}"]
    submit = ["--properties-file", str(CONF / "local.conf"), *fast, str(JOBS / job), *arguments]
    env = {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_WORKER_DIR": str(folder / "work")}
    return finish(start(folder, *submit, command="spark-submit", SPARK_SUBMIT_OPTS=jvm_here(), **env))


@pytest.mark.all(
    case="a sweep as a job of spark-submit, with `conf/local.conf`",
    covered_by="a program of spark-submit; `hadoop/test_submit`: the same job in cluster mode",
)
def test_spark_submit_runs_the_grid_search_job(tmp_path: Path) -> None:
    target, runs = f"{write_files(tmp_path)}:train", str(tmp_path / "runs")
    sweep = [
        target,
        "--grid",
        "x=1,2",
        "--grid",
        "scale=10",
        "--metric",
        "y",
        "--mode",
        "max",
        "--dir",
        runs,
        "--name",
        "job",
        "--json",
    ]
    code, out, stderr = submitted(tmp_path, "grid_search.py", *sweep)
    assert code == 0, stderr
    result = (tmp_path / "runs" / "job" / "results.json").read_bytes()
    assert out.endswith(b"\n" + result), out  # after the progress: spark-submit writes stderr of Python to its stdout
    assert b"job: 2 of 2 trials done" in out
    assert [trial["metrics"]["y"] for trial in json.loads(result)["trials"]] == [20.0, 40.0]


@pytest.mark.all(
    case="the doctor as a job of spark-submit", covered_by="`spark/test_doctor`: the doctor on the command line"
)
def test_spark_submit_runs_the_doctor_job(tmp_path: Path) -> None:
    code, out, stderr = submitted(tmp_path, "doctor.py", "--dir", str(tmp_path / "runs"))
    assert code == 0, out.decode() + stderr
    assert b"every slot connects to the driver, by mutual TLS" in out
    assert b"0 FAIL, " in out


@pytest.mark.timeout(300)
def test_a_program_of_spark_submit_submits_attaches_and_has_its_coordinator_beside_an_agent(tmp_path: Path) -> None:
    fast = ["--conf", f"spark.driver.extraJavaOptions={jvm_here()}", "--conf", "spark.ui.enabled=false"]
    env = {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    program = str(Path(__file__).with_name("submitting_program.py"))
    words = ["--master", "local[2]", *fast, program, str(tmp_path)]
    code, out, stderr = finish(
        start(tmp_path, *words, command="spark-submit", SPARK_SUBMIT_OPTS=jvm_here(), **env), timeout_s=ENDS_S
    )
    assert code == 0, out.decode() + stderr
    seen = json.loads((tmp_path / "seen.json").read_text())
    doubled = [{"y": 2.0}, {"y": 4.0}]
    assert [seen[name] for name in ("submitted", "attached", "swept")] == [doubled] * 3
    ends = b"Spark ends the run with this process, which has the application on local[2]"
    assert b"submitted: the coordinator runs in the cluster: the run was submitted; " + ends in out
    assert seen["here"].startswith(
        "SpecError: coordinator='cluster' with spark=sparktrain.local(): there is no cluster"
    )
    assert seen["nowhere"].startswith("SpecError: submit() with coordinator='driver'")
    assert seen["runs"] == ["submitted", "swept"], "what is refused leaves nothing"
