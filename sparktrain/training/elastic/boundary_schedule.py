"""When the members of a gang agree, and when they take their next memory checkpoint: equal on all of them. Pure."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sparktrain.config.param_values import described
from sparktrain.config.quantities import seconds
from sparktrain.errors import SpecError

BUDGET = 0.018
"""The share of training time that copies may take. Agreements between them, and what copies displace in the caches of
a host, take the rest of the 2 % that users are promised (`benchmarks.memory_checkpoint`)."""
SHORTEST_S = 0.5
"""The shortest time between two snapshots."""


def snapshot_interval(value: Any) -> float | None:
    """The seconds between snapshots for a `memory_checkpoint` that is a time; None for "auto". Raises SpecError."""
    if value == "auto":
        return None
    if not isinstance(value, str):
        raise SpecError(
            f"memory_checkpoint is {described(value)}; pass 'auto', a time such as '5s', or None for no snapshots"
        )
    return seconds(value, "memory_checkpoint")


@dataclass
class BoundarySchedule:
    """Counts steps, because clocks differ: the members agree at a step that all compute from the same numbers.

    `interval_s` is a fixed time between snapshots; None takes them as often as the budget allows.
    """

    interval_s: float | None = None
    most_s: float = math.inf
    """The longest time between two agreements."""
    next: int = 0
    """The step at which the members agree next."""
    _gap: int = 1
    _snapshot_count: int = 0
    """Snapshots of the gang."""

    def start(self, step: int) -> None:
        """Training starts, or resumes, after `step`. The first step of a process may be slow: it is no measure."""
        self._gap = 1
        self.next = step + 1

    def agree(self, step: int, since_s: float, pace_s: float, cost_s: float) -> bool:
        """Whether the members take a snapshot after `step`; sets `next`. The gap between agreements at most doubles.

        All numbers are the largest of any member: `since_s` since its last snapshot, `pace_s` for a step, and `cost_s`
        of a snapshot, 0 before the first one.
        """
        needed = max(SHORTEST_S, cost_s / BUDGET) if self.interval_s is None else self.interval_s
        due = since_s >= needed
        remaining_s = min(self.most_s, needed if due else needed - since_s)
        steps = -(-remaining_s // pace_s) if pace_s > 0 else 2 * self._gap
        # The first steps of a process are slow, and those after them fast: a gap computed from either alone would be
        # far off.
        self._gap = max(1, min(2 * self._gap, int(steps)))
        self.next = step + self._gap
        return due

    def turn(self, place: int, members: int) -> bool:
        """Whether the member at `place` among the `members` of its host takes this snapshot of the gang.

        They take turns: one copy at a time has the memory of the host for itself, and training waits for it half as
        long as for two. Each host of the gang has a copy of each snapshot.
        """
        self._snapshot_count += 1
        return self._snapshot_count % members == place

    def agreed(self) -> tuple[int, int, int]:
        """What the members have agreed on so far, equal on all of them."""
        return self.next, self._gap, self._snapshot_count

    def continue_with(self, agreed: Sequence[int]) -> None:
        """Continue with what `agreed` has returned on another member."""
        self.next, self._gap, self._snapshot_count = agreed

    def postpone(self, step: int) -> None:
        """No snapshot is possible after `step`, the last one of an epoch before its end: ask at the next one."""
        self.next = step + 1
