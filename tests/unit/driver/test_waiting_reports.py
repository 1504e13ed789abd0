"""Lines that wait in memory and in a file leave in their order, whatever the disk does."""

import errno
import os
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparktrain.driver import metric_recorder
from sparktrain.driver.metric_recorder import WaitingReports


def drained(waiting: WaitingReports) -> bytes:
    """All lines, taken as a recorder takes them."""
    found = b""
    while lines := waiting.oldest():
        assert lines.endswith(b"\n")
        waiting.discard(len(lines))
        found += lines
    assert waiting.size == 0
    return found


@given(st.lists(st.one_of(st.none(), st.binary(max_size=30).map(lambda data: data.replace(b"\n", b" ") + b"\n"))))
def test_lines_leave_in_their_order(steps: list[bytes | None]) -> None:
    waiting = WaitingReports(memory_bytes=40)
    added = removed = b""
    for lines in steps:
        if lines is None:
            oldest = waiting.oldest()
            waiting.discard(len(oldest))
            removed += oldest
        else:
            assert waiting.add(lines)
            added += lines
        assert waiting.size == len(added) - len(removed)
    assert removed + drained(waiting) == added


def test_memory_alone_is_used_until_it_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metric_recorder, "TemporaryFile", no_disk)
    waiting = WaitingReports(memory_bytes=8)
    assert [waiting.add(b"abc\n"), waiting.add(b"def\n"), waiting.add(b"g\n")] == [True, True, False]
    assert drained(waiting) == b"abc\ndef\n"
    assert waiting.add(b"hij\n")
    assert drained(waiting) == b"hij\n"


def half(fd: int, data: bytes, at: int, write: Callable[[int, bytes, int], int] = os.pwrite) -> int:
    return write(fd, data[: len(data) // 2], at)


def no_disk(*_: Any, **__: Any) -> Any:
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("write", [half, no_disk], ids=["in part", "not at all"])
def test_a_full_disk_takes_no_line_and_corrupts_none(
    monkeypatch: pytest.MonkeyPatch, write: Callable[..., int]
) -> None:
    waiting = WaitingReports(memory_bytes=4)
    assert waiting.add(b"abc\n")
    assert waiting.add(b"def\n")
    with monkeypatch.context() as full:
        full.setattr(os, "pwrite", write)
        assert not waiting.add(b"ghi\n")
    assert waiting.add(b"jk\n")
    assert drained(waiting) == b"abc\ndef\njk\n"
