"""Population based training: which trials take over another one's training, and from which they take it.

Truncation selection of arXiv 1711.09846, section 4.1.1, in its asynchronous form: at each of its intervals a trial is
compared with the trials that are not over, by their values there, or by the newest one of a trial that has not come as
far. No trial waits for another one.
"""

import math
import random
from collections.abc import Mapping, Sequence

from sparktrain.base.ids import TrialId
from sparktrain.config.stoppers import PBT
from sparktrain.state.pruning.rule import Aim, PruningRule


class PopulationRule(PruningRule):
    """Records the values of trials at their intervals, and stops none of them."""

    def __init__(self, options: PBT, aim: Aim) -> None:
        super().__init__(str(options), options.steps_from, aim)
        self._options = options
        self._reached: dict[TrialId, int] = {}
        """The last interval at which a trial is recorded."""

    def due(self, trial: TrialId, progress: int) -> Sequence[int]:
        """See base class. Of several intervals that a trial has crossed at once, the last one counts."""
        point = progress // self._options.every * self._options.every
        is_whole = self._options.most is not None and point >= self._options.most
        return [point] if point > self._reached.get(trial, 0) and not is_whole else []

    def next_due(self, trial: TrialId) -> int:
        """See base class."""
        return (self._reached.get(trial, 0) // self._options.every + 1) * self._options.every

    def judge(self, trial: TrialId, point: int, value: float | None) -> str:
        """See base class."""
        return ""

    def record(self, trial: TrialId, point: int, value: float | None) -> None:
        """See base class."""
        self._reached[trial] = max(point, self._reached.get(trial, 0))


def donors(trial: TrialId, costs: Mapping[TrialId, float], quantile: float) -> list[TrialId]:
    """The trials that `trial` may take over, the best one first: none unless it is among the worst.

    `costs` has one of each trial of the population; the smallest is the best, and infinity counts as worst.
    Of n trials, the worst and the best `quantile` are n * quantile, rounded up, and at most half of them.
    """
    ranked = sorted(costs, key=lambda candidate: (costs[candidate], candidate))
    count = min(math.ceil(len(ranked) * quantile), len(ranked) // 2)
    if not count or trial not in ranked[-count:]:
        return []
    return [donor for donor in ranked[:count] if costs[donor] < costs[trial]]


def chance(seed: int, trial: TrialId, number: int) -> random.Random:
    """What decides at exploit `number` of a trial, counted from 0: the same on any machine, and under any driver."""
    return random.Random(f"sparktrain-pbt:{seed}:{trial}:{number}")
