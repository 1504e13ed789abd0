"""The restarts of one trial: their causes, and what they cost."""

from msgspec import Struct
from msgspec.structs import replace

from sparktrain.base.ids import Generation, Member
from sparktrain.state.outcome import OF_MEMBER, PLANNED, Restart, RestartHow


class RestartHistory(Struct, gc=False):
    """Why a trial's gang, or a member of it, restarted, and what that cost; oldest first."""

    entries: tuple[Restart, ...] = ()
    alone: dict[Member, int] = {}
    """Members that were lost under this driver and restarted alone, with their places in `entries`."""
    incarnations: dict[int, int] = {}
    """The number of the newest process of each member that has restarted alone in the newest gang, by rank."""
    forgiven: int = 0
    """Number of restarts before the newest call of a user, which do not count against the limit."""
    failed_at: float | None = None
    """When the last gang failed; None once the next one is running."""

    @property
    def of_gang(self) -> list[int]:
        """The places in `entries` of those of the whole gang: after generation 1, after generation 2, and so on."""
        return [place for place, restart in enumerate(self.entries) if restart.how not in OF_MEMBER]

    @property
    def losses(self) -> int:
        """Restarts after a loss: without those after a pause."""
        return sum(restart.how not in PLANNED for restart in self.entries)

    def add(self, restart: Restart, member: Member | None = None, incarnation: int = 0) -> None:
        """The gang restarts; or `member` was lost, and its process number `incarnation` trains beside the others."""
        if restart.how not in OF_MEMBER:
            self.incarnations.clear()
        elif restart.how is not RestartHow.SHRUNK:  # else the newest process is that which was lost
            self.incarnations[restart.rank] = incarnation or self.incarnation(restart.rank) + 1
        if member is not None:
            self.alone[member] = len(self.entries)
        self.entries = (*self.entries, restart)

    def put(self, place: int, restart: Restart) -> None:
        """More is known now about the restart at `place`."""
        entries = list(self.entries)
        entries[place] = restart
        self.entries = tuple(entries)

    def recover(self, seconds: float) -> None:
        """The gang that restarted last trains again, `seconds` after the loss of the one before."""
        self.put(-1, replace(self.entries[-1], seconds=seconds))
        self.failed_at = None

    def place_of(self, generation: Generation) -> int | None:
        """The place of the restart that ended `generation`; None for the last generation."""
        past_restarts = self.of_gang
        return past_restarts[generation - 1] if generation <= len(past_restarts) else None

    def incarnation(self, rank: int) -> int:
        """The number of the process of member `rank` that trains in the newest gang, or has trained there last."""
        return self.incarnations.get(rank, 0)
