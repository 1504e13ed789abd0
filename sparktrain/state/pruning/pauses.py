"""Trials that a rule has paused: when they continue, and what becomes of those that never do. Pure."""

from sparktrain.state.sweep import Sweep
from sparktrain.state.trial import Trial


class Pauses:
    """Decides about the paused trials of one run."""

    def __init__(self, sweep: Sweep) -> None:
        self._sweep = sweep

    def promote(self) -> None:
        """Trials that rules have promoted are next, those with the most steps first."""
        paused = self._sweep.paused
        promoted = self._sweep.pruned.promoted
        if not promoted:
            return
        for trial in sorted((paused[trial_id] for trial_id in promoted if trial_id in paused), key=_steps):
            promoted.remove(trial.id)
            self._sweep.resume(trial)

    def resolve(self) -> list[Trial]:
        """Once nothing else can run, what waits is pruned, or the best of it continues if no trial has succeeded.

        Returns the pruned ones.
        """
        sweep = self._sweep
        no_more = sweep.exhausted and not sweep.suggesting and sweep.stop is None
        if not sweep.paused or not no_more or sweep.queue or sweep.gangs:
            return []
        sweep.note(sweep.pruned.promotions(of_any=not sweep.failures.succeeded))
        self.promote()
        ended = [] if sweep.queue else list(sweep.paused.values())
        for trial in ended:
            trial.pruning = trial.pause.due
            trial.pause.forget()
            sweep.prune(trial)
        return ended


def _steps(trial: Trial) -> tuple[int, int]:
    return (trial.checkpoints.newest_step or 0, -trial.id)
