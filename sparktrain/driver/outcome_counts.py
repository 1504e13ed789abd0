"""Counts of how the trials of a run have ended, updated as they end: progress is shown ten times a second."""

from collections import Counter
from collections.abc import Iterable

from sparktrain.config.sweep_spec import SweepSpec
from sparktrain.ids import TrialId
from sparktrain.runs.sweep_outcome import best_of
from sparktrain.state.trial import Trial, TrialStatus


class Tally:
    """Counts of the final trials. Under one driver a final status never changes."""

    def __init__(self, spec: SweepSpec, trials: Iterable[Trial] = ()) -> None:
        """`trials` are those of the run at its start, in any status."""
        self.counts: Counter[TrialStatus] = Counter()
        self.restarts = 0
        self.best: Trial | None = None
        """Of those that succeeded; None without a metric."""
        self._spec = spec
        self._seen: set[TrialId] = set()
        for trial in trials:
            self.add(trial)
        self._before = self.done

    @property
    def fresh(self) -> int:
        """Number of trials that have ended under this driver."""
        return self.done - self._before

    @property
    def done(self) -> int:
        """Number of final trials."""
        return len(self._seen)

    def add(self, trial: Trial) -> None:
        """Count the trial, if it is final and was not counted before."""
        if not trial.status.final or trial.id in self._seen:
            return
        self._seen.add(trial.id)
        self.counts[trial.status] += 1
        self.restarts += trial.losses
        if trial.status is TrialStatus.SUCCEEDED:
            best = [trial] if self.best is None else [self.best, trial]
            self.best = best_of(best, self._spec.metric, self._spec.mode)
