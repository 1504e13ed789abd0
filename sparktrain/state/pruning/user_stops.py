"""Trials that the user stops while the sweep continues. Pure."""

from sparktrain.ids import TrialId
from sparktrain.state.sweep import Sweep
from sparktrain.state.trial import Trial, TrialStatus


class UserStops:
    """Stops single trials of one run."""

    def __init__(self, sweep: Sweep) -> None:
        self._sweep = sweep

    def stop(self, number: TrialId, reason: str) -> list[Trial]:
        """Stop a trial: one that runs is advised to stop, and ended after a grace.

        One that waits or is paused is pruned at once, and returned. A trial that is unknown, has its end or is pruned
        already stays as it is.
        """
        sweep = self._sweep
        trial = sweep.trials.get(number)
        if trial is None or trial.status.final or trial.pruning is not None:
            return []
        sweep.note(sweep.pruned.on_user_stop(trial, reason))
        if trial.status is TrialStatus.RUNNING:
            return []
        sweep.prune(trial)
        return [trial]
