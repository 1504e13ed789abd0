"""Whether a failed gang restarts: lost infrastructure is retried, the user's bugs are not."""

from enum import Enum

from msgspec import Struct

from sparktrain.state.gangs.gang import Gang
from sparktrain.state.outcome import Failure, FailureKind, Restart
from sparktrain.state.trial import Trial

EXCUSED_LIMIT = 100
"""How often the cluster may take a trial's gang under one driver: without a limit some trials would never end."""


DRIVER_LOST = "the driver was lost, or stopped the run"


class Decision(Enum):
    """What follows for a trial when its gang has failed."""

    RETRY = "restart the gang"
    FAIL = "the failure is the trial's result"
    GIVE_UP = "lost too often: the trial has no result"
    STOP = "the run was stopped"


class Cause(Enum):
    """Who has to act on a failure."""

    INFRASTRUCTURE = "the cluster lost something"
    RESOURCE = "the process ran out of memory, or crashed"
    HANG = "no progress"
    USER = "the training function"


# STOPPED as well: a member without a request to stop was ended by its agent, for the agent's own reason.
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
    """A trial's losses and failures, including the one to decide."""

    restarts: int
    """Gangs that were lost or failed and count against the limit, this one included where it does."""
    excused: int
    """The others: gangs that the cluster took."""
    recovers: bool
    """Gangs and `run()` restart after crashes as well; a crash of an ordinary trial is its result."""
    progressed: bool
    """This generation has committed a checkpoint."""
    repeated: bool
    """The failure before this one was the same."""


def history_of(trial: Trial, gang: Gang, failure: Failure, recovers: bool) -> History:
    """The losses and failures of a trial, with `failure` of its gang."""
    counted, excused = trial.spent()
    gang_restarts = trial.restart_history.of_gang
    excusable = failure.loss is not None and failure.loss.excused
    return History(
        restarts=counted + gang.absences.losses + (not excusable),
        excused=excused + excusable,
        recovers=recovers,
        progressed=gang.checkpoints.progressed,
        repeated=bool(gang_restarts) and trial.restarts[gang_restarts[-1]].cause == failure.summary,
    )


def restart_of(trial: Trial, gang: Gang, failure: Failure) -> Restart:
    """The restart of the trial after the failure of its gang; its duration is not known yet."""
    kept_steps = [step for step in (trial.checkpoints.newest_step, gang.checkpoints.kept_step) if step is not None]
    resumed_from = max(kept_steps, default=None)
    last_step = gang.progress.last_step
    lost = None if last_step is None else max(0, last_step - (resumed_from or 0))
    rank = failure.rank or 0
    host = failure.host or trial.host
    return Restart(rank, host, failure.kind, failure.summary, 0.0, resumed_from, lost, failure.loss)


def continuation_of(trial: Trial, gang: Gang) -> Restart:
    """The restart of the trial after its gang has paused, for a larger one or for one on other agents."""
    pause = gang.stop.pause
    assert pause is not None
    kept_steps = [step for step in (trial.checkpoints.newest_step, gang.checkpoints.kept_step) if step is not None]
    step = max(kept_steps, default=None)
    lost = 0 if gang.progress.last_step is None else max(0, gang.progress.last_step - (step or 0))
    return Restart(
        rank=pause.drained or 0,
        host=gang.places[pause.drained or 0].host,
        kind=FailureKind.STOPPED,
        cause=pause.reason,
        seconds=0.0,
        resumed_from_step=step,
        steps_lost=lost if pause.in_store else 0,
        paused=True,
        drained=pause.drained is not None,
    )


def driver_loss(trial: Trial) -> Restart:
    """The restart of a trial with a gang that was lost with its driver."""
    resumed_from = trial.checkpoints.newest_step
    return Restart(0, trial.host, FailureKind.LOST, DRIVER_LOST, 0.0, resumed_from)


def decide(kind: FailureKind, history: History, limit: int, stopping: bool) -> Decision:
    """The decision for a failure of `kind`, where a trial may be restarted `limit` times.

    Infrastructure is retried; what the cluster took does not use up the limit. Crashes and hangs are retried where
    the run recovers. An exception is retried where the gang has progressed beyond its first checkpoint, for
    then it may not recur; the same one twice is a bug.
    """
    cause = cause_of(kind)
    if stopping and cause is Cause.INFRASTRUCTURE:
        return Decision.STOP
    if cause is Cause.INFRASTRUCTURE:
        within = history.restarts <= limit and history.excused <= EXCUSED_LIMIT
        return Decision.RETRY if within else Decision.GIVE_UP
    # While the run stops no gang forms again: a trial that was queued then held the run for ever.
    if not history.recovers or kind in _FINAL or stopping or history.restarts > limit:
        return Decision.FAIL
    if cause is Cause.USER and (history.repeated or not history.progressed):
        return Decision.FAIL
    return Decision.RETRY
