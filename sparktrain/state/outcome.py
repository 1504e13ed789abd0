"""What one member's process ended with, and who has to act on it."""

from enum import StrEnum

from msgspec import Struct


class FailureKind(StrEnum):
    """Why a member failed. The value is the word in `results.json`."""

    EXCEPTION = "exception"  # the training function raised
    SIGNAL = "signal"  # the process was ended by a signal, such as SIGSEGV
    MEMORY = "memory"  # the process was killed with SIGKILL: out of memory
    EXIT = "exit"  # the process ended itself before the function returned
    RESULT = "result"  # the function returned something that is no result
    METRIC = "metric"  # the result lacks the metric, or the metric is not finite
    TIMEOUT = "timeout"  # the trial ran longer than it may
    LOAD = "load"  # the function could not be loaded on the executor
    LOST = "lost"  # the process, its agent or its executor was lost
    STOPPED = "stopped"  # the run was stopped before the trial had ended


class Failure(Struct, frozen=True):
    """The root cause of a failed member, as text: only training processes unpickle what is the user's."""

    kind: FailureKind
    summary: str
    """One line: what happened, and what to do where that is known."""
    traceback: str = ""
    """The traceback of an exception, outermost frames of sparktrain removed; at most 64 KiB."""
    log_tail: tuple[str, ...] = ()
    """The last lines that the process printed."""


class Report(Struct, frozen=True):
    """Metrics that the training function reported for one step."""

    step: int
    metrics: dict[str, float]


class Outcome(Struct, frozen=True):
    """The end of one member: metrics, or a failure."""

    seconds: float
    """From the call of the training function to its end."""
    metrics: dict[str, float] | None = None
    failure: Failure | None = None
