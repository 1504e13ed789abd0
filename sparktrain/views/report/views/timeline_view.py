"""Who ran where and when: a lane for each slot of a host, and a bar for each generation of a trial."""

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from sparktrain.runs.record_times import Stay, gang_stays
from sparktrain.runs.view import RunState
from sparktrain.state.records import DriverStarted
from sparktrain.views.report.views.run_inputs import RunInputs

KINDS = ("succeeded", "failed", "pruned", "stopped", "lost", "restarted", "paused", "running")
"""What became of the gang of a bar: the status of its trial, or why another gang followed."""
MOST_BARS = 40_000


class Lane(Struct, frozen=True):
    """A slot of a host, as far as what ran there shows: agents are not recorded."""

    host: str
    slot: int
    busy_s: float


class Bar(Struct, frozen=True, array_like=True):
    """One member of a gang on its lane. Times are in seconds since the start of the timeline."""

    lane: int
    trial: int
    generation: int
    start: float
    end: float
    kind: int
    """The place in `KINDS`."""


class TimelineView(Struct, frozen=True, kw_only=True):
    """The lanes of a run."""

    start: float
    """Seconds since 1970."""
    seconds: float
    """From the start of the first driver to the end, or to now."""
    driver_s: float
    """How long drivers have run in that time: slots without a driver are not idle."""
    lanes: tuple[Lane, ...]
    bars: tuple[Bar, ...]
    kinds: tuple[str, ...] = KINDS
    left_out: int = 0
    """Bars beyond the first 40,000."""
    drivers: tuple[float, ...] = ()
    """When drivers started, in seconds since the start."""


def stays_of(inputs: RunInputs) -> tuple[Stay, ...]:
    """The gangs of a run, in the order in which they ended."""
    return gang_stays(inputs.records, inputs.end, live=inputs.view.state is RunState.RUNNING)


def timeline_view(inputs: RunInputs, stays: Sequence[Stay]) -> TimelineView | None:
    """None where no gang has started."""
    if not stays:
        return None
    drivers = [record.at for record in inputs.records if isinstance(record, DriverStarted) and record.at]
    start = min([*drivers, *(stay.start for stay in stays)])
    seconds = max([inputs.end, *(stay.end for stay in stays)]) - start
    lanes = _Lanes()
    bars: list[Bar] = []
    for stay in sorted(stays, key=lambda stay: (stay.start, stay.trial)):
        for host in stay.hosts:
            lane = lanes.take(host, stay.start, stay.end)
            start_s = round(stay.start - start, 2)
            end_s = round(stay.end - start, 2)
            bars.append(Bar(lane, stay.trial, stay.generation, start_s, end_s, KINDS.index(stay.kind)))
    order, ordered_lanes = lanes.in_order()
    placed = tuple(replace(bar, lane=order[bar.lane]) for bar in bars[:MOST_BARS])
    return TimelineView(
        start=start,
        seconds=round(seconds, 2),
        driver_s=round(min(seconds, inputs.view.seconds(inputs.now)), 2),
        lanes=ordered_lanes,
        bars=placed,
        left_out=len(bars) - len(placed),
        drivers=tuple(round(at - start, 2) for at in drivers),
    )


class _Lanes:
    """Gives each stay the first lane of its host that is free."""

    def __init__(self) -> None:
        self._of_host: dict[str, list[int]] = {}
        self._hosts: list[tuple[str, int]] = []
        self._ends: list[float] = []
        self._busy: list[float] = []

    def take(self, host: str, start: float, end: float) -> int:
        """The number of the lane, in the order in which lanes were first taken."""
        mine = self._of_host.setdefault(host, [])
        lane = next((candidate for candidate in mine if self._ends[candidate] <= start), None)
        if lane is None:
            lane = len(self._hosts)
            self._hosts.append((host, len(mine)))
            self._ends.append(0.0)
            self._busy.append(0.0)
            mine.append(lane)
        self._ends[lane] = end
        self._busy[lane] += end - start
        return lane

    def in_order(self) -> tuple[list[int], tuple[Lane, ...]]:
        """The place of each lane when they are sorted by host, and the lanes in that order."""
        ranked = sorted(range(len(self._hosts)), key=lambda lane: self._hosts[lane])
        order = [0] * len(ranked)
        for place, lane in enumerate(ranked):
            order[lane] = place
        return order, tuple(Lane(*self._hosts[lane], round(self._busy[lane], 2)) for lane in ranked)
