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
    FORM = "form"  # the members could not be connected in time, or a port was taken
    RING = "ring"  # an operation of the ring failed: another member is gone, stuck, or out of step
    HANG = "hang"  # the member finished no training step for too long, or its process was stopped
    CHECKPOINT = "checkpoint"  # the checkpoint to resume from is damaged
    STOPPED = "stopped"  # the run was stopped before the trial had ended

    @property
    def follows(self) -> bool:
        """It may only follow from another member's failure, which is the cause."""
        return self in (FailureKind.FORM, FailureKind.RING)


class Failure(Struct, frozen=True):
    """The root cause of a failed member, as text: only training processes unpickle what is the user's."""

    kind: FailureKind
    summary: str
    """One line: what happened, and what to do where that is known."""
    traceback: str = ""
    """The traceback of an exception, outermost frames of sparktrain removed; at most 64 KiB."""
    log_tail: tuple[str, ...] = ()
    """The last lines that the process printed."""
    rank: int | None = None
    """Of the member, in a gang."""
    host: str | None = None
    """Of the member, in a gang."""


class Restart(Struct, frozen=True):
    """Why a gang was formed again, and what that cost."""

    rank: int | None
    """The member that failed first; None where no single one did."""
    host: str | None
    kind: FailureKind
    summary: str
    seconds: float | None = None
    """From the failure until every member was in the training function again; None until it is."""
    resumed_from: int | None = None
    """Step of the checkpoint that the new generation began with; None without one."""
    steps_lost: int | None = None
    """Steps that had to be done again; None where steps are not known."""


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
