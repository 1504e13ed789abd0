"""What the user should know of a training that goes on all the same: in the member's log, and with its outcome."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from sparktrain.training.agent_pipe import sendable

MOST = 20
LONGEST = 1000
"""Characters of one that travels; the log has it whole."""

_given: list[str] = []
"""Of this process, which is one member."""


def notice(text: str) -> None:
    """Print `text`, one line, to the member's log, and have the trial's result tell it: that of the chief counts."""
    print(f"[sparktrain] {text}", file=sys.stderr)
    told = sendable(text[:LONGEST])
    if len(_given) < MOST and told not in _given:
        _given.append(told)


def given() -> tuple[str, ...]:
    """All that this member has given, the oldest first, each once."""
    return tuple(_given)


@contextmanager
def kept_apart() -> Iterator[None]:
    """Within this context, `given` returns what is given there; for a process that is a member for a while."""
    before = _given[:]
    _given.clear()
    try:
        yield
    finally:
        _given[:] = before
