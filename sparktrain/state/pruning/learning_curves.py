"""Rules that look at each step of a trial: its own values, or those of trials that have ended."""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Sequence

from sparktrain.base.ids import TrialId
from sparktrain.config.stoppers import Median, Patience, Threshold
from sparktrain.state.pruning.rule import GRID, Aim, PruningRule, newest_point


class _CurveRule(PruningRule):
    """A rule that looks at the newest point of the grid that a trial has reached."""

    def __init__(self, label: str, steps_from: int, aim: Aim) -> None:
        super().__init__(label, steps_from, aim)
        self._reached: dict[TrialId, int] = {}

    def due(self, trial: TrialId, progress: int) -> Sequence[int]:
        """See base class."""
        point = newest_point(progress)
        return (point,) if point > self._reached.get(trial, 0) else ()

    def record(self, trial: TrialId, point: int, value: float | None) -> None:
        """See base class."""
        self._reached[trial] = max(point, self._reached.get(trial, 0))

    def trial_ended(self, trial: TrialId, *, succeeded: bool) -> None:
        """See base class."""
        self.trial_dropped(trial)

    def trial_dropped(self, trial: TrialId) -> None:
        """See base class."""
        self._reached.pop(trial, None)


class ThresholdRule(_CurveRule):
    """Values must stay in a range."""

    def __init__(self, options: Threshold, aim: Aim) -> None:
        super().__init__(str(options), options.steps_from, aim)
        self._options = options

    def judge(self, trial: TrialId, point: int, value: float | None) -> str:
        """See base class."""
        lower = self._options.lower
        upper = self._options.upper
        if point <= self._options.warmup:
            return ""
        if value is None:
            return "is not finite"
        if lower is not None and value < lower:
            return f"is below {lower:.4g}"
        return f"is above {upper:.4g}" if upper is not None and value > upper else ""


class PatienceRule(_CurveRule):
    """The best value must improve. One that is not finite is no improvement."""

    def __init__(self, options: Patience, aim: Aim) -> None:
        super().__init__(str(options), options.steps_from, aim)
        self._options = options
        self._best: dict[TrialId, tuple[float, int]] = {}
        """The lowest cost of each trial, and where it was."""

    def judge(self, trial: TrialId, point: int, value: float | None) -> str:
        """See base class."""
        best, at = self._best.get(trial, (float("inf"), 0))
        if self._improves(value, best) or point - at < self._options.steps:
            return ""
        return f"has not improved for {point - at} steps"

    def record(self, trial: TrialId, point: int, value: float | None) -> None:
        """See base class."""
        super().record(trial, point, value)
        best, at = self._best.get(trial, (float("inf"), 0))
        if value is not None and self._improves(value, best):
            best = self.aim.cost(value)
            at = point
        self._best[trial] = best, at

    def trial_dropped(self, trial: TrialId) -> None:
        """See base class."""
        super().trial_dropped(trial)
        self._best.pop(trial, None)

    def _improves(self, value: float | None, best: float) -> bool:
        return value is not None and self.aim.cost(value) < best - self._options.min_delta


class _Curve:
    """The values of a running trial: the best, and the sums of the finite ones up to each point."""

    def __init__(self) -> None:
        self.best = float("inf")
        self.points: list[int] = []
        self.sums: list[tuple[float, int]] = []

    def add(self, point: int, cost: float | None) -> None:
        """The trial has `cost` at `point`."""
        total, number = self.sums[-1] if self.sums else (0.0, 0)
        if cost is not None:
            self.best = min(self.best, cost)
            total = total + cost
            number = number + 1
        self.points.append(point)
        self.sums.append((total, number))

    def mean(self, point: int) -> float | None:
        """The mean of the finite values up to `point`."""
        index = bisect_right(self.points, point)
        total, number = self.sums[index - 1] if index else (0.0, 0)
        return total / number if number else None


class MedianRule(_CurveRule):
    """The best value so far must reach the median of the mean values of trials that have ended and came as far."""

    def __init__(self, options: Median, aim: Aim) -> None:
        super().__init__(str(options), options.steps_from, aim)
        self._options = options
        self._curves: dict[TrialId, _Curve] = {}
        self._means: dict[int, list[float]] = {}
        """Of trials that have ended, ascending, by the points that they reached."""

    def judge(self, trial: TrialId, point: int, value: float | None) -> str:
        """See base class."""
        means = self._means.get(point, [])
        if point <= self._options.warmup or len(means) < self._options.min_trials:
            return ""
        best = self._curves[trial].best if trial in self._curves else float("inf")
        best = best if value is None else min(best, self.aim.cost(value))
        middle = len(means) // 2
        median = means[middle] if len(means) % 2 else (means[middle - 1] + means[middle]) / 2
        if best <= median:
            return ""
        return f"is {self.aim.worse} the median {self.aim.cost(median):.4g} of {len(means)} trials"

    def record(self, trial: TrialId, point: int, value: float | None) -> None:
        """See base class."""
        super().record(trial, point, value)
        curve = self._curves.setdefault(trial, _Curve())
        curve.add(point, None if value is None else self.aim.cost(value))

    def trial_ended(self, trial: TrialId, *, succeeded: bool) -> None:
        """See base class."""
        curve = self._curves.get(trial)
        super().trial_ended(trial, succeeded=succeeded)
        if curve is None:
            return
        for point in GRID[bisect_left(GRID, curve.points[0]) : bisect_right(GRID, curve.points[-1])]:
            if (mean := curve.mean(point)) is not None:
                insort(self._means.setdefault(point, []), mean)

    def trial_dropped(self, trial: TrialId) -> None:
        """See base class."""
        super().trial_dropped(trial)
        self._curves.pop(trial, None)
