"""What a JVM of Spark writes, and what of it reaches people."""

import os
import re

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


def test_a_log_of_the_users_own_is_left_alone(tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", "-Dx=1")
    monkeypatch.delenv("SPARK_HOME", raising=False)
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    with jvm._quiet_log(str(tmp_path)):
        assert os.environ["SPARK_SUBMIT_OPTS"] == f"-Dx=1 -Dlog4j2.configurationFile={tmp_path}/log4j2.properties"
    with jvm._quiet_log(str(tmp_path)):  # now there is one in SPARK_CONF_DIR
        assert os.environ["SPARK_SUBMIT_OPTS"] == "-Dx=1"
    assert os.environ["SPARK_SUBMIT_OPTS"] == "-Dx=1"
