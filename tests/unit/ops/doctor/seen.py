"""Examples of a driver, its slots and a session, and what tests check of a finding."""

from typing import Any

from msgspec.structs import replace

from sparktrain.cluster.check_finding import Finding, Level
from sparktrain.cluster.launch_warnings import Driver
from sparktrain.cluster.spark_facts import KEYS, Facts
from sparktrain.protocol.checkup_report import Peer, SlotReport, SlotSoftware, SlotVisit

GIB = 2**30
VERSIONS = {"python": "3.11", "sparktrain": "0.1.0", "tensorflow": "2.21.0", "keras": "3.15.1", "horovod": "0.28.1"}
DRIVER = Driver(host="head", python="3.11.7", versions=VERSIONS, pyspark="4.3.0", java="17.0.15", spark="4.3.0")
SLOT = SlotReport(
    slot=0, host="a", address="10.0.0.1", executor=100, gpus=(), devices=(), memory_bytes=64 * GIB, free_bytes=32 * GIB,
    shared_memory_bytes=32 * GIB,
    software=SlotSoftware(
        python="3.11.7", executable="/env/bin/python", spark="4.3.0", java="17.0.15", versions=VERSIONS
    ),
    visit=SlotVisit(ahead_s=0.01, margin_s=0.005, shared=True, peers=(Peer("b", "10.0.0.2", 4000),)),
)  # fmt: skip


def slot(of: SlotReport | None = None, **different: Any) -> SlotReport:
    """`of`, by default the other slot, with other values of its fields and of those of its software and visit."""
    report = OTHER if of is None else of
    software = {name: different.pop(name) for name in SlotSoftware.__struct_fields__ if name in different}
    visit = {name: different.pop(name) for name in SlotVisit.__struct_fields__ if name in different}
    groups = {"software": replace(report.software, **software), "visit": replace(report.visit, **visit)}
    return replace(report, **groups, **different)


OTHER = slot(SLOT, slot=1, executor=200, host="b", address="10.0.0.2", peers=(Peer("a", "10.0.0.1", 4001),))


def facts(master: str, **conf: str) -> Facts:
    settings = {f"spark.{key}": value for key, value in conf.items()}
    assert settings.keys() <= set(KEYS), "sparktrain reads no others of a session"
    return Facts(master, settings, 8)


def only(findings: list[Finding], check: str) -> Finding:
    """The one finding of a check."""
    found = [each for each in findings if each.check == check]
    assert len(found) == 1, findings
    return found[0]


def reads(finding: Finding, level: Level, *words: str) -> bool:
    """Whether a finding has the level, the words, and a next step unless it passes."""
    text = f"{finding.message}; {finding.fix}"
    assert finding.level is level, finding
    assert bool(finding.fix) is (level is not Level.PASS), finding
    assert [word for word in words if word not in text] == [], text
    return True
