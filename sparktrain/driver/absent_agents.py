"""Agents that had joined and are gone, for the progress of a run that waits for them. Pure but for the clock."""

from dataclasses import dataclass

from sparktrain.base.clock import Clock

MOST_NAMED = 3
"""A text names this many absent agents; of the others it has the number."""


@dataclass(frozen=True)
class _Absence:
    host: str
    reason: str
    since: float


class Absences:
    """Slots without an agent since theirs was lost, left or was refused."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._absent: dict[int, _Absence] = {}

    def add(self, slot: int, host: str, reason: str) -> None:
        """The agent of `slot` on `host` is gone because of `reason`."""
        self._absent[slot] = _Absence(host, reason, self._clock.now())

    def remove(self, slot: int) -> None:
        """An agent of `slot` has joined."""
        self._absent.pop(slot, None)

    def clear(self) -> None:
        """All agents are gone because the pool dismissed them."""
        self._absent.clear()

    def summary(self) -> str:
        """One line: the newest absences first, with their causes; empty when there are none."""
        newest = sorted(self._absent.items(), key=lambda entry: -entry[1].since)
        lines = [
            f"agent {slot} on {absence.host} is gone since {self._clock.now() - absence.since:.0f} s ({absence.reason})"
            for slot, absence in newest[:MOST_NAMED]
        ]
        unnamed_count = len(newest) - MOST_NAMED
        return "; ".join([*lines, *([f"{unnamed_count} more are gone"] if unnamed_count > 0 else [])])
