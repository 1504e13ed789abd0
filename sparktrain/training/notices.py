"""Notices to the user about a training that continues: in the member's log, and with its outcome."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from sparktrain.training.agent_pipe import sendable

MOST = 20
LONGEST = 1000
"""Characters of a notice that the outcome carries; the log has all of it."""

_issued: list[str] = []
"""The notices of this process, which is one member."""


def notice(text: str) -> None:
    """Print `text`, one line, to the member's log, and add it to the outcome; the trial's result has the chief's."""
    print(f"[sparktrain] {text}", file=sys.stderr)
    sent = sendable(text[:LONGEST])
    if len(_issued) < MOST and sent not in _issued:
        _issued.append(sent)


def issued_notices() -> tuple[str, ...]:
    """The notices of this member, oldest first, each once."""
    return tuple(_issued)


@contextmanager
def kept_apart() -> Iterator[None]:
    """Collect the notices within this context apart from others; for a process that trains in the user's program."""
    saved_notices = _issued[:]
    _issued.clear()
    try:
        yield
    finally:
        _issued[:] = saved_notices
