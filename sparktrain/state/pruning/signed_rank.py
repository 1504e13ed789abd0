"""Wilcoxon's signed-rank test between a trial and the best one, over steps that mean the same in both."""

from collections.abc import Sequence

from sparktrain.base.ids import TrialId
from sparktrain.config.stoppers import Wilcoxon
from sparktrain.state.pruning.rule import Aim, PruningRule


class WilcoxonRule(PruningRule):
    """A trial must not be significantly worse than the best one that has succeeded, at the steps that both have.

    The best one has the best mean over its steps. Values that are not finite are left out.
    """

    def __init__(self, options: Wilcoxon, aim: Aim) -> None:
        super().__init__(str(options), options.steps_from, aim)
        self._options = options
        self._running: dict[TrialId, dict[int, float | None]] = {}
        self._best: dict[int, float] = {}
        """The costs of the best trial."""

    def due(self, trial: TrialId, progress: int) -> Sequence[int]:
        """See base class."""
        return (progress,) if progress > 0 and progress not in self._running.get(trial, {}) else ()

    def judge(self, trial: TrialId, point: int, value: float | None) -> str:
        """See base class."""
        mine = self._running.get(trial, {}) | {point: None if value is None else self.aim.cost(value)}
        common = [(cost, self._best[step]) for step, cost in mine.items() if cost is not None and step in self._best]
        differences = [cost - best for cost, best in common]
        if len(common) < self._options.min_steps or sum(differences) <= 0:
            return ""
        chance = _chance(differences)
        if chance >= self._options.p:
            return ""
        return f"is {self.aim.worse} the best trial at {len(common)} common steps (p = {chance:.2g})"

    def record(self, trial: TrialId, point: int, value: float | None) -> None:
        """See base class."""
        self._running.setdefault(trial, {})[point] = None if value is None else self.aim.cost(value)

    def trial_ended(self, trial: TrialId, *, succeeded: bool) -> None:
        """See base class."""
        costs = {step: cost for step, cost in self._running.pop(trial, {}).items() if cost is not None}
        if succeeded and costs and (not self._best or _mean(costs) < _mean(self._best)):
            self._best = costs

    def trial_dropped(self, trial: TrialId) -> None:
        """See base class."""
        self._running.pop(trial, None)


def _mean(costs: dict[int, float]) -> float:
    return sum(costs.values()) / len(costs)


def _chance(differences: list[float]) -> float:
    """The probability of differences at least so large where there are none."""
    from scipy.stats import wilcoxon  # of an extra; the options were refused before the run without it

    return float(wilcoxon(differences, alternative="greater", zero_method="zsplit").pvalue)
