"""What a JVM of Spark writes, and what of it reaches people."""

import os
import re
import tempfile
from pathlib import Path

import pytest

from sparktrain.cluster import jvm


def test_a_worker_that_ends_with_its_cancelled_task_is_no_warning() -> None:
    line = "Incomplete task interrupted: Attempting to kill Python Worker - task 1.0 in stage 0 (TID 1)"
    assert re.fullmatch(jvm.EXPECTED, line)


def test_a_message_that_comes_while_spark_stops_is_no_error() -> None:
    line = "Error while invoking RpcHandler#receive() for one-way message from /127.0.0.1:38374."
    assert re.fullmatch(jvm.LATE, line)
    assert not re.fullmatch(jvm.LATE, "Lost executor 0 on 127.0.0.1: worker lost")


@pytest.mark.parametrize(
    ("tag", "dropped"),
    [("sparktrain-d8103a80ff8f", True), ("users-own", False)],
)
def test_tasks_that_a_closing_pool_ends_are_no_warning(tag: str, dropped: bool) -> None:
    line = (
        "Lost task 0.0 in stage 7.0 (TID 5) (node-1 executor 0): TaskKilled (Stage cancelled: [SPARK_JOB_CANCELLED] "
        f"Job 6 cancelled part of cancelled job tags {tag} SQLSTATE: XXKDA)"
    )
    assert (re.fullmatch(jvm.EXPECTED, line) is not None) is dropped


WARNING = "2026-11-24 03:02:05 WARN NativeCodeLoader: Unable to load native-hadoop library\n"
ERROR = "2026-11-24 03:02:12 ERROR TaskSchedulerImpl: Lost executor 0 on 127.0.0.1: Command exited with code 137\n"


@pytest.mark.parametrize(
    ("log", "failed", "line"),
    [
        (None, True, None),
        ("", True, None),
        (WARNING, False, None),
        (WARNING, True, "Spark logged warnings in the driver: "),
        (WARNING + ERROR + "  at ERROR (of a traceback)\n", False, "Spark logged 1 error in the driver: "),
        (ERROR * 2, True, "Spark logged 2 errors in the driver: "),
    ],
)
def test_a_log_with_errors_outlives_its_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, log: str | None, failed: bool, line: str | None
) -> None:
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    if log is not None:
        (tmp_path / "spark.log").write_text(log)
    found = jvm.kept_log(str(tmp_path), failed=failed)
    assert (found is None) == (line is None)
    if found is None or line is None:
        assert not list((tmp_path / "tmp").iterdir())
    else:
        assert found.startswith(line)
        assert Path(found.removeprefix(line)).read_text() == log


def test_a_log_that_cannot_be_kept_costs_the_line_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "none"))
    (tmp_path / "spark.log").write_text(ERROR)
    assert jvm.kept_log(str(tmp_path), failed=True) is None


def test_a_log_of_the_users_own_is_left_alone(tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", "-Dx=1")
    monkeypatch.delenv("SPARK_HOME", raising=False)
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    with jvm._quiet_log(str(tmp_path)):
        assert os.environ["SPARK_SUBMIT_OPTS"] == f"-Dx=1 -Dlog4j2.configurationFile={tmp_path}/log4j2.properties"
    with jvm._quiet_log(str(tmp_path)):  # now there is one in SPARK_CONF_DIR
        assert os.environ["SPARK_SUBMIT_OPTS"] == "-Dx=1"
    assert os.environ["SPARK_SUBMIT_OPTS"] == "-Dx=1"
