"""How long the drivers of a run have owned it, by the times of their records. Pure.

A driver that dies records no end: it counts up to its newest record. Records are frequent while trials run, for the
journal gets a report of each trial every ten seconds.
"""

from sparktrain.state.ending import Ending
from sparktrain.state.records import AnyRecord, DriverStarted, RunEnded


class DriverTimes:
    """The time under drivers, and the time from the start of the first one, which includes that under no driver."""

    def __init__(self) -> None:
        self.ran_s = 0.0
        """Under drivers that have recorded their end, and those before the newest one."""
        self._started: float | None = None
        self._owned_since: float | None = None
        self._newest = 0.0

    def see(self, record: AnyRecord) -> None:
        """The next record of the journal."""
        match record:
            case DriverStarted(at=at, ran_s=ran_s):
                self.ran_s = ran_s
                self._newest = at
                self._owned_since = at or None
                self._started = self._started or self._owned_since
            case RunEnded(at=at, seconds=seconds, ending=ending):
                # A driver that could not prepare the run ends it without a start of its own.
                self.ran_s += self.unended_s if ending == Ending.UNPREPARED else seconds
                self._owned_since = None
                self._newest = max(self._newest, at)
            case _:
                self._newest = max(self._newest, record.at)

    @property
    def unended_s(self) -> float:
        """How long the newest driver has run up to its newest record, where it has recorded no end."""
        return 0.0 if self._owned_since is None else max(0.0, self._newest - self._owned_since)

    @property
    def last_seen(self) -> float:
        """When the newest driver made its newest record, in seconds since 1970; 0 where it has recorded its end."""
        return 0.0 if self._owned_since is None else self._newest

    @property
    def wall_s(self) -> float:
        """From the start of the first driver to the newest record."""
        return 0.0 if self._started is None else max(0.0, self._newest - self._started)
