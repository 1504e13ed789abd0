"""What tests on YARN wait for: one helper for a submission, a command, and a call in this process."""

from collections.abc import Callable
from typing import Protocol

from tests.support.processes import wait_until


class Followed(Protocol):
    """Something that runs beside the test."""

    @property
    def exit_code(self) -> int | None:
        """None while it runs."""

    @property
    def output(self) -> str:
        """What it printed, for messages."""

    def wait(self, timeout_s: float) -> int:
        """Wait for its end; the exit code."""


def wait_running(followed: Followed, condition: Callable[[], object], timeout_s: float, what: str) -> None:
    """Wait until `condition` holds. AssertionError, with the output, when `followed` ends before, or with `what`, when
    the time is over."""
    wait_until(lambda: condition() or followed.exit_code is not None, timeout_s, what)
    assert followed.exit_code is None, followed.output
