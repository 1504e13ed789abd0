"""Which agents were there and are gone, for who looks at a run that waits for them. Pure but for the clock."""

from dataclasses import dataclass

from sparktrain.clock import Clock

TOLD = 3
"""Of so many absent agents a text tells each; of the others it tells how many they are."""


@dataclass(frozen=True)
class _Absence:
    host: str
    reason: str
    since: float


class Absences:
    """Slots whose agent was lost, left or was refused, and that no other agent has taken since."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._absent: dict[int, _Absence] = {}

    def begin(self, slot: int, host: str, reason: str) -> None:
        """The agent of `slot` on `host` is gone because of `reason`."""
        self._absent[slot] = _Absence(host, reason, self._clock.now())

    def over(self, slot: int) -> None:
        """An agent of `slot` has joined."""
        self._absent.pop(slot, None)

    def forget(self) -> None:
        """All are gone because they were told to go."""
        self._absent.clear()

    def told(self) -> str:
        """One line: the newest absences first, with their causes; empty when there are none."""
        newest = sorted(self._absent.items(), key=lambda each: -each[1].since)
        lines = [
            f"agent {slot} on {absence.host} is gone since {self._clock.now() - absence.since:.0f} s ({absence.reason})"
            for slot, absence in newest[:TOLD]
        ]
        more = len(newest) - TOLD
        return "; ".join([*lines, *([f"{more} more are gone"] if more > 0 else [])])
