"""Whether a failed gang is formed again: lost infrastructure is retried, the user's bugs are not."""

from enum import Enum

from sparktrain.state.outcome import FailureKind


class Decision(Enum):
    """What becomes of a trial whose gang has failed."""

    RETRY = "form the gang again"
    FAIL = "the failure is the trial's result"
    GIVE_UP = "lost too often: the trial has no result"
    STOP = "the run was stopped"


def decide(kind: FailureKind, times_lost: int, retries: int, stopping: bool) -> Decision:
    """The decision for a failure of `kind`; `times_lost` includes this one."""
    if stopping and kind in (FailureKind.STOPPED, FailureKind.LOST):
        return Decision.STOP
    if kind is FailureKind.LOST:
        return Decision.RETRY if times_lost <= retries else Decision.GIVE_UP
    return Decision.FAIL
