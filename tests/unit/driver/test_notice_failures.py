"""Notices that cannot be read are counted for each address: two runs of a pool may name different ones."""

import pytest

from sparktrain.base.ids import AgentId
from sparktrain.driver.agent_server import NoticeFailures

ONE, OTHER = AgentId("agent-1"), AgentId("agent-2")


def test_each_run_reports_the_failures_of_its_own_address(caplog: pytest.LogCaptureFixture) -> None:
    failures = NoticeFailures()
    failures.add(ONE, "host-1", "/a", 1, "/a: Permission denied")
    failures.add(ONE, "host-1", "/a", 10, "/a: Permission denied")
    failures.add(OTHER, "host-2", "/b", 1, "/b: Permission denied")
    assert [record.getMessage() for record in caplog.records] == [
        "notice cannot be read on host-1: /a: Permission denied; this is ignored, and the run continues",
        "notice cannot be read on host-2: /b: Permission denied; this is ignored, and the run continues",
    ]
    caplog.clear()
    failures.report("/a")
    failures.report(None)
    failures.report("/c")
    assert [record.getMessage() for record in caplog.records] == [
        "notice /a could not be read by 1 agent, at least 10 looks in all; the first was on host-1: "
        "/a: Permission denied"
    ]


def test_another_run_counts_from_its_start(caplog: pytest.LogCaptureFixture) -> None:
    failures = NoticeFailures()
    failures.add(ONE, "host-1", "/a", 1, "/a: Permission denied")
    failures.add(ONE, "host-1", "/b", 1, "/b: Permission denied")
    failures.clear("/a")
    failures.clear(None)
    caplog.clear()
    failures.report("/a")
    assert not caplog.records
    failures.report("/b")
    assert len(caplog.records) == 1
