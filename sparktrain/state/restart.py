"""Whether a failed gang restarts: lost infrastructure is retried, the user's bugs are not."""

from enum import Enum

from msgspec import Struct

from sparktrain.state.gangs.gang import Gang
from sparktrain.state.outcome import DRIVER_LOST, Failure, FailureKind, Restart, RestartHow
from sparktrain.state.seats.seat_change import ChangeReason, StateSource
from sparktrain.state.trial import Trial

EXCUSED_LIMIT = 20
"""How often in a row the cluster may take a trial's gang that has come no further than before: without a limit some
trials would never end."""


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
    {
        FailureKind.LOST,
        FailureKind.KILLED,
        FailureKind.FORM,
        FailureKind.RING,
        FailureKind.CHECKPOINT,
        FailureKind.STOPPED,
    }
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
    """The others since the trial came further than before: gangs that the cluster took."""
    recovers: bool
    """Gangs and `run()` restart after crashes as well; a crash of an ordinary trial is its result."""
    progressed: bool
    """This generation has committed a checkpoint."""
    repeated: bool
    """The failure before this one was the same."""


def history_of(trial: Trial, gang: Gang, failure: Failure, recovers: bool) -> History:
    """The losses and failures of a trial, with `failure` of its gang."""
    counted, excused = trial.spent(_reached(trial, gang))
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
    return Restart(
        rank=failure.rank or 0,
        host=failure.host or trial.host,
        kind=failure.kind,
        cause=failure.summary,
        seconds=0.0,
        resumed_from_step=resumed_from,
        steps_lost=lost,
        loss=failure.loss,
        reached_step=_reached(trial, gang),
    )


def _reached(trial: Trial, gang: Gang) -> int | None:
    """The newest step that the gang has finished or reported."""
    last_report = trial.attempt.last_report
    steps = (gang.progress.last_step, None if last_report is None else last_report.step)
    return max((step for step in steps if step is not None), default=None)


def continuation_of(trial: Trial, gang: Gang) -> Restart:
    """The restart of the trial after its gang has paused, for a larger one or for one on other agents."""
    pause = gang.stop.pause
    assert pause is not None
    kept_steps = [step for step in (trial.checkpoints.newest_step, gang.checkpoints.kept_step) if step is not None]
    step = max(kept_steps, default=None)
    lost = 0 if gang.progress.last_step is None else max(0, gang.progress.last_step - (step or 0))
    return Restart(
        rank=int(pause.change.rank),
        host=gang.places[pause.change.rank].host,
        kind=FailureKind.STOPPED,
        cause=pause.change.text,
        seconds=0.0,
        resumed_from_step=step,
        steps_lost=lost if pause.change.source is StateSource.STORE else 0,
        how=RestartHow.DRAINED if pause.change.reason is ChangeReason.DRAINED else RestartHow.PAUSED,
    )


def driver_loss(trial: Trial) -> Restart:
    """The restart of a trial with a gang that was lost with its driver."""
    resumed_from = trial.checkpoints.newest_step
    last_report = trial.attempt.last_report
    reached = None if last_report is None else last_report.step
    return Restart(0, trial.host, FailureKind.LOST, DRIVER_LOST, 0.0, resumed_from, reached_step=reached)


def decide(kind: FailureKind, history: History, limit: int, stopping: bool) -> Decision:
    """The decision for a failure of `kind`, where a trial may be restarted `limit` times.

    Infrastructure is retried; what the cluster took does not use up the limit, but has one of its own: a trial that it
    takes again and again, and that comes no further meanwhile, would never end. Crashes and hangs are retried where
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
