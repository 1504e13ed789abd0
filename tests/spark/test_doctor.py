"""The doctor on a cluster of two executor processes."""

import json
import os
import socket
from contextlib import nullcontext
from functools import partial
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sparktrain.base.clock import SystemClock
from sparktrain.cluster.check_finding import Finding, Level
from sparktrain.cluster.driver_address import HOST_KEY
from sparktrain.cluster.spark_facts import read_facts
from sparktrain.config.store_address import StoreAddress
from sparktrain.ops.doctor import examine, rollcall
from sparktrain.ops.doctor.examine import ClusterExaminer, Examination, ExaminationRequest
from sparktrain.ops.doctor.rollcall import Shared, call_roll
from tests.spark.command import MASTER, finish, start
from tests.support.processes import Sighted, descendants

MINUTE_S = 60.0
CHECKS = {
    "python", "spark", "slots", "store", "executors", "driver reachable",
    "versions", "ports", "clock", "free memory", "shared memory", "store on executors", "security",
}  # fmt: skip


def examined(spark: SparkSession, directory: str | None = None) -> Examination:
    """Examine the cluster, in less than a minute."""
    clock = SystemClock()
    started = clock.now()
    found = ClusterExaminer(ExaminationRequest(directory, lambda: nullcontext(spark)), os.cpu_count() or 1).examine()
    assert clock.now() - started < MINUTE_S
    return found


def the(found: Examination, check: str) -> Finding:
    [finding] = [each for each in found.findings if each.check == check]
    return finding


@pytest.mark.all(
    case="the doctor's command, its JSON, and that it leaves nothing",
    covered_by="`unit/ops/test_doctor_command`: the command; the findings of a session",
)
def test_the_command_line_prints_its_findings_as_json_and_leaves_no_file(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    process = start(tmp_path, "doctor", "--master", MASTER, "--dir", str(runs), "--json")
    everything = Sighted([process.pid])
    try:
        code, out, stderr = finish(process)
        everything.wait_gone(5.0)
    finally:
        everything.kill()
    assert code == 0, stderr
    report = json.loads(out)
    assert report["version"] == 1
    assert {each["check"] for each in report["findings"]} - {"horovod"} == CHECKS | {"directory"}, out
    assert [each for each in report["findings"] if each["level"] == "fail"] == []
    assert report["unseen"] == []
    assert [slot["slot"] for slot in report["slots"]] == [0, 1]
    for slot in report["slots"]:
        assert (slot["problem"], slot["late"], slot["store"], slot["shared"]) == ("", False, "", True)
        assert [peer["problem"] for peer in slot["peers"]] == [""]
        assert abs(slot["ahead_s"]) <= slot["margin_s"] + 0.1, "both clocks agree"
        assert slot["java"].startswith("17")
    assert len({slot["executor"] for slot in report["slots"]}) == 2
    assert not runs.exists()
    assert "Traceback" not in stderr


def test_a_driver_that_executors_cannot_reach_is_reported_as_by_a_run(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(examine, "call_roll", partial(call_roll, form_s=8.0))
    spark.conf.set(HOST_KEY, "no-such-host.invalid")
    try:
        found = examined(spark)
    finally:
        spark.conf.unset(HOST_KEY)
    finding = the(found, "driver reachable")
    assert finding.level is Level.FAIL
    assert "no-such-host.invalid: name not resolved" in finding.message
    assert finding.fix.startswith(f"set {HOST_KEY} to an address of the driver that executors reach")
    assert found.level is Level.FAIL


def test_findings_of_executors_are_reported_when_the_store_fails(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    found = examined(spark, str(tmp_path / "file"))
    assert the(found, "store").level is Level.FAIL
    assert the(found, "ports").level is Level.PASS
    assert [each for each in found.findings if each.check == "store on executors"] == []


def test_slots_that_do_not_run_together_are_reported(spark: SparkSession) -> None:
    roll = call_roll(spark, read_facts(spark, 1), 3, Shared(), form_s=3.0)
    assert roll.error == ""
    assert [each.visit.late for each in roll.answers].count(True) == 1
    assert spark.range(0, 10, 1, 2).count() == 10, "both slots are free again"
    assert not descendants(os.getpid(), "sparktrain.training")


def test_a_job_that_does_not_end_is_cancelled(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its slots wait for a store that accepts connections and never answers: they give it up after 10 s."""
    monkeypatch.setattr(rollcall, "CONNECTED_S", 0.5)  # the rest is for slots to connect, on a busy machine too
    with socket.create_server(("127.0.0.1", 0)) as silent:
        store = Shared(StoreAddress(f"hdfs://127.0.0.1:{silent.getsockname()[1]}/runs"), "probe")
        roll = call_roll(spark, read_facts(spark, 1), 2, store, job_timeout_s=9.0)
    assert roll.answers == ()
    assert roll.error == "2 slots connected, and the job did not end within 9 s"
    assert spark.range(0, 10, 1, 2).count() == 10, "both slots are free again"
