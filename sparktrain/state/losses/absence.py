"""A member of a running gang that restarts alone, from its loss until it trains again.

Beside parameter servers the others train on meanwhile, and the absence is over when the next process of the member
enters the training function. In a ring that heals they wait, and it is over when all members have joined the next ring.
"""

from typing import NamedTuple

from msgspec import Struct, field
from msgspec.structs import replace

from sparktrain.base.ids import Rank
from sparktrain.state.losses.handover import GangHandovers
from sparktrain.state.moments import later, since
from sparktrain.state.outcome import Failure, RestartHow
from sparktrain.state.seats.seat import SeatState


class LaterLoss(NamedTuple):
    """One more loss of a member that is away."""

    failure: Failure
    after_s: float
    """Since the first one."""
    former: int
    """The incarnation of the process that was lost before this one."""


class Absence(Struct, gc=False):
    """Why one member is away, and until when the others train without it."""

    failure: Failure
    since: float
    state: SeatState
    by: float
    """When its process must have ended, an agent must have the next one, or that must train."""
    reserved: bool = False
    """Its next process holds the port, and has the addresses of the others."""
    ring: int = 0
    """Number of the ring that all members form with its next process; 0: the others train on without it."""
    later: tuple["LaterLoss", ...] = ()
    """Losses of its next processes, which have not trained."""
    step: int | None = None
    """The newest step that a member had reported when this one was lost."""
    called: int | None = None
    """The steps after which its process had called all its callbacks; None where that is unknown."""
    incarnation: int = 0
    """Of the process that is gone."""
    planned: RestartHow | None = None
    """`MOVED` or `JOINED` where no member was lost: its next process takes the place after a step of all."""

    @property
    def losses(self) -> int:
        """Processes that were lost since it trained last."""
        return len(self.later) + (self.planned is None)

    @property
    def how(self) -> RestartHow:
        """How the gang continues once the absence is over."""
        if self.state is SeatState.VACANT:
            return RestartHow.SHRUNK
        return self.planned or (RestartHow.HEALED if self.ring else RestartHow.ALONE)

    def failed(self, why: str) -> Failure:
        """The cause of the gang's restart when the member does not return."""
        return replace(self.failure, summary=f"{self.failure.summary}; it could not restart alone: {why}")


class MemberAbsences(Struct, gc=False):
    """The members of a gang that restart alone, or have."""

    by_rank: dict[Rank, Absence] = {}
    """Those that are away."""
    unproven: dict[Rank, Failure] = {}
    """Those that have restarted alone and finished no step since, though they did before."""
    incarnations: dict[Rank, int] = {}
    prepared: dict[Rank, int] = {}
    """The incarnation of the newest process that was prepared for a member, whether it has taken the place or not."""
    handovers: GangHandovers = field(default_factory=GangHandovers)
    newest_ring: int = 0
    """Number of the newest ring that the members form, or have formed, or are offered."""
    ring: int = 0
    """Number of the ring in which all have met last."""
    vacant: set[Rank] = set()
    """Members that the others train without: they have had no agent since their losses."""
    shrunk_at: float | None = None
    """When the others have started to train without the newest of them."""

    @property
    def healing(self) -> tuple[Rank, Absence] | None:
        """The first member that is away while the others wait for it to form a ring, and its absence."""
        return next(((rank, absence) for rank, absence in self.by_rank.items() if absence.ring), None)

    @property
    def losses(self) -> int:
        """Lost processes of the members that are away."""
        return sum(absence.losses for absence in self.by_rank.values())

    def depart(self, rank: Rank, absence: Absence, *, had_steps: bool) -> None:
        """Member `rank` is lost, and restarts alone: what its process still sends does not count."""
        self.by_rank[rank] = absence
        absence.incarnation = self.incarnations.get(rank, 0)
        # At once, and not when the next process starts: the old one may still send.
        self.incarnations[rank] = self.next_incarnation(rank)
        if had_steps:
            self.unproven[rank] = absence.failure

    def next_incarnation(self, rank: Rank) -> int:
        """The number of the next process of member `rank`: no two processes have the same one."""
        return max(self.incarnations.get(rank, 0), self.prepared.get(rank, 0)) + 1

    def end(self, rank: Rank) -> None:
        """Member `rank` does not come back."""
        self.by_rank.pop(rank, None)
        self.unproven.pop(rank, None)
        self.vacant.discard(rank)

    def postpone(self, seconds: float) -> None:
        """See `Gang.postpone`."""
        for absence in self.by_rank.values():
            absence.since += seconds
            absence.by += seconds
        self.shrunk_at = later(self.shrunk_at, seconds)
        self.handovers.postpone(seconds)


class Shortage:
    """Times are those of the coordinator's clock, None where there are enough agents."""

    def __init__(self, full_size: int, least: int, at: float) -> None:
        """A whole gang needs `full_size` agents, the smallest one `least`; at `at` there is none."""
        self._full_size = full_size
        self._least = least
        self.of_whole_since: float | None = at
        """Since when there are fewer agents than a whole gang needs."""
        self.of_least_since: float | None = at
        """Since when there are fewer agents than the smallest gang needs."""

    def count(self, usable: int, at: float) -> None:
        """`usable` agents can get members."""
        self.of_whole_since = since(self.of_whole_since, usable < self._full_size, at)
        self.of_least_since = since(self.of_least_since, usable < self._least, at)

    def postpone(self, seconds: float) -> None:
        """The coordinator was suspended for `seconds`: the absence of agents in that time does not count."""
        self.of_whole_since = later(self.of_whole_since, seconds)
        self.of_least_since = later(self.of_least_since, seconds)
