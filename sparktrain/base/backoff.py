"""Exponential backoff: the pauses between attempts, and the time that all attempts of one call share."""

import random
from dataclasses import dataclass

from sparktrain.base.clock import Clock, SystemClock


@dataclass
class Backoff:
    """The pauses between attempts: each is twice the one before, up to a limit."""

    pause_s: float
    """The next pause, before jitter."""
    longest_s: float
    jitter: tuple[float, float] = (1.0, 1.0)
    """Bounds of a random factor for each pause, so that many callers do not retry at the same moment."""

    def next_s(self) -> float:
        """The pause before the next attempt, in seconds; the one after it is twice as long."""
        pause_s, self.pause_s = self.pause_s, min(2 * self.pause_s, self.longest_s)
        return pause_s * random.uniform(*self.jitter)


class RetryBudget:
    """The time that all attempts of one call share, from now on. For code that blocks its thread."""

    def __init__(self, budget_s: float, backoff: Backoff, clock: Clock | None = None) -> None:
        self._budget_s = budget_s
        self._backoff = backoff
        self._clock = clock or SystemClock()
        self._started_at = self._clock.now()

    def spent_s(self) -> float:
        """Seconds since the call started."""
        return self._clock.now() - self._started_at

    def wait(self) -> bool:
        """Block until the next attempt is due; False, at once, when the budget ends before that."""
        if self.spent_s() + self._backoff.pause_s >= self._budget_s:
            return False
        self._clock.pause(self._backoff.next_s())
        return True
