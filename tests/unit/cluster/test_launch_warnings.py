"""What a session's configuration means, at every level."""

import logging

import pytest
from msgspec.structs import replace

import sparktrain
from sparktrain.cluster import spark_facts
from sparktrain.cluster.check_finding import Level
from sparktrain.cluster.launch_warnings import (
    launch_findings,
    packages_findings,
    security_findings,
    session_findings,
    slots_finding,
    spark_findings,
    warn,
)
from sparktrain.errors import ResourceError, SpecError
from tests.unit.ops.doctor.seen import DRIVER, VERSIONS, facts, only, reads

YARN = {"executor.instances": "2", "executor.cores": "2"}


def test_slots_are_counted_as_a_run_counts_them() -> None:
    finding, count = slots_finding(facts("local-cluster[2,1,1024]"), None)
    assert count == 2
    assert reads(finding, Level.PASS, "2 slots on local-cluster[2,1,1024]; a run takes 2")
    finding, count = slots_finding(facts("yarn", **YARN), 3)
    assert (count, reads(finding, Level.PASS, "4 slots on yarn; a run takes 3")) == (3, True)


def test_too_few_slots_are_reported_as_a_launch_reports_them() -> None:
    finding, count = slots_finding(facts("local-cluster[2,1,1024]", **{"task.cpus": "2"}), None)
    assert count == 0
    assert reads(finding, Level.FAIL, "has 0 slots, and one trial needs 1", "lower spark.task.cpus (2)")
    finding, count = slots_finding(facts("local[2]"), 5)
    assert (count, reads(finding, Level.FAIL, "agents (5) exceeds the 2 slots", "lower it")) == (0, True)
    with pytest.raises(SpecError):
        slots_finding(facts("local[2]"), 0)


def test_an_unknown_number_of_slots_is_a_warning() -> None:
    finding, count = slots_finding(facts("spark://host:7077"), None)
    assert count == 2
    assert reads(finding, Level.WARN, "does not determine how many slots spark://host:7077 has; a run starts 2 agents")
    assert "the session" in slots_finding(facts(""), None)[0].message


MEMORY = [
    ({}, Level.WARN, ("1024 MiB for its JVM, and 384 MiB for the Python of 1 slot", "memoryOverhead=2048m")),
    ({"executor.cores": "4"}, Level.WARN, ("the Python of 4 slots", "memoryOverhead=8192m")),
    ({"executor.memory": "20g"}, Level.PASS, ("20480 MiB for its JVM, and 2048 MiB",)),
    ({"executor.memoryOverhead": "1g"}, Level.PASS, ("and 1024 MiB",)),
    ({"executor.pyspark.memory": "1g"}, Level.PASS, ("and 1408 MiB",)),
    ({"executor.memoryOverhead": "1g", "executor.cores": "2"}, Level.WARN, ("memoryOverhead=4096m",)),
]


@pytest.mark.parametrize(("conf", "level", "words"), MEMORY)
def test_what_yarn_leaves_to_python_is_weighed(conf: dict[str, str], level: Level, words: tuple[str, ...]) -> None:
    assert reads(only(launch_findings(facts("yarn", **conf)), "memory"), level, *words)


def test_pods_without_time_to_leave_are_a_warning() -> None:
    finding = only(launch_findings(facts("k8s://host")), "decommission")
    assert reads(finding, Level.WARN, "a pod that is deleted or evicted ends at once", "set it to true")
    assert launch_findings(facts("k8s://host", **{"decommission.enabled": "true"})) == []


def test_memory_is_not_weighed_where_nothing_counts_it() -> None:
    assert launch_findings(facts("spark://host:7077")) == []


def test_a_launch_warns_of_what_costs_and_of_nothing_else(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "sparktrain"):
        warn(facts("local[2]"))
        assert caplog.messages == []
        warn(facts("spark://host:7077", speculation="true"))
    [warning] = caplog.messages
    assert warning.startswith("speculation: spark.speculation=true: Spark may start a second agent")


def test_every_call_warns_before_it_starts_anything(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spark_facts, "active_session", lambda spark: spark)
    monkeypatch.setattr(spark_facts, "read_facts", lambda session, cores: facts("local[1]", speculation="true"))
    with caplog.at_level(logging.WARNING, "sparktrain"), pytest.raises(ResourceError):
        sparktrain.pool(agents=5)
    assert [message.partition(":")[0] for message in caplog.messages] == ["speculation"]


def test_gpus_are_what_spark_gives() -> None:
    assert session_findings(facts("spark://h:1"), 0) == []
    given = {"task.resource.gpu.amount": "1", "executor.resource.gpu.amount": "1"}
    assert reads(only(session_findings(facts("spark://h:1", **given), 1), "gpus"), Level.PASS, "each slot gets 1")
    assert reads(
        only(session_findings(facts("spark://h:1"), 1), "gpus"), Level.FAIL, "gpus (1) must be what Spark gives"
    )
    assert reads(only(session_findings(facts("local[2]"), 1), "gpus"), Level.FAIL, "are not available on local[2]")


def test_versions_of_spark_and_java() -> None:
    assert reads(only(spark_findings(DRIVER), "spark"), Level.PASS, "Spark 4.3.0, Java 17.0.15")
    alone = replace(DRIVER, spark=None)
    assert reads(only(spark_findings(alone), "spark"), Level.PASS, "PySpark 4.3.0, Java 17.0.15")
    connect = replace(DRIVER, java="", spark="4.3.1")
    assert reads(only(spark_findings(connect), "spark"), Level.PASS, "a Java on another machine")
    assert reads(only(spark_findings(replace(DRIVER, spark="4.0.0")), "spark"), Level.WARN, "4.3.0 here", "4.0.0")


@pytest.mark.parametrize("java", ["1.8.0_402", "11.0.2", "16"])
def test_a_java_that_spark_cannot_use_fails(java: str) -> None:
    assert reads(only(spark_findings(replace(DRIVER, java=java)), "java"), Level.FAIL, java, "JDK 17")


def test_no_java_fails_where_no_session_shows_that_there_is_one() -> None:
    assert reads(only(spark_findings(replace(DRIVER, java="", spark=None)), "java"), Level.FAIL, "there is no Java")


def test_packages_of_the_driver() -> None:
    assert reads(only(packages_findings(DRIVER), "python"), Level.PASS, "Python 3.11.7", "TensorFlow 2.21.0", "on head")
    bare = replace(DRIVER, versions={"python": "3.11", "sparktrain": "0.1.0"})
    assert [each.level for each in packages_findings(bare)] == [Level.PASS]
    without = replace(DRIVER, versions={name: VERSIONS[name] for name in VERSIONS if name != "horovod"})
    assert reads(only(packages_findings(without), "horovod"), Level.WARN, "needs Horovod", "make horovod")


def test_what_travels_between_driver_and_executors() -> None:
    ours, sparks = security_findings(facts("local-cluster[2,1,1024]"))
    assert reads(ours, Level.PASS, "mutual TLS")
    assert reads(sparks, Level.PASS, "stays on this machine")
    assert reads(security_findings(facts("yarn"))[1], Level.WARN, "spark.authenticate=true")
    half = {"authenticate": "true"}
    assert reads(security_findings(facts("yarn", **half))[1], Level.WARN, "spark.network.crypto.enabled=true")
    for key in ("network.crypto.enabled", "ssl.rpc.enabled"):
        assert reads(security_findings(facts("yarn", **half, **{key: "true"}))[1], Level.PASS, "encrypts")


@pytest.mark.parametrize(
    ("master", "host", "warned"),
    [
        ("k8s://h", "notebook-0", True),
        ("k8s://h", "10.1.2.3", False),
        ("k8s://h", "fd00::3", False),
        ("k8s://h", "driver.training.svc", False),
        ("yarn", "edge", False),
    ],
)
def test_a_pod_that_gives_its_own_name_to_executors_is_warned(master: str, host: str, warned: bool) -> None:
    findings = [finding for finding in launch_findings(facts(master, **{"driver.host": host}))
                if finding.check == "driver address"]  # fmt: skip
    assert bool(findings) == warned
    if warned:
        assert reads(findings[0], Level.WARN, f"spark.driver.host is {host}: executors", "address of this pod")
