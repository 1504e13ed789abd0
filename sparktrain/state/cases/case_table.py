"""Cases: the sets of parameters that a sampler proposes, each with one or several trials. Pure.

A sampler thinks in cases: it is asked for them, and learns the end of each once, when all its trials have a result. The
driver that runs the trials and one that takes over follow the same trials, so their samplers learn the same.
"""

from collections.abc import Mapping

from sparktrain.base.ids import TrialId
from sparktrain.state.cases.case_end import CaseEnd, end_of
from sparktrain.state.trial import Trial


class CaseTable:
    """The cases of a run."""

    def __init__(self, size: int, metric: str | None, trials: Mapping[TrialId, Trial]) -> None:
        """`size` is the number of trials of each case; `trials` are those of the run, and grow with it."""
        self.size = size
        self._metric = metric or ""
        self._trials = trials
        self._completed_by: dict[int, TrialId] = {}
        self._ended: list[TrialId] = []

    def number(self, trial: TrialId) -> int:
        """The case of a trial."""
        return trial // self.size

    def trials(self, case: int) -> list[Trial]:
        """The trials of a case that are known, by number."""
        numbers = range(case * self.size, (case + 1) * self.size)
        return [self._trials[TrialId(trial_number)] for trial_number in numbers if trial_number in self._trials]

    def is_first(self, trial: TrialId) -> bool:
        """The trial is the first one of its case."""
        return trial % self.size == 0

    def ended(self, trial: Trial) -> Trial | CaseEnd | None:
        """The trial has its final status; returns its case, if all trials of that have results now.

        Where each case has one trial, that stands for it.
        """
        if not trial.status.observed:
            return None
        self._ended.append(trial.id)
        case = self.number(trial.id)
        if not all(case_trial.status.observed for case_trial in self.trials(case)):
            return None
        self._completed_by[case] = trial.id
        return self.end(trial)

    def end(self, trial: Trial) -> Trial | CaseEnd:
        """The end of the case that `trial` has completed."""
        return (
            trial if self.size == 1 else end_of(self.number(trial.id), self.trials(self.number(trial.id)), self._metric)
        )

    def is_partial(self, trial: TrialId) -> bool:
        """The trial is final, and is not the one that completed its case."""
        return self.size > 1 and self._completed_by.get(self.number(trial)) != trial

    def take_ended(self) -> list[TrialId]:
        """Trials that have got a result since the last call, under drivers before too."""
        ended = self._ended
        self._ended = []
        return ended
