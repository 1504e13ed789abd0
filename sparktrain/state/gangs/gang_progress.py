"""What the members of a gang have done since it formed: who has joined and ended, and the steps of their training."""

from msgspec import Struct

from sparktrain.base.ids import Rank
from sparktrain.state.agent_messages import Standing
from sparktrain.state.gangs.step_times import SlowMember, StepTimes
from sparktrain.state.gangs.stragglers import slow_member
from sparktrain.state.moments import later
from sparktrain.state.outcome import Outcome

_UNKNOWN = Standing()
"""Of a member that has sent nothing yet."""


class Pace(Struct, gc=False):
    """The training steps of one member."""

    step: int
    """Finished so far, those before a restart included."""
    at: float
    """When the newest step was reported."""
    per_s: float = 0.0
    """Since the report before; 0 in the first one, which every training sends before its first step."""
    training: bool = True
    """More steps are to come: a long silence is a hang."""
    times: StepTimes | None = None
    """Where the newest steps went; None where no ring notes that."""
    called: int | None = None
    """See `MemberStepped.called`."""


class GangAttendance(Struct, gc=False):
    """Which members of a gang have joined, and which have ended."""

    formed_at: float
    running_since: float | None = None
    """When the last member entered the training function."""
    entered: set[Rank] = set()
    training: set[Rank] = set()
    """Workers of a gang with parameter servers that train by themselves."""
    standings: dict[Rank, Standing] = {}
    """How the processes of the members stand."""
    ended: dict[Rank, Outcome] = {}

    def stand(self, rank: Rank, standing: Standing) -> Standing:
        """Member `rank` stands like this from now on; returns how it has stood before."""
        before = self.standings.get(rank, _UNKNOWN)
        self.standings[rank] = standing
        return before

    @property
    def heals(self) -> set[Rank]:
        """Members that can continue in a new ring after the loss of another one."""
        return {rank for rank, standing in self.standings.items() if standing.heals}

    @property
    def moves(self) -> set[Rank]:
        """Those of them that can also change their ring for a process that is prepared."""
        return {rank for rank, standing in self.standings.items() if standing.heals and standing.moves}

    @property
    def shrinks(self) -> set[Rank]:
        """Those that can continue in a ring of fewer members."""
        return {rank for rank, standing in self.standings.items() if standing.heals and standing.shrinks}

    def backdate(self, seconds: float) -> None:
        """This driver knows the gang only now, and it has trained for `seconds` already."""
        self.formed_at -= seconds
        self.running_since = later(self.running_since, -seconds)

    def postpone(self, seconds: float) -> None:
        """See `Gang.postpone`."""
        self.formed_at += seconds
        self.running_since = later(self.running_since, seconds)


class MemberProgress(Struct, gc=False):
    """What the members of a gang have reported of their training."""

    paces: dict[Rank, Pace] = {}
    reported: dict[Rank, Pace] = {}
    """Steps of the newest reports."""
    slow: SlowMember | None = None
    """The member that the others wait for."""
    awaiting: set[tuple[Rank, str]] = set()
    """Members that wait for rows, or for other members that may, with the name of the stream."""

    @property
    def last_step(self) -> int | None:
        """The step of the member that is ahead; None before the first one."""
        return max((pace.step for pace in self.paces.values()), default=None)

    @property
    def times(self) -> dict[Rank, StepTimes]:
        """Where the newest steps of the members went, of those that have noted it."""
        return {rank: pace.times for rank, pace in self.paces.items() if pace.times is not None}

    def step(self, rank: Rank, pace: Pace) -> None:
        """Member `rank` has finished steps."""
        self.paces[rank] = pace
        if pace.times is not None:
            self.slow = slow_member(self.times, None if self.slow is None else self.slow.rank)

    def await_rows(self, rank: Rank, feed: str, waiting: bool, at: float) -> None:
        """Member `rank` waits for rows of `feed`, or no more. The time of that is no silence of the member."""
        if waiting:
            self.awaiting.add((rank, feed))
        elif (rank, feed) in self.awaiting:
            self.awaiting.remove((rank, feed))
            # Spark may take any time for rows: only from now on the member can be silent.
            for pace in (self.paces.get(rank), self.reported.get(rank)):
                if pace is not None:
                    pace.at = max(pace.at, at)

    def resume(self, at: float) -> None:
        """The members have waited for another one, and train on at `at`: only from now on they can be silent."""
        for pace in (*self.paces.values(), *self.reported.values()):
            pace.at = max(pace.at, at)

    def forget(self, rank: Rank) -> bool:
        """The process of member `rank` is gone, and another one follows; whether it had finished steps."""
        self.awaiting = {(other_rank, feed) for other_rank, feed in self.awaiting if other_rank != rank}
        self.reported.pop(rank, None)
        self.slow = None
        return self.paces.pop(rank, None) is not None

    def postpone(self, seconds: float) -> None:
        """See `Gang.postpone`."""
        for pace in (*self.paces.values(), *self.reported.values()):
            pace.at += seconds
