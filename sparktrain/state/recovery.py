"""Fold the records of a journal back into a sweep, and compact them to fewer records with the same meaning."""

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from sparktrain.base.ids import RunId, TrialId
from sparktrain.config.sweep_spec import SweepSpec
from sparktrain.state import records as fact
from sparktrain.state.checkpoint_history import CheckpointHistory
from sparktrain.state.ending import Ending
from sparktrain.state.events import RunLimits, RunStarted
from sparktrain.state.outcome import FailureKind, Restart
from sparktrain.state.pruning.pruned_trials import unsettled
from sparktrain.state.pruning.stopper import StopperRecord
from sparktrain.state.restart import driver_loss
from sparktrain.state.sweep import Sweep
from sparktrain.state.trial import NOT_FORMED, Trial, TrialStatus

__all__ = ["compacted", "fold", "folded", "recovered"]


def recovered(event: RunStarted) -> Sweep:
    """The sweep as earlier drivers left it, now under a new driver, which is a record of its own."""
    sweep = Sweep(event.run, event.limits, event.at, event.driver_started.at)
    fold(sweep, event.records)
    # The gangs of a dead driver may still train: only a new generation makes their messages and files count no more.
    lost = [trial for trial in sweep.trials.values() if _lost_unnoted(trial, event.driver_started)]
    again = [trial for trial in lost if not (event.driver_started.adopts and _may_continue(trial))]
    facts: list[fact.AnyRecord] = [fact.GangRestarted(trial=trial.id, restart=_cause(trial)) for trial in again]
    facts += sweep.pruned.conclusions()
    times = sweep.times
    ran_s = times.ran_s + times.unended_s
    facts.append(replace(event.driver_started, ran_s=ran_s, predecessor_seen=times.last_seen))
    fold(sweep, facts)
    for trial in again:
        # The time of its driver's loss is unknown: report the cost under this one.
        trial.restart_history.failed_at = event.at
    sweep.start_driver(facts)
    return sweep


def folded(records: Iterable[fact.AnyRecord], metric: str | None = None) -> Sweep:
    """The trials as the records have left them, for readers: nothing is decided about them."""
    sweep = Sweep(RunId("past"), RunLimits(spec=SweepSpec(name="past", metric=metric)), 0.0)
    fold(sweep, records)
    return sweep


def fold(sweep: Sweep, records: Iterable[fact.AnyRecord]) -> None:
    """Bring the trials to the state that the records describe; `DriverStarted` makes the queue."""
    for record in records:
        sweep.times.see(record)
        match record:
            case fact.DriverStarted():
                _take_over(sweep, record)
            case fact.TrialsAdded():
                sweep.recover_trials(record)
            # Even where this driver does not race: the record alone decides.
            case fact.CaseClosed():
                sweep.pruned.fold_closed(record)
            case fact.HorizonLearned() | fact.RungReached() | fact.TrialPromoted() | fact.Exploited():
                _fold_rule(sweep, record)
            case fact.DrainDecided():
                sweep.drains.fold(record)
            case fact.DrainCompleted(request=request):
                sweep.drains.complete(request)
            case fact.RunEnded():
                _end(sweep, record)
            case _:
                _fold_trial(sweep, sweep.trials[record.trial], record)


def _fold_rule(sweep: Sweep, record: StopperRecord | fact.Exploited) -> None:
    sweep.exploits.fold(record)
    if isinstance(record, fact.Exploited):
        return
    sweep.pruned.fold(record)
    if isinstance(record, fact.TrialPromoted) and sweep.trials[record.trial].status is TrialStatus.PAUSED:
        sweep.trials[record.trial].status = TrialStatus.QUEUED


def _take_over(sweep: Sweep, driver: fact.DriverStarted) -> None:
    """Requeue trials without a result, first those that were running."""
    sweep.drains.take_over()
    for trial in sweep.trials.values():
        if _has_no_result(trial, driver):
            if trial.checkpoints.all_corrupt:
                trial.checkpoints.trust_again()  # or it would silently start at step 0
            # Not by `move`: under one driver no trial leaves a final status.
            if not (driver.adopts and _may_continue(trial)):
                trial.status = TrialStatus.PAUSED if _waits(trial) else TrialStatus.QUEUED
            trial.settle(failure=None)
            trial.restart_history.failed_at = None
            trial.takeover.reason = ""
        trial.takeover.dropped = []  # left-over files of older generations are deleted anyway
        # A user has started the others. One in the cluster follows by itself, and a trial may be what ends them all.
        if not driver.adopts:
            trial.restart_history.forgiven = len(trial.restarts)
    queued = [trial for trial in sweep.trials.values() if trial.status is TrialStatus.QUEUED]
    sweep.take_over(driver, sorted(queued, key=lambda trial: (trial.generation == NOT_FORMED, trial.id)))


def _end(sweep: Sweep, record: fact.RunEnded) -> None:
    for trial in sweep.trials.values() if record.ending == Ending.UNLOADABLE else ():
        if trial.failure is not None and trial.failure.kind is FailureKind.LOAD:
            trial.status = TrialStatus.LOST  # no host could load the function: the trial itself has no result


def _has_no_result(trial: Trial, driver: fact.DriverStarted) -> bool:
    return not trial.status.observed or (driver.retry_failed and trial.status is TrialStatus.FAILED)


def _may_continue(trial: Trial) -> bool:
    """Its gang trains, as far as the records show, and neither a rule nor another trial's state is about to end it."""
    return trial.status is TrialStatus.RUNNING and not trial.stopping and trial.pause.ahead is None


def _waits(trial: Trial) -> bool:
    """A rule has paused the trial, which can continue later; one that was on its way to its pause trains on."""
    return trial.pause.due is not None and trial.checkpoints.newest is not None


def _lost_unnoted(trial: Trial, driver: fact.DriverStarted) -> bool:
    """Its newest gang was lost, and no record notes it yet."""
    lost = _has_no_result(trial, driver) and len(trial.restart_history.of_gang) < trial.generation
    return lost and not unsettled(trial)


def _cause(trial: Trial) -> Restart:
    """Why the gang of a trial restarts under another driver."""
    failure = trial.failure if trial.status.final else None
    if failure is None:
        return driver_loss(trial)
    host = failure.host or trial.host
    return Restart(failure.rank or 0, host, failure.kind, failure.summary, 0.0, trial.checkpoints.newest_step)


def _fold_trial(sweep: Sweep, trial: Trial, record: fact.AnyRecord) -> None:
    match record:
        case fact.GangFormed(generation=generation, hosts=hosts):
            trial.status = TrialStatus.RUNNING
            trial.form(generation, hosts)
        case fact.TrialAnswered(params=params):
            trial.params = trial.params | params
        case fact.CheckpointAcknowledged(checkpoint=checkpoint):
            trial.checkpoints.acknowledge(checkpoint)
        case fact.SaveFailed(step=step, problem=problem):
            trial.checkpoints.not_saved(step, problem)
        case fact.CheckpointCorrupt(manifest=manifest, reason=reason):
            trial.checkpoints.mark_corrupt(manifest, reason)
        case fact.CheckpointsDropped(manifests=manifests):
            trial.checkpoints.drop(manifests)
        case fact.GangRestarted(restart=restart):
            trial.restart_history.add(restart)
            trial.status = TrialStatus.QUEUED
            trial.takeover.reason = ""
        case fact.TrialPaused(restart=restart):
            trial.restart_history.add(restart)
            trial.pause.come_to()
            trial.status = TrialStatus.PAUSED if trial.pause.due is not None else TrialStatus.QUEUED
        case fact.LossRecorded(generation=generation, restart=restart, place=place):
            restart_place = trial.restart_history.place_of(generation) if place is None else place
            if restart_place is not None:
                trial.explain(restart_place, restart)
        case fact.MemberRestarted(restart=restart, incarnation=incarnation):
            trial.restart_history.add(restart, incarnation=incarnation)
        case fact.GangRecovered(seconds=seconds):
            trial.restart_history.recover(seconds)
        case fact.TrialReported(report=report):
            trial.attempt.last_report = report
        case fact.StepsTimed(times=times):
            trial.attempt.step_times = times
        case fact.StandbysNoted(text=text):
            trial.attempt.standby = text
        case fact.TrialConcluded(status=status):
            trial.status = status
            trial.outcome = record.outcome
            sweep.recover_end(trial)
            sweep.goals.recover_slots(record.seconds * max(1, len(trial.attempt.hosts)))


def compacted(records: Sequence[fact.AnyRecord]) -> tuple[fact.AnyRecord, ...]:
    """The records without those that later ones have made superfluous, in the same order.

    They fold into the same trials, and restore the same sampler.
    """
    checkpoints = _checkpoints(records)
    needed = _Needed(checkpoints)
    kept_records = [_shortened(record, checkpoints) for record in reversed(records) if needed(record)]
    return tuple(reversed(kept_records))


def _shortened(record: fact.AnyRecord, checkpoints: set[tuple[TrialId, str]]) -> fact.AnyRecord:
    """The record, which notes that its checkpoint no longer counts where the records about that are left out."""
    if isinstance(record, fact.Exploited) and (record.trial, record.checkpoint.manifest) not in checkpoints:
        return replace(record, replaced=True)
    return record


def _checkpoints(records: Iterable[fact.AnyRecord]) -> set[tuple[TrialId, str]]:
    """Manifests of the checkpoints that count in the end, and of corrupt ones."""
    histories: dict[TrialId, CheckpointHistory] = {}
    for record in records:
        match record:
            case fact.CheckpointAcknowledged(trial=trial, checkpoint=checkpoint):
                histories.setdefault(trial, CheckpointHistory()).acknowledge(checkpoint)
            case fact.Exploited(trial=trial, checkpoint=checkpoint, replaced=replaced):
                history = histories.setdefault(trial, CheckpointHistory())
                history.borrow(checkpoint)
                history.drop([checkpoint.manifest] if replaced else [])
            case fact.CheckpointCorrupt(trial=trial, manifest=manifest, reason=reason):
                histories.setdefault(trial, CheckpointHistory()).mark_corrupt(manifest, reason)
            case fact.CheckpointsDropped(trial=trial, manifests=manifests):
                histories.setdefault(trial, CheckpointHistory()).drop(manifests)
    counted = {(trial, entry.manifest) for trial, ledger in histories.items() for entry in ledger.retained}
    return counted | {(trial, entry.manifest) for trial, ledger in histories.items() for entry, _ in ledger.corrupt}


class _Needed:
    """Walks backwards over records, and decides which of them are still needed."""

    def __init__(self, checkpoints: set[tuple[TrialId, str]]) -> None:
        self._checkpoints = checkpoints
        self._formed: set[TrialId] = set()
        self._reported: set[TrialId] = set()
        self._timed: set[TrialId] = set()
        self._noted: set[TrialId] = set()
        self._settled: set[TrialId] = set()

    def __call__(self, record: fact.AnyRecord) -> bool:
        match record:
            case fact.CheckpointAcknowledged(trial=trial, checkpoint=checkpoint):
                self._settled.add(trial)
                return (trial, checkpoint.manifest) in self._checkpoints
            case fact.SaveFailed(trial=trial):
                return self._first(self._settled, trial)
            case fact.GangAdopted():
                return False  # the gang continues in its generation
            case fact.CheckpointsDropped():
                return False  # the records of its checkpoints are not kept either
            case fact.TrialReported(trial=trial):
                return self._first(self._reported, trial)
            case fact.StepsTimed(trial=trial):
                return self._first(self._timed, trial)
            case fact.StandbysNoted(trial=trial):
                return self._first(self._noted, trial)
            case fact.GangFormed(trial=trial):
                self._noted.add(trial)
                self._reported.add(trial)
                self._timed.add(trial)
                return self._first(self._formed, trial)
            case fact.TrialConcluded(trial=trial, status=status):
                return status.observed or trial not in self._formed
        return True

    def _first(self, trials: set[TrialId], trial: TrialId) -> bool:
        first = trial not in trials
        trials.add(trial)
        return first
