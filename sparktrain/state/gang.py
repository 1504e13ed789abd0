"""The gang of one trial in one generation: reserving addresses, connecting, running, ended."""

from dataclasses import dataclass, field
from enum import Enum

from msgspec.structs import replace

from sparktrain.config.gang_spec import Role
from sparktrain.ids import AgentId, Generation, Member, Rank, RunId, TrialId
from sparktrain.state.checkpoint_history import Checkpoint
from sparktrain.state.losses.absence import Absence, AbsenceStage
from sparktrain.state.outcome import Failure, FailureKind, Outcome
from sparktrain.state.topology import MemberAddress
from sparktrain.state.transitions import check_move


class GangStatus(Enum):
    """The status of a gang, which lasts for one generation."""

    RESERVING = "members load the training function and reserve addresses"
    CONNECTING = "every member knows all addresses; the backend connects them"
    RUNNING = "every member has entered the training function"
    ENDED = "every member's process is gone"


_LEGAL = frozenset(
    {
        (GangStatus.RESERVING, GangStatus.CONNECTING),
        (GangStatus.RESERVING, GangStatus.RUNNING),
        (GangStatus.RESERVING, GangStatus.ENDED),
        (GangStatus.CONNECTING, GangStatus.RUNNING),
        (GangStatus.CONNECTING, GangStatus.ENDED),
        (GangStatus.RUNNING, GangStatus.ENDED),
    }
)


@dataclass(slots=True)
class Pace:
    """The training steps of one member."""

    step: int
    """Finished so far, those before a restart included."""
    at: float
    """When the newest step was reported."""
    per_s: float = 0.0
    """0 before the second step."""
    training: bool = True
    """More steps are to come: a long silence is a hang."""


@dataclass(slots=True)
class Growth:
    """The members of a gang pause, so that a larger one continues."""

    size: int
    """Members of the larger one, as many as there are agents for."""
    asked_at: float
    paused: set[Rank] = field(default_factory=set)
    """Members that have paused, with a snapshot in memory."""
    complete: bool = False
    """All have: the gang ends."""

    @property
    def reason(self) -> str:
        """Why the gang ends, in one line."""
        return f"grows to {self.size} members: agents are there again"


@dataclass(slots=True)
class Gang:
    """Agents that train one trial together.

    Their first failure is the cause; the others only follow from it. A failure that may itself only follow, such as
    that of a ring that lost its other end, is the cause when no better one comes within a short time.

    A member that restarts alone keeps its rank and generation, and gets a new incarnation the moment it is lost. Every
    message about a member carries its incarnation, so none of the old process counts for the new one. It keeps its
    address too, unless the others can learn another one. The old process is gone before the new one takes its port: an
    agent starts no member while the process of the one before exists, and a new process refuses a port that another one
    has.
    """

    run: RunId
    trial: TrialId
    generation: Generation
    agents: tuple[AgentId, ...]
    """By rank."""
    places: tuple[MemberAddress, ...]
    """By rank; a port is 0 until it is reserved."""
    formed_at: float
    checkpoint: Checkpoint | None = None
    """Checkpoint that the gang resumes from."""
    memory_step: int | None = None
    """Step of the snapshot in memory that it resumes from, in place of the checkpoint."""
    kept_step: int | None = None
    """Once ended: step of the newest snapshot that an agent holds."""
    status: GangStatus = GangStatus.RESERVING
    reserved: set[Rank] = field(default_factory=set)
    entered: set[Rank] = field(default_factory=set)
    training: set[Rank] = field(default_factory=set)
    """Workers of a gang with parameter servers that train by themselves."""
    ended: dict[Rank, Outcome] = field(default_factory=dict)
    absent: dict[Rank, Absence] = field(default_factory=dict)
    """Members that restart alone."""
    unproven: dict[Rank, Failure] = field(default_factory=dict)
    """Members that have restarted alone and finished no step since, though they did before."""
    incarnations: dict[Rank, int] = field(default_factory=dict)
    doomed: list[Checkpoint] = field(default_factory=list)
    """Checkpoints to delete once no member reads one."""
    paces: dict[Rank, Pace] = field(default_factory=dict)
    reported: dict[Rank, Pace] = field(default_factory=dict)
    """Steps of the newest reports."""
    awaiting: set[tuple[Rank, str]] = field(default_factory=set)
    """Members that wait for rows, or for other members that may, with the name of the stream."""
    running_since: float | None = None
    cause: Failure | None = None
    follower: Failure | None = None
    """The first failure that may follow from another one."""
    failed_at: float | None = None
    """When the first failure of either kind was reported."""
    growth: Growth | None = None
    """Since its members were asked to pause."""
    progressed: bool = False
    """The gang has committed a checkpoint."""
    advised_until: float | None = None
    """Once members were advised to stop, because the trial is pruned or paused: when they are stopped."""
    stop_by: float | None = None
    """Once members must stop: when those that have not ended are given up, with their agents."""

    @property
    def stops(self) -> bool:
        """Its members must stop, or were advised to because the trial is pruned or paused: none of them restarts."""
        return self.stop_by is not None or self.advised_until is not None

    @property
    def grows(self) -> bool:
        """It ends because a larger gang continues."""
        return self.growth is not None and self.growth.complete

    @property
    def size(self) -> int:
        """Members in the gang."""
        return len(self.agents)

    def member(self, rank: Rank) -> Member:
        """Member `rank`."""
        return Member(self.run, self.trial, self.generation, rank, self.incarnations.get(rank, 0))

    def live(self) -> list[tuple[AgentId, Member]]:
        """Members that have not ended and that an agent has, with their agents, by rank."""
        inactive_ranks = {*self.ended, *self.absent_in(AbsenceStage.WAITING)}
        ranks = (Rank(rank) for rank in range(self.size))
        return [(self.agents[rank], self.member(rank)) for rank in ranks if rank not in inactive_ranks]

    def has_member(self, agent: AgentId, member: Member) -> bool:
        """Whether `agent` has this incarnation of `member` now."""
        rank = member.rank
        if not 0 <= rank < self.size or self.agents[rank] != agent or member != self.member(rank):
            return False
        return rank not in self.ended and not (self.absent and rank in self.absent_in(AbsenceStage.WAITING))

    # ---- members that restart alone

    def absent_in(self, stage: AbsenceStage) -> list[Rank]:
        """Members with a restart that has come to `stage`."""
        return [rank for rank, absence in self.absent.items() if absence.stage is stage]

    def depart(self, rank: Rank, absence: Absence) -> None:
        """Member `rank` is lost, and restarts alone: what its process still sends does not count."""
        self.absent[rank] = absence
        # At once, and not when the next process starts: the old one may still send.
        self.incarnations[rank] = self.incarnations.get(rank, 0) + 1
        self.awaiting = {(other_rank, feed) for other_rank, feed in self.awaiting if other_rank != rank}
        self.reported.pop(rank, None)
        if self.paces.pop(rank, None) is not None:
            self.unproven[rank] = absence.failure

    def hand_to(self, rank: Rank, agent: AgentId, by: float) -> Member:
        """`agent` starts the next incarnation of member `rank`, which must train at `by`."""
        self.absent[rank].stage = AbsenceStage.STARTING
        self.absent[rank].by = by
        self.agents = (*self.agents[:rank], agent, *self.agents[rank + 1 :])
        return self.member(rank)

    def move(self, rank: Rank, place: MemberAddress) -> None:
        """Member `rank` is at another place from now on."""
        self.places = (*self.places[:rank], place, *self.places[rank + 1 :])

    def needs_chief(self) -> tuple[Rank, Failure] | None:
        """A worker that is away, or back without a step: it may need the chief's part in its next one."""
        away = {rank: absence.failure for rank, absence in self.absent.items()} | self.unproven
        return next(((rank, failure) for rank, failure in away.items() if rank in self.training), None)

    # ---- its status

    def reserve(self, rank: Rank, port: int) -> bool:
        """Member `rank` holds `port`; returns whether all members hold one now."""
        if self.status is not GangStatus.RESERVING or rank in self.reserved:
            return False
        self.reserved.add(rank)
        self.move(rank, replace(self.places[rank], port=port))
        if len(self.reserved) < self.size or self.ended:
            return False
        self._move(GangStatus.CONNECTING)
        return True

    def enter(self, rank: Rank, at: float, *, trains: bool = False) -> Absence | None:
        """Member `rank` has entered the training function; returns its absence, which is over. `trains`: `training`."""
        self.entered.add(rank)
        if trains:
            self.training.add(rank)
        else:
            self.training.discard(rank)
        forming = self.status in (GangStatus.RESERVING, GangStatus.CONNECTING)
        if len(self.entered) == self.size and forming:
            self._move(GangStatus.RUNNING)
            self.running_since = at
        returns = rank in self.absent_in(AbsenceStage.STARTING)
        return self.absent.pop(rank) if returns else None

    def step(self, rank: Rank, pace: Pace) -> None:
        """Member `rank` has finished steps."""
        self.paces[rank] = pace
        self.unproven.pop(rank, None)

    def awaits(self, rank: Rank, feed: str, waiting: bool, at: float) -> None:
        """Member `rank` waits for rows of `feed`, or no more. The time of that is no silence of the member."""
        if waiting:
            self.awaiting.add((rank, feed))
        elif (rank, feed) in self.awaiting:
            self.awaiting.remove((rank, feed))
            for pace in (self.paces.get(rank), self.reported.get(rank)):
                if pace is not None:
                    pace.at = max(pace.at, at)

    def postpone(self, seconds: float) -> None:
        """The coordinator was suspended for `seconds`: move all deadlines by as much."""
        self.formed_at += seconds
        for pace in self.paces.values():
            pace.at += seconds
        for absence in self.absent.values():
            absence.since += seconds
            absence.by += seconds
        if self.running_since is not None:
            self.running_since += seconds
        if self.failed_at is not None:
            self.failed_at += seconds
        if self.stop_by is not None:
            self.stop_by += seconds
        if self.advised_until is not None:
            self.advised_until += seconds
        if self.growth is not None:
            self.growth.asked_at += seconds

    def fail(self, failure: Failure, at: float, rank: Rank | None = None) -> None:
        """Note the cause, if it is the first."""
        if self.failed_at is None:
            self.failed_at = at
        if rank is not None and self.size > 1:
            failure = replace(failure, rank=int(rank), host=self.places[rank].host)
        if failure.kind.follows and self.size > 1:
            self.follower = self.follower or failure
        elif self.cause is None:
            self.cause = failure

    def explain(self, failure: Failure, rank: Rank) -> None:
        """The cluster has reported why the agent of member `rank` was lost: use that, where the loss is the cause."""
        absence = self.absent.get(rank)
        if absence is not None and led_to(absence.failure.kind, absence.failure.rank, rank):
            absence.failure = replace(failure, rank=int(rank), host=self.places[rank].host)
        cause = self.cause or self.follower
        if cause is not None and led_to(cause.kind, cause.rank, rank):
            self.cause = failure if self.size == 1 else replace(failure, rank=int(rank), host=self.places[rank].host)

    def end(self, rank: Rank, outcome: Outcome, at: float) -> None:
        """Member `rank` is gone."""
        self.absent.pop(rank, None)
        self.unproven.pop(rank, None)
        self.ended[rank] = outcome
        if outcome.failure is not None and not (self.stop_by is not None and outcome.failure.kind is _STOPPED):
            self.fail(outcome.failure, at, rank)
        if len(self.ended) == self.size:
            self._move(GangStatus.ENDED)

    @property
    def accomplished(self) -> bool:
        """Every member that trains has returned: parameter servers and the evaluator are no longer needed."""
        roles = {place.role for place in self.places}
        training = {Role.CHIEF} if Role.PS in roles else {Role.CHIEF, Role.WORKER}
        training_ranks = {Rank(rank) for rank, place in enumerate(self.places) if place.role in training}
        ranks = training_ranks | self.training
        return all(rank in self.ended and self.ended[rank].failure is None for rank in ranks)

    def verdict(self) -> Outcome:
        """The gang's outcome, once ended: the first cause, else the chief's result."""
        chief = self.ended[Rank(0)]
        cause = self.cause or self.follower
        if cause is None or self.accomplished:
            return chief
        tails = (outcome.failure.log_tail for outcome in self.ended.values() if outcome.failure is not None)
        tail = cause.log_tail or next(filter(None, tails), ())  # the coordinator's own causes come without lines
        seconds = max(outcome.seconds for outcome in self.ended.values())
        return Outcome(seconds, failure=replace(cause, log_tail=tail), notices=chief.notices)

    def _move(self, status: GangStatus) -> None:
        self.status = check_move(f"gang of trial {self.trial}", self.status, status, _LEGAL, [f"{self.ended}"])


def led_to(kind: FailureKind, rank: int | None, lost: Rank) -> bool:
    """Whether a failure of `kind` of member `rank` may follow from the loss of member `lost`'s agent."""
    return kind.follows or (kind is FailureKind.LOST and rank in (None, lost))


_STOPPED = FailureKind.STOPPED
"""How a member ends that was stopped: never a cause."""
