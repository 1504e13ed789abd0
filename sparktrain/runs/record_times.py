"""When the facts of a journal happened, and how long gangs had their slots. Pure.

A driver that resumes a run writes down, before its own start, what became of the gangs of the driver that died. These
records have the time of the new driver. The gangs were gone with the old one, and ended at its newest record. A driver
that adopts gangs writes later which of them were lost, and the others never ended.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sparktrain.state.records import (
    AnyRecord,
    DriverStarted,
    GangFormed,
    GangRestarted,
    RunEnded,
    TrialConcluded,
    TrialPaused,
)


@dataclass(frozen=True)
class Stay:
    """A gang from its start to its end. Times are in seconds since 1970."""

    trial: int
    generation: int
    hosts: tuple[str, ...]
    start: float
    end: float
    kind: str
    """The final status of its trial, or why another gang followed: `restarted`, `paused`, `stopped`, `running`."""


def dated(records: Sequence[AnyRecord]) -> Iterator[tuple[AnyRecord, float]]:
    """The records, each with the time at which what it describes happened; 0 where that is unknown."""
    died = _deaths(records)
    newest = 0.0
    before = 0.0
    for index, record in enumerate(records):
        if isinstance(record, DriverStarted):
            before = record.predecessor_seen or newest
        # A driver that takes over dates these records by its own start: slot-hours and losses grew by the time under no
        # driver.
        at = died[index] or newest if index in died else record.at
        if isinstance(record, GangRestarted) and record.forgiven:
            at = before
        yield record, at
        newest = max(newest, at)


def _deaths(records: Sequence[AnyRecord]) -> dict[int, float]:
    """The places of the records that a driver wrote about its predecessor's gangs, with the time of the predecessor's
    newest record; 0 where an older sparktrain did not write that down."""
    deaths: dict[int, float] = {}
    follower: DriverStarted | None = None
    for index in range(len(records) - 1, -1, -1):
        record = records[index]
        if isinstance(record, DriverStarted):
            follower = record if record.at else None
        elif follower is not None and isinstance(record, GangRestarted | TrialConcluded) and record.at == follower.at:
            deaths[index] = follower.predecessor_seen
        else:
            follower = None
    return deaths


def gang_stays(records: Sequence[AnyRecord], end: float, *, live: bool) -> tuple[Stay, ...]:
    """The gangs of a run, in the order in which they ended. Records without a time are left out.

    `end` is when the run ended, its driver was last known to live, or now, where that is `live`.
    """
    return tuple(_Stays(end, live).scan(records))


class _Stays:
    def __init__(self, end: float, live: bool) -> None:
        self._open: dict[int, GangFormed] = {}
        self._newest = 0.0
        """The time of the newest fact so far."""
        self._end = end
        self._live = live

    def scan(self, records: Sequence[AnyRecord]) -> Iterator[Stay]:
        for record, at in dated(records):
            match record:
                case GangFormed():
                    yield from self._close(record.trial, at, "restarted")
                    self._open[record.trial] = record
                case GangRestarted():
                    yield from self._close(record.trial, at, "restarted")
                case TrialPaused():
                    yield from self._close(record.trial, at, "paused")
                case TrialConcluded():
                    yield from self._close(record.trial, at, str(record.status))
                case DriverStarted(adopts=True):  # its next records have what became of them
                    pass
                case DriverStarted():  # the driver before it has died: no record has when its gangs ended
                    yield from self._close_all(record.predecessor_seen or self._newest, "restarted")
                case RunEnded():
                    yield from self._close_all(at, "stopped")
            self._newest = max(self._newest, at)
        yield from self._close_all(self._end, "running" if self._live else "restarted")

    def _close_all(self, at: float, kind: str) -> Iterator[Stay]:
        for trial in list(self._open):
            yield from self._close(trial, at, kind)

    def _close(self, trial: int, at: float, kind: str) -> Iterator[Stay]:
        formed = self._open.pop(trial, None)
        if formed is not None and formed.at and at:
            yield Stay(trial, formed.generation, formed.hosts, formed.at, max(formed.at, at), kind)
