"""ASHA and Hyperband: asynchronous successive halving, in the form that stops trials and never pauses them.

The rungs and the order of decisions follow arXiv 1810.05934, section 3.2, without promotion: a trial is judged when
it reaches a rung, against those that reached it before.
"""

import zlib
from bisect import bisect_left, insort
from collections.abc import Sequence

from sparktrain.base.ids import TrialId
from sparktrain.config.stoppers import ASHA, Hyperband
from sparktrain.state.pruning.rule import Aim, PruningRule

NEVER = 2**62
"""A progress that no trial comes to."""
_FRACTIONS = {2: "half", 3: "third", 4: "quarter", 5: "fifth"}


def fraction(eta: int) -> str:
    """1/`eta` in a word."""
    return _FRACTIONS.get(eta, f"1/{eta}")


class HalvingRule(PruningRule):
    """At each rung the best 1/eta of the trials that came so far continue; ties continue, the first eta - 1 too.

    A trial that skips steps is recorded at every rung that it crossed, with the value after them.
    """

    def __init__(self, options: ASHA | Hyperband, aim: Aim) -> None:
        super().__init__(str(options), options.steps_from, aim)
        self._options = options
        self._most = options.most
        self._costs: dict[tuple[int, int], list[float]] = {}
        """What was recorded, ascending, by bracket and rung."""
        self._reached: dict[TrialId, int] = {}
        """The last rung at which a trial is recorded."""

    @property
    def most(self) -> int | None:
        """The steps of a whole trial; None as long as they are not known: then nothing is due."""
        return self._most

    def learn_most(self, progress: int) -> None:
        """A whole trial has `progress` steps. Ignored when that was known."""
        if self._most is None:
            self._most = max(2, progress)

    def due(self, trial: TrialId, progress: int) -> Sequence[int]:
        """See base class."""
        if self._most is None:
            return ()
        reached = self._reached.get(trial, 0)
        return [rung for rung in self._options.rungs(self._most, self._bracket(trial)) if reached < rung <= progress]

    def next_due(self, trial: TrialId) -> int:
        """See base class."""
        if self._most is None:
            return 0
        reached = self._reached.get(trial, 0)
        return next((rung for rung in self._options.rungs(self._most, self._bracket(trial)) if rung > reached), NEVER)

    def judge(self, trial: TrialId, point: int, value: float | None) -> str:
        """See base class."""
        costs = self._costs.get((self._bracket(trial), point), [])
        eta = self._options.eta
        number = len(costs) + 1
        if value is None:
            return "is not finite"
        better = bisect_left(costs, self.aim.cost(value))
        if number < eta or better < max(1, number // eta):
            return ""
        return f"is {self.aim.worse} the best {fraction(eta)} of {number}"

    def record(self, trial: TrialId, point: int, value: float | None) -> None:
        """See base class."""
        # A restart repeats steps, and a report may skip some: in Ray and Syne Tune a trial that skipped rungs is judged
        # at a lower one later, with a better value.
        self._reached[trial] = max(point, self._reached.get(trial, 0))
        cost = float("inf") if value is None else self.aim.cost(value)
        insort(self._costs.setdefault((self._bracket(trial), point), []), cost)

    def _bracket(self, trial: TrialId) -> int:
        """The bracket of a trial: more trials in those with more rungs (arXiv 1603.06560, algorithm 1)."""
        if not isinstance(self._options, Hyperband) or self._most is None:
            return 0
        brackets = self._options.brackets(self._most)
        shares = [
            -(-brackets * self._options.eta ** (brackets - 1 - tier) // (brackets - tier)) for tier in range(brackets)
        ]
        # By the number and not by chance, so that another driver has the same brackets.
        place = zlib.crc32(b"%d" % trial) % sum(shares)
        for bracket, share in enumerate(shares):
            place -= share
            if place < 0:
                return bracket
        return brackets - 1
