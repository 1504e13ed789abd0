"""The command line in a user's shell: exit codes, output streams, files and processes afterwards."""

import json
import os
import re
import signal
from pathlib import Path

import pytest

from tests.spark.command import HANG_S, finish, on_a_terminal, start, write_files
from tests.support.local_spark import ONE_EXECUTOR
from tests.support.processes import Sighted, descendants, wait_until, written_pids

GONE_S = 5.0
USAGE_S = 30.0
IN_ONE_JVM = "local[2]"
"""A master without executors of their own, for a call that loses no process."""
PROGRESS = re.compile(r"\[\d+:\d\d\] ")

JAVA = "#!/bin/sh\ntouch {started}\nexit 1\n"
"""A folder in place of Java, for calls that must not start it."""


@pytest.mark.timeout(HANG_S + 10)
def test_stdout_is_the_result_alone_as_in_the_run_directory(tmp_path: Path) -> None:
    target, runs = f"{write_files(tmp_path)}:train", str(tmp_path / "runs")
    arguments = (
        "--grid",
        "x=1,3,2",
        "--metric",
        "y",
        "--mode",
        "max",
        "--master",
        IN_ONE_JVM,
        "--dir",
        runs,
        "--name",
        "run",
        "--json",
    )
    (tmp_path / "tmp").mkdir()
    code, out, stderr = finish(start(tmp_path, "sweep", target, *arguments, TMPDIR=str(tmp_path / "tmp")), HANG_S)
    assert code == 0, stderr
    assert out == (tmp_path / "runs" / "run" / "results.json").read_bytes()
    result = json.loads(out)
    assert [trial["metrics"] for trial in result["trials"]] == [{"y": 2 * x, "x": x} for x in (1, 3, 2)]
    assert (result["status"], result["best"]["params"]) == ("succeeded", {"x": 3})
    assert Path(result["trials"][0]["log"]).read_text().splitlines()[-1] == "scale 1"
    assert "run: 3 of 3 trials done" in stderr
    others = [line for line in stderr.splitlines() if not PROGRESS.match(line)]
    before = ["imported", f"starting Spark on {IN_ONE_JVM} ...", "run: metric y, higher is better"]
    kept = [log.read_text() for log in (tmp_path / "tmp").glob("sparktrain-driver-*.log")]
    assert (others, kept) == (before, []), "stderr has lines of the run alone"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["code", "runs", "tmp"], "Spark left files behind"
    assert not list((tmp_path / "tmp").glob("sparktrain-spark-*"))


@pytest.mark.all(
    case="a sweep with failed trials alone exits with 3",
    covered_by="`process/test_failed_trials`: the same trials; `unit/cli/test_cli`: the exit code",
)
def test_a_sweep_with_failed_trials_alone_reports_the_cause_and_exits_with_3(tmp_path: Path) -> None:
    target, runs = f"{write_files(tmp_path)}:train", str(tmp_path / "runs")
    grid = ("--grid", "x=-1,-2", "--metric", "y", "--mode", "max", "--quiet")
    code, out, stderr = finish(
        start(tmp_path, "sweep", target, *grid, "--master", ONE_EXECUTOR, "--dir", runs, "--name", "bad")
    )
    assert code == 3, stderr
    table = out.decode()
    assert "bad: failed. 2 trials, 2 failed" in table
    assert "trial 0 failed: ValueError: x (-1) is below zero" in table
    assert 'File "code/command_train.py", line 10, in train\n' in table
    assert 'raise ValueError(f"x ({x}) is below zero")' in table
    log = (tmp_path / "runs" / "bad" / "trials" / "0000" / "generation-1" / "rank-0" / "log.txt").read_text()
    assert log.endswith("ValueError: x (-1) is below zero\n")
    assert stderr == "", "--quiet shows nothing"
    assert json.loads((tmp_path / "runs" / "bad" / "results.json").read_text())["status"] == "failed"


@pytest.mark.all(
    case="a terminal has no line of Spark, though executors die",
    covered_by="stderr has the run's lines alone; `unit/cluster/test_jvm`: which log is kept",
)
def test_a_terminal_has_no_line_of_spark_though_executors_die(tmp_path: Path) -> None:
    target = f"{write_files(tmp_path)}:murder"
    (tmp_path / "tmp").mkdir()
    arguments = ("--grid", "x=1,2", "--metric", "y", "--mode", "max", "--dir", str(tmp_path / "runs"))
    code, screen = on_a_terminal(tmp_path, "sweep", target, *arguments, TMPDIR=str(tmp_path / "tmp"))
    assert code == 0, screen
    assert "2 trials" in screen
    assert not re.search(r"WARN|ERROR|TaskSchedulerImpl|native-hadoop|log4j|incubator|absl|cpu_feature_guard", screen)
    [log] = (tmp_path / "tmp").glob("sparktrain-driver-*.log")
    assert str(log) in screen.replace("\r\n", "")
    assert re.search(r"ERROR TaskSchedulerImpl: Lost executor", log.read_text())


def test_a_start_that_fails_shows_what_spark_logs(tmp_path: Path) -> None:
    target = f"{write_files(tmp_path)}:train"
    options = (
        "--master",
        IN_ONE_JVM,
        "--conf",
        "spark.driver.port=nowhere",
        "--grid",
        "x=1",
        "--metric",
        "y",
        "--json",
    )
    code, out, stderr = finish(start(tmp_path, "sweep", target, *options, "--mode", "max"))
    assert (code, out) == (2, b""), stderr
    assert re.search(r"ERROR SparkContext: Error initializing SparkContext", stderr)
    assert "error: no Spark session on local[2]: org.apache.spark.SparkIllegalArgumentException: " in stderr


def test_ctrl_c_keeps_results_and_leaves_no_process(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    pids.mkdir()
    target, runs = f"{write_files(tmp_path)}:hold", str(tmp_path / "runs")
    grid = ("--grid", "x=0,1", "--grid", f"pids={pids}", "--metric", "y", "--mode", "max", "--json")
    process = start(tmp_path, "sweep", target, *grid, "--master", ONE_EXECUTOR, "--dir", runs, "--name", "cut")
    everything = Sighted([process.pid])
    try:
        wait_until(lambda: len(list(pids.glob("ready-*"))) == 2 or process.poll() is not None, 100.0, "training")
        assert process.poll() is None, finish(process)
        training = Sighted(written_pids(pids))
        everything = Sighted([process.pid, *(each.pid for each in descendants(process.pid)), *written_pids(pids)])
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does: the JVM gets it too
        training.wait_gone(GONE_S)
        code, out, stderr = finish(process)
        everything.wait_gone(GONE_S)
    finally:
        everything.kill()
    assert (code, out) == (130, b"")
    assert f"error: run cut was interrupted; {runs}/cut has its results so far" in stderr
    assert "Traceback" not in stderr
    assert json.loads((tmp_path / "runs" / "cut" / "results.json").read_text())["status"] == "stopped"


USAGE = {
    "function": (
        ("{file}:trian", "--grid", "x=1", "--metric", "y", "--mode", "max"),
        "{file}: no function 'trian'; did you mean 'train'?",
    ),
    "parameter": (
        ("{file}:train", "--grid", "scal=1,2", "--grid", "x=1", "--metric", "y", "--mode", "max"),
        "train() (command_train.py:7) has no parameter 'scal'; did you mean 'scale'?",
    ),
    "key": (
        ("{file}:train", "--params", "{folder}/command_params.yaml"),
        "{folder}/command_params.yaml:5: ",
    ),
    "agents": (
        ("{file}:train", "--grid", "x=1", "--metric", "y", "--mode", "max", "--max-concurrent-trials", "0"),
        "--max-concurrent-trials (0) must be at least 1",
    ),
}


@pytest.mark.parametrize("mistake", USAGE)
def test_a_wrong_call_exits_with_2_before_java_is_started(tmp_path: Path, mistake: str) -> None:
    file, started = write_files(tmp_path), tmp_path / "java-was-started"
    (tmp_path / "jdk" / "bin").mkdir(parents=True)
    java = tmp_path / "jdk" / "bin" / "java"
    java.write_text(JAVA.format(started=started))
    java.chmod(0o755)
    places = {"file": str(file), "folder": str(file.parent)}
    arguments, expected = USAGE[mistake]
    given = [argument.format(**places) for argument in arguments]
    code, out, stderr = finish(start(tmp_path, "sweep", *given, "--json", JAVA_HOME=str(tmp_path / "jdk")), USAGE_S)
    assert (code, out) == (2, b""), stderr
    assert f"error: {expected.format(**places)}" in stderr
    assert "Traceback" not in stderr
    assert not started.exists()
    assert not (tmp_path / "sparktrain-runs").exists()
