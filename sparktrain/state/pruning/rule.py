"""What a rule of pruning is: it sees the values of trials at some of their steps, and finds those that cannot win.

Steps count as progress: the steps that a trial has finished, 1 after its first one. All that a rule knows is what
`record` and `trial_ended` gave it, so that a driver which takes over knows the same from the journal.
"""

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from sparktrain.base.ids import TrialId
from sparktrain.config.sweep_spec import SweepSpec


@dataclass(frozen=True)
class Aim:
    """What is better."""

    metric: str
    largest: bool

    @property
    def worse(self) -> str:
        """On which side of others the value of a worse trial is."""
        return "below" if self.largest else "above"

    def cost(self, value: float) -> float:
        """`value`, or its negative: smaller is better."""
        return -value if self.largest else value


def aim_of(spec: SweepSpec) -> Aim | None:
    """What is better in a run; None where its trials are not compared."""
    return None if spec.metric is None else Aim(spec.metric, largest=spec.mode == "max")


class PruningRule(ABC):
    """One rule, with what it has seen. A value is None where the trial reported one that is not finite."""

    def __init__(self, label: str, steps_from: int, aim: Aim) -> None:
        """`label` is the rule with its options, as text: its records have it."""
        self.label = label
        self.aim = aim
        self._steps_from = steps_from

    def progress(self, step: int) -> int:
        """The steps that a trial has finished when it reports `step`."""
        return step + 1 - self._steps_from

    def step(self, progress: int) -> int:
        """The step that a trial reports when it has finished `progress` steps."""
        return progress - 1 + self._steps_from

    @abstractmethod
    def due(self, trial: TrialId, progress: int) -> Sequence[int]:
        """The points, as progress, that the trial has reached and that are not recorded, ascending."""

    def next_due(self, trial: TrialId) -> int:
        """No point is due below this progress of the trial."""
        return 0

    @abstractmethod
    def judge(self, trial: TrialId, point: int, value: float | None) -> str:
        """Why the trial is stopped at `point`, in words that follow the value; empty when it continues.

        Called before `record` of the same value.
        """

    def pauses(self, value: float | None) -> bool:
        """Whether a trial that `judge` stops at `value` is paused, and may continue later from its checkpoint."""
        return False

    @abstractmethod
    def record(self, trial: TrialId, point: int, value: float | None) -> None:
        """The trial had `value` at `point`, whether it was stopped there or not."""

    def trial_ended(self, trial: TrialId, *, succeeded: bool) -> None:  # noqa: B027 - most rules need not know
        """The trial has succeeded, or was stopped by a rule."""

    def trial_dropped(self, trial: TrialId) -> None:  # noqa: B027 - most rules keep nothing that waits for a trial
        """The trial has ended without a result, such as by a failure: the rule learns nothing of it."""


_DENSE_STEPS = 100
"""Up to this progress each step is a point."""


def _grid() -> list[int]:
    """Points for rules that look at each step: then in steps of 1 %, so that 10**9 steps make 1,800 records."""
    points = list(range(1, _DENSE_STEPS + 1))
    while points[-1] < 2**62:
        points.append(points[-1] + points[-1] // 100)
    return points


GRID = _grid()
"""The points of rules that look at each step."""


def newest_point(progress: int) -> int:
    """The last point of the grid that is not after `progress`, 0 before the first."""
    index = bisect_right(GRID, progress)
    return GRID[index - 1] if index else 0
