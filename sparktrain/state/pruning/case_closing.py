"""Which cases of a run are closed before all their trials have run, and what becomes of those trials. Pure."""

import math

from sparktrain.state.pruning.racing import LABEL, cannot_win
from sparktrain.state.pruning.rule import aim_of
from sparktrain.state.records import CaseClosed
from sparktrain.state.sweep import Sweep
from sparktrain.state.trial import Trial, TrialStatus


class CaseClosing:
    """Closes the cases of one run. What it knows follows from the trials alone."""

    def __init__(self, sweep: Sweep) -> None:
        self._sweep = sweep
        self._aim = aim_of(sweep.spec)
        self._best: tuple[float, int] | None = None
        """The lowest mean cost of a case that has succeeded, and its number."""
        self._lowest = math.inf
        """The lowest cost of any trial."""

    def settle(self) -> list[Trial]:
        """Close the cases that the ends since the last call have decided; returns their trials that are final by that.

        Trials that wait for a gang are pruned at once, and those that run are asked to stop.
        """
        sweep = self._sweep
        ended = sweep.cases.take_ended()
        if not ended or sweep.cases.size == 1:
            return []
        for trial in ended:
            self._see(sweep.trials[trial])
        if sweep.stop is not None:
            return []  # those without a result belong to the driver that resumes the run
        waiting = (trial.id for trial in sweep.queue)
        undecided = {sweep.cases.number(trial_id) for trial_id in (*waiting, *sweep.gangs)}
        closed: list[Trial] = []
        for case in sorted(undecided):
            if reason := self._reason(case):
                closed += sweep.close_case(CaseClosed(case=case, reason=reason))
        return closed

    def _see(self, trial: Trial) -> None:
        """The trial has ended, and its case perhaps with it."""
        if self._aim is None:
            return
        self._lowest = min([self._lowest, *self._costs([trial]).values()])
        case = self._sweep.cases.number(trial.id)
        trials = self._sweep.cases.trials(case)
        costs = self._costs(trials)
        # A case that a failed trial completes counts too: where only successes were looked at, it could not be the best
        # one until the next driver.
        if costs and all(case_trial.status in (TrialStatus.SUCCEEDED, TrialStatus.FAILED) for case_trial in trials):
            mine = math.fsum(costs.values()) / len(costs), case
            self._best = mine if self._best is None else min(self._best, mine)

    def _costs(self, trials: list[Trial]) -> dict[int, float]:
        """The costs of those that succeeded, by their place in the case."""
        assert self._aim is not None
        costs = {
            trial.id % self._sweep.cases.size: self._aim.cost(trial.metrics.get(self._aim.metric, math.nan))
            for trial in trials
            if trial.status is TrialStatus.SUCCEEDED
        }
        return {place: cost for place, cost in costs.items() if math.isfinite(cost)}

    def _reason(self, case: int) -> str:
        """Why the case is closed; empty where it continues."""
        trials = self._sweep.cases.trials(case)
        if all(trial.status.final or trial.pruning is not None for trial in trials):
            return ""  # nothing is left to close
        pruned = next((trial for trial in trials if trial.status is TrialStatus.PRUNED), None)
        if pruned is not None:
            return f"closed: trial {pruned.id} of the same parameters was {_why(pruned)}"
        if self._aim is None or not self._sweep.spec.racing or self._best is None or self._best[1] == case:
            return ""
        mine = self._costs(trials)
        pending = sum(not trial.status.final for trial in trials)
        why = cannot_win(mine, self._costs(self._sweep.cases.trials(self._best[1])), pending, self._lowest, self._aim)
        if not why:
            return ""
        mean = self._aim.cost(math.fsum(mine.values()) / len(mine))
        return f"closed after {len(mine)} trials: {self._aim.metric} {mean:.4g} {why}: case {self._best[1]} ({LABEL})"


def _why(trial: Trial) -> str:
    return trial.pruning.reason if trial.pruning is not None and trial.pruning.reason else "pruned"
