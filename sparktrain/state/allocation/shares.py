"""How much of a pool each run has used, measured against its weight. Pure.

As in start-time fair queueing, a run's use divided by its weight is its virtual time, and what becomes free goes to the
run that is behind. A run that could not use its share keeps only a little of what it missed: else it would later
hold all slots for as long as it had none.
"""

import math
from collections.abc import Iterable

from msgspec import Struct

from sparktrain.base.ids import RunId

AHEAD_S = 1.0
"""The agents that a run has now count as if it had them for so long: runs that start together share at once."""
CREDIT_S = 2.0
"""A run that had no use for its share catches up on so much of it at most, in seconds of the share."""


class RunShare(Struct, gc=False):
    """What one run has used, and how much it may."""

    run: RunId
    weight: float
    priority: int
    since: float
    """Until when its use is counted."""
    used_s: float = 0.0
    """Seconds of slots, and what it gave up for lack of work."""
    in_use: int = 0
    """Agents that count as used: with members, or there for members that it could start."""
    hungry: bool = False
    """It could use more agents than it has."""
    is_new: bool = True
    """It has just come."""
    exempt: int = 0
    """Agents that it had beyond its share when another run came: until their members end, they count as no use."""

    @property
    def rate(self) -> int:
        """Slot-seconds that count in a second."""
        return max(0, self.in_use - self.exempt)

    def count(self, at: float) -> None:
        """Count its use up to `at`."""
        if at > self.since:
            self.used_s += self.rate * (at - self.since)
            self.since = at

    def after(self, agents: int) -> float:
        """Its virtual time, soon, if it had so many agents in all: the lower, the more it is owed."""
        return (self.used_s + agents * AHEAD_S) / self.weight

    @property
    def virtual_s(self) -> float:
        """Its use for each unit of weight."""
        return self.used_s / self.weight


def let_in(share: RunShare, rivals: Iterable[RunShare], slots: int) -> None:
    """The run can use more agents again, or for the first time: it starts about where the hungry others are."""
    equals = [rival for rival in rivals if rival is not share and rival.priority == share.priority]
    if share.is_new:
        weights = share.weight + sum(rival.weight for rival in equals)
        # Without this, a run that was there first got too little for minutes, to make up for what no other one wanted.
        for rival in equals:
            excess = rival.in_use - math.ceil(slots * rival.weight / weights)
            rival.exempt = max(rival.exempt, excess)
    hungry = [rival for rival in equals if rival.hungry]
    if not hungry:
        return
    weights = share.weight + sum(rival.weight for rival in hungry)
    credit = CREDIT_S * slots / weights
    behind = min(rival.virtual_s for rival in hungry) - (credit if share.used_s else 0.0)
    share.used_s = max(share.used_s, behind * share.weight)
