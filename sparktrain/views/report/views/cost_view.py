"""What a run has cost: the hours of slots, by what became of them."""

from collections.abc import Sequence

from msgspec import Struct

from sparktrain.runs.record_times import Stay
from sparktrain.views.report.views.timeline_view import KINDS, TimelineView

_WASTED = ("failed", "lost", "restarted")


class CostShare(Struct, frozen=True):
    """The time of the gangs with one end."""

    kind: str
    """One of `KINDS`, or `idle`."""
    slot_s: float
    """Seconds, each once for each member."""
    share: float
    """Of the seconds of all slots, from 0 to 1."""


class CostView(Struct, frozen=True):
    """Seconds of slots: a gang of four that trains for a minute costs 240."""

    slots: int
    """The most members that ran at once on each host, added."""
    slot_s: float
    """What gangs took."""
    available_s: float
    """What these slots had under the drivers of the run."""
    lost_share: float
    """Of `slot_s`, what failed, lost and restarted gangs took, from 0 to 1."""
    pruned_share: float
    """Of `slot_s`, what trials took that were pruned."""
    shares: tuple[CostShare, ...]
    """The largest first; `idle` last."""


def cost_view(stays: Sequence[Stay], timeline: TimelineView | None) -> CostView | None:
    """None where no gang has started."""
    if timeline is None:
        return None
    spent = dict.fromkeys(KINDS, 0.0)
    for stay in stays:
        spent[stay.kind] += (stay.end - stay.start) * len(stay.hosts)
    total = sum(spent.values())
    slots = len(timeline.lanes)
    # Slots are idle only while a driver runs: the duration of the run leaves the other time out, too.
    available = max(total, slots * timeline.driver_s)
    denominator = available or 1.0
    shares = [CostShare(kind, round(took, 2), round(took / denominator, 4)) for kind, took in spent.items() if took]
    shares.sort(key=lambda share: -share.slot_s)
    idle = CostShare("idle", round(available - total, 2), round((available - total) / denominator, 4))
    return CostView(
        slots=slots,
        slot_s=round(total, 2),
        available_s=round(available, 2),
        lost_share=round(sum(spent[kind] for kind in _WASTED) / (total or 1.0), 4),
        pruned_share=round(spent["pruned"] / (total or 1.0), 4),
        shares=(*shares, idle),
    )
