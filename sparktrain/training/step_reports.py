"""Reports the steps of a member to its agent, and no more often than the agent needs to know that it trains."""

import math
from collections.abc import Callable

from sparktrain.base.clock import Clock
from sparktrain.rundir.newest_step import newest_step
from sparktrain.training.collectives.ring import Ring

PROGRESS_S = 0.5
"""The shortest time between two reports of a member's step."""


class StepReports:
    """The steps of one training. For the thread that trains."""

    def __init__(self, stepped: Callable[[int, bool], None], clock: Clock, ring: Ring | None = None) -> None:
        """`stepped` sends a step, and whether training continues. Raises OSError when the agent is gone.

        `ring` notes the ends of steps.
        """
        self._notes = None if ring is None else ring.notes
        self._stepped = stepped
        self._clock = clock
        self._reported_at = -math.inf

    def reached(self, step: int) -> None:
        """Report `step`, unless another step was reported a moment ago. Raises OSError when the agent is gone."""
        newest_step.mark(step)
        if self._notes is not None:
            self._notes.step(step)
            if self._notes.stepped is not None:
                self._notes.stepped(step)
        if (now := self._clock.now()) - self._reported_at >= PROGRESS_S:
            self._reported_at = now
            self._stepped(step, True)
