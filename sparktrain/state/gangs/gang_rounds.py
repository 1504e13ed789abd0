"""Which gangs a tick checks: all of them, or a part in turn where there are thousands. Pure."""

from collections import deque
from collections.abc import Mapping

from sparktrain.base.ids import TrialId
from sparktrain.state.gangs.gang import Gang

MOST = 1000
"""Gangs that one tick checks. Ticks come ten times a second, so that 10,000 gangs are each checked once a second."""


class GangRounds:
    """Goes round the gangs of a run, as they are at the start of each round."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._pending: deque[TrialId] = deque()

    def due(self, gangs: Mapping[TrialId, Gang]) -> list[Gang]:
        """The gangs for this tick, `most` of them at most; each one comes once in a round."""
        if not self._pending:
            self._pending.extend(gangs)
        turn = [self._pending.popleft() for _ in range(min(self._most, len(self._pending)))]
        return [gangs[trial] for trial in turn if trial in gangs]
