"""The findings from the answers of slots, at every level."""

import pytest
from msgspec.structs import replace

from sparktrain.cluster.check_finding import Finding, Level
from sparktrain.ops.doctor.slots import Roll, slots_findings
from sparktrain.protocol.checkup_report import Peer, SlotReport
from tests.unit.ops.doctor.seen import DRIVER, GIB, OTHER, SLOT, VERSIONS, only, reads, slot

BARE = {"python": "3.11", "sparktrain": "0.1.0"}


def found(*slots: SlotReport, gpus: bool = False, driver: object = DRIVER) -> list[Finding]:
    assert isinstance(driver, type(DRIVER))
    return slots_findings(Roll(len(slots), slots), driver, gpus)


def test_all_is_well() -> None:
    findings = found(SLOT, OTHER)
    assert {each.level for each in findings} == {Level.PASS}
    assert [each.check for each in findings] == [
        "executors", "driver reachable", "versions", "ports", "clock", "free memory", "shared memory",
        "store on executors",
    ]  # fmt: skip
    assert "2 slots answered, on a, b" in findings[0].message
    assert "2 connections, 2 hosts" in only(findings, "ports").message


def test_no_slot_answers() -> None:
    [finding] = slots_findings(Roll(2, (), "the job ended"), DRIVER, False)
    assert reads(finding, Level.FAIL, "no slot has answered: the job ended")


def test_some_do_not_answer_or_come_late() -> None:
    [finding, *_] = slots_findings(Roll(3, (SLOT, OTHER), "lost"), DRIVER, False)
    assert reads(finding, Level.WARN, "2 of 3 slots answered: lost")
    finding = only(found(SLOT, slot(late=True, peers=())), "executors")
    assert reads(finding, Level.WARN, "1 of 2 slots started when the others had ended")
    late = slot(late=True, peers=())
    assert reads(
        only(found(late, late), "executors"), Level.WARN, "no slot was ready in time", "executors start slowly"
    )


def test_an_unreachable_driver_is_reported_as_a_run_reports_it() -> None:
    lost = slot(problem="connection refused", ahead_s=None, shared=None, peers=())
    finding = only(found(SLOT, lost), "driver reachable")
    assert reads(
        finding, Level.FAIL, "executors cannot reach the driver: slot 1 on b: connection refused (1 of 2 slots)"
    )
    assert "set spark.sparktrain.driver.host" in finding.fix
    alone = found(slot(SLOT, problem="refused", ahead_s=None, shared=None, peers=()))
    assert "(1 of 1" not in only(alone, "driver reachable").message
    assert {each.check for each in alone} == {
        "executors",
        "driver reachable",
        "versions",
        "free memory",
        "shared memory",
    }


def test_a_connect_client_that_no_slot_reaches_has_its_coordinator_in_the_cluster() -> None:
    lost = slot(problem="no answer within 5 s", ahead_s=None, shared=None, peers=())
    finding = only(slots_findings(Roll(1, (lost,)), DRIVER, False, remote=True), "driver reachable")
    assert reads(finding, Level.WARN, "no answer within 5 s): the coordinator of a run is in the cluster")
    assert "pass a dir= that all hosts reach" in finding.fix
    finding = only(slots_findings(Roll(2, (SLOT, OTHER)), DRIVER, False, remote=True), "driver reachable")
    assert reads(finding, Level.PASS, "the coordinator of a run is in this process")
    finding = only(slots_findings(Roll(2, (SLOT, lost)), DRIVER, False, remote=True), "driver reachable")
    assert reads(finding, Level.FAIL, "executors cannot reach the driver")


def test_versions_that_a_run_refuses_are_reported_as_it_reports_them() -> None:
    finding = only(found(SLOT, slot(versions={**VERSIONS, "tensorflow": "2.20.0"})), "versions")
    expected = "tensorflow is 2.21.0 on the driver and 2.20.0 on the executor (host b)"
    assert reads(finding, Level.FAIL, expected, "install the same versions on both")
    finding = only(found(slot(versions={**VERSIONS, "python": "3.12"}), slot(slot=2)), "versions")
    assert reads(finding, Level.FAIL, "python is 3.11 on the driver and 3.12 on the executor")


def test_versions_that_only_executors_have_must_agree() -> None:
    bare = replace(DRIVER, versions=BARE)
    assert {each.level for each in found(SLOT, OTHER, driver=bare)} == {Level.PASS}
    finding = only(found(SLOT, slot(versions={**VERSIONS, "keras": "3.14.0"}), driver=bare), "versions")
    assert reads(finding, Level.FAIL, "keras is not the same everywhere: 3.15.1 on a, 3.14.0 on b")


def test_horovod_must_be_the_same_with_the_driver_too() -> None:
    other = {**VERSIONS, "horovod": "0.28.0"}
    finding = only(found(slot(SLOT, versions=other), slot(versions=other)), "versions")
    assert reads(finding, Level.FAIL, "horovod is not the same everywhere: 0.28.0 on a, b, 0.28.1 on the driver")
    without = {name: version for name, version in VERSIONS.items() if name != "horovod"}
    finding = only(found(SLOT, slot(versions=without)), "versions")
    assert reads(finding, Level.FAIL, "0.28.1 on a, the driver, missing on b")


def test_executors_without_tensorflow_are_a_warning() -> None:
    bare = replace(DRIVER, versions=BARE)
    finding = only(found(slot(SLOT, versions=BARE), slot(versions=BARE), driver=bare), "versions")
    assert reads(finding, Level.WARN, "TensorFlow is not installed on a, b", "sparktrain[tensorflow]")


def test_another_java_is_a_warning_where_both_are_known() -> None:
    finding = only(found(SLOT, slot(java="21.0.1")), "java")
    assert reads(finding, Level.WARN, "Java is 17.0.15 on the driver and 21 on b")
    for unknown in (found(SLOT, slot(java="")), found(SLOT, slot(java="21"), driver=replace(DRIVER, java=""))):
        assert [each for each in unknown if each.check == "java"] == []


def test_a_port_that_does_not_open_fails_with_both_hosts() -> None:
    cut = slot(peers=(Peer("a", "10.0.0.1", 4001, "no answer within 3 s"),))
    finding = only(found(SLOT, cut), "ports")
    assert reads(finding, Level.FAIL, "b cannot connect to a at 10.0.0.1, port 4001: no answer within 3 s (1 of 2")
    assert [each for each in found(slot(SLOT, peers=())) if each.check == "ports"] == []


CLOCKS = [
    (1.9, 0.0, Level.PASS, "no host is more than 2 s"),
    (3.0, 1.5, Level.PASS, "no host is more than 2 s"),
    (-3.0, 0.5, Level.WARN, "the clock of b is 2.5 s behind"),
    (400.0, 1.0, Level.FAIL, "the clock of b is 399.0 s ahead of"),
]


@pytest.mark.parametrize(("ahead_s", "margin_s", "level", "words"), CLOCKS)
def test_clocks(ahead_s: float, margin_s: float, level: Level, words: str) -> None:
    assert reads(only(found(SLOT, slot(ahead_s=ahead_s, margin_s=margin_s)), "clock"), level, words)


def test_gpus_are_there_and_of_one_slot_each() -> None:
    mine, yours = slot(SLOT, gpus=("0",), devices=("GPU-x",)), slot(gpus=("0",), devices=("GPU-y",))
    assert reads(only(found(mine, yours, gpus=True), "gpus"), Level.PASS, "2 GPUs on a, b")
    assert reads(
        only(found(mine, OTHER, gpus=True), "gpus"), Level.FAIL, "no GPU was given to 1 slot on b", "discovery"
    )
    twice = slot(mine, slot=1, executor=200)
    expected = "agents 0 and 1 have the same GPU, GPU-x on a"
    assert reads(only(found(mine, twice, gpus=True), "gpus"), Level.FAIL, expected, "conf/gpu-discovery.sh")
    for shared in (slot(mine, slot=1), slot(twice, late=True)):
        assert reads(only(found(mine, shared, gpus=True), "gpus"), Level.PASS, "1 GPU on a")


def test_free_memory_counts_all_slots_of_a_host() -> None:
    small = slot(SLOT, free_bytes=2 * GIB)
    assert reads(only(found(small, OTHER), "free memory"), Level.PASS, "at least 2.0 GiB, on a")
    finding = only(found(small, slot(small, slot=1), slot(small, slot=2)), "free memory")
    assert reads(finding, Level.WARN, "a has 2.0 GiB free for 3 slots", "1024 MiB")


def test_the_store_is_one_for_all() -> None:
    finding = only(found(SLOT, slot(store="run directory /x cannot be written by user u: denied; ask its owner")),
                   "store on executors")  # fmt: skip
    assert reads(finding, Level.FAIL, "from b: run directory /x cannot be written", "ask its owner")
    finding = only(found(SLOT, slot(shared=False)), "store on executors")
    assert reads(finding, Level.FAIL, "b does not see what the driver writes", "hdfs:///runs")
    untried = found(slot(SLOT, shared=None), slot(shared=None))
    assert [each for each in untried if each.check == "store on executors"] == []


def test_many_hosts_are_not_all_named() -> None:
    many = [slot(SLOT, slot=i, host=f"h{i}") for i in range(6)]
    assert "on h0, h1, h2, h3 and 2 more" in only(found(*many), "executors").message


def test_a_container_with_the_shared_memory_of_a_default_is_reported() -> None:
    finding = only(found(SLOT, slot(shared_memory_bytes=64 * 2**20)), "shared memory")
    assert reads(finding, Level.WARN, "/dev/shm has 64.0 MiB on b", "emptyDir of medium Memory", "--shm-size")


def test_pods_without_a_dns_are_reported_and_other_hosts_need_none() -> None:
    assert [each for each in found(SLOT, OTHER) if each.check == "dns"] == []
    assert reads(only(found(slot(SLOT, dns=""), slot(dns="")), "dns"), Level.PASS, "pods resolve names")
    finding = only(found(slot(SLOT, dns=""), slot(dns="no answer within 4 s")), "dns")
    assert reads(finding, Level.WARN, "kubernetes.default.svc (no answer within 4 s), on b", "port 53")
