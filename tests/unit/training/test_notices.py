"""Notices of a member about a training that continues."""

import pytest

from sparktrain.training import notices


def test_a_notice_is_in_the_log_and_kept_once_each_within_a_limit(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(notices, "_issued", [])
    for number in range(notices.MOST + 5):
        for _ in range(2):
            notices.notice(f"{number} of something")
    notices.notice("x" * 5000)
    assert capsys.readouterr().err.splitlines()[:3] == [
        "[sparktrain] 0 of something", "[sparktrain] 0 of something", "[sparktrain] 1 of something"
    ]  # fmt: skip
    assert notices.issued_notices() == tuple(f"{number} of something" for number in range(notices.MOST))


def test_a_long_notice_is_sent_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notices, "_issued", [])
    notices.notice("y" * 5000)
    assert [len(each) for each in notices.issued_notices()] == [notices.LONGEST]
