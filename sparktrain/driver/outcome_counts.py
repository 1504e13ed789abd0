"""Counts of how the trials of a run have ended, updated as they end: progress is shown ten times a second."""

from collections import Counter
from collections.abc import Iterable

from sparktrain.base.ids import TrialId
from sparktrain.config.sweep_spec import SweepSpec
from sparktrain.display.time_left import TrialTimes
from sparktrain.runs.sweep_outcome import best_of
from sparktrain.state.cases.case_end import CaseEnd, end_of
from sparktrain.state.trial import NOT_FORMED, Trial, TrialStatus

_TIMED = (TrialStatus.SUCCEEDED, TrialStatus.FAILED, TrialStatus.PRUNED)


class Tally:
    """Counts of the final trials. Under one driver a final status never changes."""

    def __init__(self, spec: SweepSpec, trials: Iterable[Trial] = ()) -> None:
        """`trials` are those of the run at its start, in any status."""
        self.counts: Counter[TrialStatus] = Counter()
        self.restarts = 0
        self.best: Trial | CaseEnd | None = None
        """Of those that succeeded; None without a metric. With repeats or folds the best case."""
        self._open: dict[int, list[Trial]] = {}
        """Final trials of cases that have others."""
        self._spec = spec
        self._counted_trials: set[TrialId] = set()
        self.times = TrialTimes()
        """Of those that ended by themselves, or by a rule; also under earlier drivers."""
        for trial in trials:
            self.add(trial)

    @property
    def done(self) -> int:
        """Number of final trials."""
        return len(self._counted_trials)

    def add(self, trial: Trial) -> None:
        """Count the trial, if it is final and was not counted before."""
        if not trial.status.final or trial.id in self._counted_trials:
            return
        self._counted_trials.add(trial.id)
        self.counts[trial.status] += 1
        self.restarts += trial.restart_history.losses
        if trial.status in _TIMED and trial.generation != NOT_FORMED:
            self.times.add(trial.outcome.seconds)
        ended = trial if self._spec.replication.size == 1 else self._case_of(trial)
        if ended is not None and ended.status is TrialStatus.SUCCEEDED:
            best = [ended] if self.best is None else [self.best, ended]
            self.best = best_of(best, self._spec.metric, self._spec.mode, self._spec.constraints)

    def _case_of(self, trial: Trial) -> CaseEnd | None:
        """The case that the trial completes."""
        shape = self._spec.replication
        trials = self._open.setdefault(shape.case(trial.id), [])
        trials.append(trial)
        if len(trials) < shape.size:
            return None
        return end_of(shape.case(trial.id), self._open.pop(shape.case(trial.id)), self._spec.metric or "")
