"""The trials of one run that its rules stop: which they are, and what is left to do about them."""

import math
from collections.abc import Mapping, Sequence

from sparktrain.base.ids import TrialId
from sparktrain.config.sweep_spec import SweepSpec
from sparktrain.state import records as fact
from sparktrain.state.cases.case_table import CaseTable
from sparktrain.state.outcome import EndedEarly, Report
from sparktrain.state.pruning.rule import aim_of
from sparktrain.state.pruning.stopper import Stopper, StopperRecord
from sparktrain.state.trial import Pruning, Trial, TrialStatus

NO_CHECKPOINT = (
    "stopper: a rule paused it, and it has no checkpoint to continue from: save one after each epoch, as "
    "ctx.keras_callbacks() does"
)
PROMOTED = "it was promoted while its gang ended"
"""Why a gang follows that of a trial which was paused and promoted before the gang had gone."""
_ENDS = (TrialStatus.SUCCEEDED, TrialStatus.PRUNED)
"""The ends that rules learn from; after the others a rule drops the trial."""
BY_FUNCTION = "the training function"
"""In place of a rule, where the function has ended its trial."""
BY_USER = "the user"
"""In place of a rule, where the user has stopped a trial."""


class PrunedTrials:
    """Marks trials by what the rules of the run make of their reports and ends; sets their `pruning`."""

    def __init__(self, spec: SweepSpec, trials: Mapping[TrialId, Trial], cases: CaseTable) -> None:
        """`trials` are those of the run, and grow with it. Rules judge the first trial of each case."""
        self._cases = cases
        self._metric = spec.metric or ""
        self._stopper = Stopper(spec.stopper, aim_of(spec))
        self._trials = trials
        self._rules = ", ".join(map(str, spec.stopper))
        self._heard: set[TrialId] = set()
        """Trials that have reported the metric."""
        self._running: list[TrialId] = []
        self.promoted: set[TrialId] = set()
        """Trials that continue as soon as they are paused."""

    def on_reports(self, trial: Trial, reports: Sequence[Report]) -> Sequence[fact.AnyRecord]:
        """The chief of `trial` has reported; a trial that is pruned already is judged no more."""
        if any(self._metric in report.metrics for report in reports):
            self._heard.add(trial.id)
        if trial.pruning is not None or not self._cases.is_first(trial.id):
            return ()
        pause = trial.pause.ahead
        early_reports = [report for report in reports if pause is None or report.step < pause.step]
        records = self._judged(self._stopper.on_reports(trial.id, early_reports))
        if len(early_reports) < len(reports) and trial.pause.ahead is pause and trial.pruning is None:
            trial.pause.come_to()  # no record: the one of the decision is in the journal
            self._running.append(trial.id)
        return records

    def promotions(self, *, of_any: bool) -> Sequence[fact.AnyRecord]:
        """Trials that wait and may continue now; with `of_any`, the best one whatever its place."""
        records = self._stopper.promotions()
        return self._judged(records or (self._stopper.promote_best() if of_any else []))

    def next_step(self, trial: Trial) -> int:
        """No rule judges a report of the trial below this step."""
        step = self._stopper.next_step(trial.id)
        # Below this step the agent sends reports together, and the member waits for no answer.
        return step if trial.pause.ahead is None else min(step, trial.pause.ahead.step)

    def is_whole(self, trial: Trial) -> bool:
        """The trial has reported all of its steps, as far as a rule knows."""
        return trial.attempt.last_report is not None and self._stopper.is_whole(trial.attempt.last_report.step)

    def on_end(self, trial: Trial) -> Sequence[fact.AnyRecord]:
        """The trial has its final status."""
        if trial.status not in _ENDS:
            # Rules that wait to learn how long a trial is would judge it later, though it has ended.
            self._stopper.drop(trial.id)
            return ()
        return self._judged(self._stopper.on_end(trial.id, succeeded=trial.status is TrialStatus.SUCCEEDED))

    def on_ended_early(self, trial: Trial, end: EndedEarly | None) -> Sequence[fact.AnyRecord]:
        """The function of `trial` may have ended it; a rule that has stopped it before is the reason."""
        if end is None or trial.pruning is not None:
            return ()
        record = fact.RungReached(
            trial=trial.id, rule=BY_FUNCTION, rung=end.step, step=end.step, value=end.value, reason=end.reason
        )
        self._mark(record)
        return (record,)

    def on_user_stop(self, trial: Trial, reason: str) -> Sequence[fact.AnyRecord]:
        """The user stops `trial`, which has no end and is not pruned: its newest report is its result."""
        report = trial.attempt.last_report
        step, value = (-1, None) if report is None else (report.step, report.metrics.get(self._metric))
        finite = value if value is not None and math.isfinite(value) else None
        record = fact.RungReached(trial=trial.id, rule=BY_USER, rung=step, step=step, value=finite, reason=reason)
        self._mark(record)
        self._running += [trial.id] if trial.status is TrialStatus.RUNNING else []
        return (record,)

    def close(self, closed: fact.CaseClosed) -> list[Trial]:
        """The trials of the case that have no end are pruned; returns them."""
        pruned_trials = self.fold_closed(closed)
        self._running += [trial.id for trial in pruned_trials if trial.status is TrialStatus.RUNNING]
        return pruned_trials

    def notices(self, trial: Trial) -> tuple[str, ...]:
        """What the user should know where a trial succeeds and no rule saw a value of it."""
        if not self._rules or trial.id in self._heard or not self._cases.is_first(trial.id):
            return ()
        names = ", ".join(map(repr, trial.attempt.last_report.metrics)) if trial.attempt.last_report is not None else ""
        reason = f"it reported {names}" if names else "it reported nothing"
        step = (
            "report the metric under that name, or pass metric= as it is reported"
            if names
            else f"call ctx.report(step, {self._metric}=...) after each epoch, or give fit() the ctx.keras_callbacks()"
        )
        return (f"stopper {self._rules} saw no report of {self._metric!r}, for {reason}: {step}",)

    def take_running(self) -> list[TrialId]:
        """The trials that were pruned or paused before their end, since the last call."""
        running = list(dict.fromkeys(self._running))
        self._running = []
        return running

    def metrics(self, trial: Trial) -> dict[str, float]:
        """The metrics of a pruned trial without a result of its function: those that it was judged by."""
        value = trial.pruning.value if trial.pruning is not None else None
        return {} if value is None else {self._metric: value}

    def _judged(self, records: Sequence[StopperRecord]) -> Sequence[fact.AnyRecord]:
        for record in records:
            self._mark(record)
            if isinstance(record, fact.RungReached) and not record.continues:
                self._running.append(record.trial)
        return records

    def _mark(self, record: StopperRecord) -> None:
        if isinstance(record, fact.TrialPromoted):
            self._trials[record.trial].pause.forget()
            self.promoted.add(record.trial)
        elif isinstance(record, fact.RungReached) and not record.continues:
            trial = self._trials[record.trial]
            pruning = Pruning(record.step, record.value, record.reason)
            self.promoted.discard(trial.id)  # from an earlier rung
            trial.pause.forget()
            if record.pauses:
                trial.pause.due = pruning
            else:
                trial.pruning = pruning
                self._stopper.release(trial.id)

    # ---- under drivers before, see `recovery`

    def fold(self, record: StopperRecord) -> None:
        """A driver before made this record."""
        self._stopper.fold(record)
        if isinstance(record, fact.HorizonLearned):
            return
        if not self._trials[record.trial].status.final:  # older drivers judged failed trials, too
            self._mark(record)
        if isinstance(record, fact.RungReached):
            self._heard.add(record.trial)

    def fold_closed(self, closed: fact.CaseClosed) -> list[Trial]:
        """A driver before made this record; returns the trials that it marks."""
        pruned = [peer for peer in self._cases.trials(closed.case) if not peer.status.final and peer.pruning is None]
        for trial in pruned:
            trial.pruning = Pruning(-1, None, closed.reason)
            self._stopper.release(trial.id)
        return pruned

    def fold_end(self, trial: Trial) -> None:
        """Under a driver before, the trial came to its final status."""
        if trial.status is TrialStatus.PRUNED:  # where it waited, its pause is the reason
            trial.pruning = trial.pruning or trial.pause.due or trial.pause.ahead
        if trial.status in _ENDS:
            trial.pause.forget()
            self._stopper.fold_end(trial.id, succeeded=trial.status is TrialStatus.SUCCEEDED)

    def drop_ended(self) -> None:
        """All records of drivers before are folded: rules do not wait for trials that ended without a result."""
        for trial in self._trials.values():
            if trial.status.final and trial.status not in _ENDS:
                self._stopper.drop(trial.id)

    def conclusions(self) -> list[fact.AnyRecord]:
        """The ends of trials that were pruned before their driver was lost, and ended after."""
        return [
            fact.TrialConcluded(trial=trial.id, status=TrialStatus.PRUNED, metrics=self.metrics(trial))
            for trial in self._trials.values()
            if unsettled(trial)
        ]


def unsettled(trial: Trial) -> bool:
    """A rule has stopped the trial, and its end is not recorded."""
    return trial.pruning is not None and trial.status is not TrialStatus.PRUNED
