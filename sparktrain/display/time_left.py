"""How long a run still takes, from how long its trials train: the start of agents and of Spark is no part of that."""

import math
from collections.abc import Sequence
from heapq import heapify, heapreplace

_STEPS = 20
"""Classes of durations for each factor of e: two in one class differ by 5 %."""
_ROUNDS = 2
"""How many of the last rounds of trials are distributed to slots one by one; those before keep every slot busy."""


class TrialTimes:
    """How long trials have trained, by classes: any number of trials takes the same memory, and their order no part.

    Sums are whole milliseconds, so that they are exact.
    """

    def __init__(self) -> None:
        self.count = 0
        self._total_ms = 0
        self._classes: dict[int, tuple[int, int]] = {}
        """Number of trials and the sum of their milliseconds, by the logarithm of these."""

    def add(self, seconds: float) -> None:
        """A trial has ended that trained for `seconds`."""
        ms = max(0, round(1000 * seconds))
        self.count += 1
        self._total_ms += ms
        key = round(_STEPS * math.log(ms + 1))
        count, total = self._classes.get(key, (0, 0))
        self._classes[key] = count + 1, total + ms

    @property
    def mean_s(self) -> float:
        """The mean; 0 before any has ended."""
        return self._total_ms / self.count / 1000 if self.count else 0.0

    def left_s(self, elapsed_s: float) -> float:
        """How long a trial still trains that has trained for `elapsed_s`: what those took that trained for longer.

        Half of the mean where none has.
        """
        longer = [of for of in self._classes.values() if of[1] > 1000 * elapsed_s * of[0]]
        if not longer:
            return self.mean_s / 2
        return sum(total for _, total in longer) / sum(count for count, _ in longer) / 1000 - elapsed_s


def time_left(times: TrialTimes, elapsed: Sequence[float], to_come: int, slots: int) -> float | None:
    """Seconds until the trials that run, for `elapsed` seconds each, and `to_come` more have ended on `slots` slots.

    None before as many have ended as run at a time: the first to end are no measure of the others. None too while
    trials are to come and no slot is there.
    """
    if not elapsed and not to_come:
        return 0.0
    if times.count < max(1, len(elapsed)) or not (elapsed or slots):
        return None
    # By the trials themselves: the time since the start has that of Spark and of imports in it, and showed 25 minutes
    # where 6 were left.
    ends = [times.left_s(seconds) for seconds in elapsed]
    ends += [0.0] * (slots - len(ends))
    one_by_one = min(to_come, _ROUNDS * len(ends))
    bulk_s = (to_come - one_by_one) * times.mean_s / len(ends)
    heapify(ends)
    for _ in range(one_by_one):
        heapreplace(ends, ends[0] + times.mean_s)
    return bulk_s + max(ends)
