"""Whether a failed gang is formed again: lost infrastructure is retried, the user's bugs are not."""

from enum import Enum

from msgspec import Struct

from sparktrain.state.outcome import FailureKind

EXCUSED_LIMIT = 100
"""Times that the cluster may take a trial's gang under one driver: one that loses each gang would never end."""


class Decision(Enum):
    """What becomes of a trial whose gang has failed."""

    RETRY = "form the gang again"
    FAIL = "the failure is the trial's result"
    GIVE_UP = "lost too often: the trial has no result"
    STOP = "the run was stopped"


class Cause(Enum):
    """Who has to act on a failure."""

    INFRASTRUCTURE = "the cluster lost something"
    RESOURCE = "the process ran out of memory, or crashed"
    HANG = "no progress"
    USER = "the training function"


# STOPPED as well: a member that nobody told to stop was ended by its agent, for a reason of that one's own.
_INFRASTRUCTURE = frozenset(
    {FailureKind.LOST, FailureKind.FORM, FailureKind.RING, FailureKind.CHECKPOINT, FailureKind.STOPPED}
)
_RESOURCE = frozenset({FailureKind.SIGNAL, FailureKind.MEMORY, FailureKind.EXIT})
_FINAL = frozenset(
    {FailureKind.LOAD, FailureKind.RESULT, FailureKind.METRIC, FailureKind.MISMATCH, FailureKind.TIMEOUT}
)


def cause_of(kind: FailureKind) -> Cause:
    """Who has to act on a failure of `kind`."""
    if kind in _INFRASTRUCTURE:
        return Cause.INFRASTRUCTURE
    if kind in _RESOURCE:
        return Cause.RESOURCE
    return Cause.HANG if kind is FailureKind.HANG else Cause.USER


class History(Struct, frozen=True):
    """What a trial has been through, the failure that is to be decided included."""

    restarts: int
    """Gangs that were lost or have failed and count against the limit, this one too where it does."""
    excused: int
    """The others: gangs of which the cluster said that it took them."""
    recovers: bool
    """Crashes are restarted as well: of gangs, and of `run()`; a crash of an ordinary trial is its result."""
    progressed: bool
    """This generation has committed a checkpoint."""
    repeated: bool
    """The failure before this one was the same."""


def decide(kind: FailureKind, history: History, limit: int, stopping: bool) -> Decision:
    """The decision for a failure of `kind`, where a trial may be restarted `limit` times.

    Infrastructure is retried; what the cluster says that it took does not use up the limit. Crashes and hangs are where
    the run recovers at all. An exception is where the gang has got further than the checkpoint that it began with, for
    then it need not come again; the same one twice is a bug.
    """
    cause = cause_of(kind)
    if stopping and cause is Cause.INFRASTRUCTURE:
        return Decision.STOP
    if cause is Cause.INFRASTRUCTURE:
        within = history.restarts <= limit and history.excused <= EXCUSED_LIMIT
        return Decision.RETRY if within else Decision.GIVE_UP
    if not history.recovers or kind in _FINAL or stopping or history.restarts > limit:
        return Decision.FAIL
    if cause is Cause.USER and (history.repeated or not history.progressed):
        return Decision.FAIL
    return Decision.RETRY
