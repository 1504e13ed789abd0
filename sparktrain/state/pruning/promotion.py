"""Successive halving that pauses trials at their rungs, and promotes those that turn out to be among the best.

Algorithm 2 of arXiv 1810.05934: a trial continues beyond a rung once it is among the best floor(n / eta) of the n
trials there. Paused trials keep their checkpoints, so nothing is trained twice.
"""

from bisect import bisect_left, insort

from sparktrain.base.ids import TrialId
from sparktrain.config.stoppers import ASHA
from sparktrain.state.pruning.asha import HalvingRule, fraction
from sparktrain.state.pruning.rule import Aim


class PromotingRule(HalvingRule):
    """A trial that is not yet among the best of its rung waits there; one with a value that is not finite is pruned."""

    def __init__(self, options: ASHA, aim: Aim) -> None:
        super().__init__(options, aim)
        self._eta = options.eta
        self._ranked: dict[int, list[tuple[float, TrialId]]] = {}
        """Costs and trials by rung, the best ones first; of equal costs, the trial with the lower number."""
        self._waiting: dict[int, list[tuple[float, TrialId]]] = {}
        """Those of them that are paused there, or about to be, in the same order."""
        self._waits_with: dict[tuple[TrialId, int], float] = {}
        """The costs of these, by trial and rung."""

    def pauses(self, value: float | None) -> bool:
        """See base class."""
        return value is not None

    def judge(self, trial: TrialId, point: int, value: float | None) -> str:
        """See base class."""
        if value is None:
            # A value that is not finite compares as no worse than any: in Ray's rule such a trial never stops.
            return "is not finite"
        ranked = self._ranked.get(point, [])
        number = len(ranked) + 1
        if bisect_left(ranked, (self.aim.cost(value), trial)) < number // self._eta:
            return ""
        return f"is not among the best {fraction(self._eta)} of {number}"

    def record(self, trial: TrialId, point: int, value: float | None) -> None:
        """See base class."""
        continues = not self.judge(trial, point, value)
        super().record(trial, point, value)
        place = (float("inf") if value is None else self.aim.cost(value), trial)
        insort(self._ranked.setdefault(point, []), place)
        if not continues and value is not None:
            insort(self._waiting.setdefault(point, []), place)
            self._waits_with[trial, point] = place[0]

    def promote(self, trial: TrialId, rung: int) -> None:
        """The trial continues beyond `rung`."""
        if (cost := self._waits_with.pop((trial, rung), None)) is not None:
            # By bisection: with 10,000 trials, a copy of the list for each end took a third of the rule's time.
            waiting = self._waiting[rung]
            del waiting[bisect_left(waiting, (cost, trial))]

    def trial_ended(self, trial: TrialId, *, succeeded: bool) -> None:
        """See base class."""
        self.trial_dropped(trial)

    def trial_dropped(self, trial: TrialId) -> None:
        """See base class."""
        if (rung := self._reached.get(trial)) is not None and self._waiting.get(rung):
            self.promote(trial, rung)

    def promotable(self) -> list[tuple[TrialId, int]]:
        """Trials that wait and are among the best of their rungs now, with these; those of the highest rung first."""
        promotions = []
        for rung in sorted(self._waiting, reverse=True):
            ranked = self._ranked[rung]
            places = len(ranked) // self._eta
            for place in self._waiting[rung]:
                if bisect_left(ranked, place) >= places:
                    break
                promotions.append((place[1], rung))
        return promotions

    def best_waiting(self) -> tuple[TrialId, int] | None:
        """The best trial that waits at the highest rung where any does, and this rung."""
        rung = max((rung for rung, waiting in self._waiting.items() if waiting), default=None)
        return None if rung is None else (self._waiting[rung][0][1], rung)
