"""How many agents a run could use now. Pure."""

from msgspec import Struct

from sparktrain.state.seats.seat import SeatState
from sparktrain.state.sweep import Sweep


class Claim(Struct, frozen=True, gc=False):
    """The members that a run could start now, beside those that it has."""

    unit: int = 1
    """Members of each gang: they start together."""
    ready: int = 0
    """Members of trials that wait for agents, in whole gangs."""
    coming: int = 0
    """Members of trials that the sampler may still have, in whole gangs."""
    lacking: int = 0
    """Members that gangs have lost, or do not have yet; they start alone."""

    @property
    def members(self) -> int:
        """All of them."""
        return self.ready + self.coming + self.lacking


NO_CLAIM = Claim()


def claim_of(sweep: Sweep, busy: int, lacking: int) -> Claim:
    """The claim of a run that has `busy` agents with members, and gangs that lack `lacking` members.

    A run never claims more agents than it may have, so `max_concurrent_trials` holds on a pool of any size.
    """
    if sweep.stop is not None or sweep.ended:
        return NO_CLAIM
    limits = sweep.limits
    unit = limits.size
    ready = len(sweep.queue) * unit
    coming = 0
    if not sweep.exhausted and (sweep.suggesting or not sweep.starved):
        most = max(limits.agents, unit)
        coming = most if limits.total is None else max(0, limits.total - len(sweep.trials)) * unit
    if limits.allotment.most is None:
        return Claim(unit, ready, coming, lacking)
    room = max(0, limits.allotment.most - busy)
    lacking = min(lacking, room)
    room = (room - lacking) // unit * unit
    ready = min(ready, room)
    return Claim(unit, ready, min(coming, room - ready), lacking)


def lacking_members(sweep: Sweep) -> int:
    """Agents that the gangs of a run could use beside those that they have: for lost members, to grow, and to stand
    by."""
    standby = sweep.spec.gang.standby
    grows = sweep.spec.gang.min_workers not in (None, sweep.limits.size)
    lacking = 0
    for gang in sweep.gangs.values():
        if gang.stop.has_started or gang.fault.first is not None:
            continue
        lacking += len(gang.in_state(SeatState.EMPTY))
        lacking += sweep.limits.size - len(gang.ranks) if grows else 0
        lacking += max(0, standby - len(gang.handovers.standbys))
    return lacking
