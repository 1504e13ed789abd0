"""What tests on YARN wait for: one helper for a submission, a command, and a call in this process."""

from collections.abc import Callable
from typing import Protocol

from tests.support.processes import wait_until


class Followed(Protocol):
    """A process that runs while the test does."""

    @property
    def exit_code(self) -> int | None:
        """None while it runs."""

    @property
    def output(self) -> str:
        """What it has printed, for messages."""

    def wait(self, timeout_s: float) -> int:
        """Wait for its end; the exit code."""


def wait_running(followed: Followed, condition: Callable[[], object], timeout_s: float, what: str) -> None:
    """Wait until `condition` holds. AssertionError, with `what` and the output, when `timeout_s` is over before or
    `followed` has ended."""
    try:
        wait_until(lambda: condition() or followed.exit_code is not None, timeout_s, what)
    except AssertionError as error:
        raise AssertionError(f"{error}; the output:\n{followed.output}") from error
    assert followed.exit_code is None, followed.output
