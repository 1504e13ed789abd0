"""The gang of one trial in one generation: reserving addresses, connecting, running, ended."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from sparktrain.base.ids import CHIEF, AgentId, Generation, Member, Rank, RunId, TrialId
from sparktrain.config.gang_spec import Role
from sparktrain.state import agent_messages as m
from sparktrain.state import commands as do
from sparktrain.state.agent_messages import Seating
from sparktrain.state.checkpoint_history import Checkpoint
from sparktrain.state.checkpoint_parts import CheckpointParts, PartsDecision
from sparktrain.state.gangs.gang_progress import GangAttendance, MemberProgress, Pace
from sparktrain.state.gangs.gang_stop import GangFault, GangStop
from sparktrain.state.losses.absence import Absence, MemberAbsences
from sparktrain.state.losses.handover import GangHandovers
from sparktrain.state.moments import later
from sparktrain.state.outcome import Failure, FailureKind, Outcome
from sparktrain.state.seats.seat import OCCUPIED, SeatState
from sparktrain.state.topology import MemberAddress
from sparktrain.state.transitions import check_move


class GangStatus(Enum):
    """The status of a gang, which lasts for one generation."""

    RESERVING = "members load the training function and reserve addresses"
    CONNECTING = "every member knows all addresses; the backend connects them"
    RUNNING = "every member has entered the training function"
    ENDED = "every member's process is gone"


_LEGAL = {
    GangStatus.RESERVING: (GangStatus.CONNECTING, GangStatus.RUNNING, GangStatus.ENDED),
    GangStatus.CONNECTING: (GangStatus.RUNNING, GangStatus.ENDED),
    GangStatus.RUNNING: (GangStatus.ENDED,),
}


class GangCheckpoints(Struct, gc=False):
    """What a gang resumes from, and what it leaves."""

    base: Checkpoint | None = None
    """Checkpoint that the gang resumes from."""
    memory_step: int | None = None
    """Step of the snapshot in memory that it resumes from, in place of the checkpoint."""
    kept_step: int | None = None
    """Once ended: step of the newest snapshot that an agent holds."""
    doomed: list[Checkpoint] = []
    """Checkpoints to delete once no member reads one."""
    progressed: bool = False
    """The gang has committed a checkpoint."""
    parts: CheckpointParts = msgspec.field(default_factory=CheckpointParts)
    """Those of a checkpoint that all members write."""

    @property
    def first_step(self) -> int | None:
        """The step that the gang resumes from; None where it starts from step 0."""
        stored = self.base.step if self.base is not None else None
        return stored if self.memory_step is None else self.memory_step


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
    attendance: GangAttendance
    status: GangStatus = GangStatus.RESERVING
    checkpoints: GangCheckpoints = field(default_factory=GangCheckpoints)
    absences: MemberAbsences = field(default_factory=MemberAbsences)
    progress: MemberProgress = field(default_factory=MemberProgress)
    fault: GangFault = field(default_factory=GangFault)
    stop: GangStop = field(default_factory=GangStop)

    @property
    def size(self) -> int:
        """Members in the gang."""
        return len(self.agents)

    def state_of(self, rank: Rank) -> SeatState:
        """What the seat of member `rank` holds."""
        if rank in self.attendance.ended:
            return SeatState.LEFT
        absence = self.absences.by_rank.get(rank)
        if absence is not None:
            return absence.state
        if rank in self.absences.vacant:
            return SeatState.VACANT
        return SeatState.TRAINING if rank in self.attendance.entered else SeatState.JOINING

    def in_state(self, *states: SeatState) -> list[Rank]:
        """The members with seats that hold one of these, by rank."""
        return [rank for rank in map(Rank, range(self.size)) if self.state_of(rank) in states]

    @property
    def ranks(self) -> tuple[Rank, ...]:
        """The members of the newest ring: all, but for those that the others continue without."""
        return tuple(rank for rank in map(Rank, range(self.size)) if self.state_of(rank) is not SeatState.VACANT)

    @property
    def is_whole(self) -> bool:
        """All members of the newest ring train, and none waits for one that is away."""
        return not self.absences.by_rank and all(self.state_of(rank) is SeatState.TRAINING for rank in self.ranks)

    @property
    def joined(self) -> dict[Rank, int]:
        """Members that have joined the newest ring after the first, with the steps that they had finished."""
        newest = self.absences.newest_ring
        ranks = [rank for rank in self.ranks if rank in self.attendance.standings] if newest else []
        standings = {rank: self.attendance.standings[rank] for rank in ranks}
        return {rank: standing.step for rank, standing in standings.items() if standing.ring == newest}

    @property
    def handovers(self) -> GangHandovers:
        """How its members move to prepared processes."""
        return self.absences.handovers

    def member(self, rank: Rank) -> Member:
        """Member `rank`."""
        return Member(self.run, self.trial, self.generation, rank, self.absences.incarnations.get(rank, 0))

    def live(self) -> list[tuple[AgentId, Member]]:
        """Members that have not ended and that an agent has, with their agents, by rank."""
        return [(self.agents[rank], self.member(rank)) for rank in self.in_state(*OCCUPIED)]

    def has_member(self, agent: AgentId, member: Member) -> bool:
        """Whether `agent` has this incarnation of `member` now."""
        rank = member.rank
        if not 0 <= rank < self.size or self.agents[rank] != agent or member != self.member(rank):
            return False
        return self.state_of(rank) in OCCUPIED

    # ---- members that restart alone

    def depart(self, rank: Rank, absence: Absence) -> None:
        """Member `rank` is lost, and restarts alone."""
        # At the loss: a member may report the step after it before all others have reported that the ring is healed. No
        # earlier than at the loss before: perhaps only that process had reported a step.
        reported = [step for step in (absence.step, self.progress.last_step) if step is not None]
        absence.step = max(reported, default=None)
        if (pace := self.progress.paces.get(rank)) is not None:
            absence.called = pace.called
        self.attendance.standings.pop(rank, None)
        self.absences.depart(rank, absence, had_steps=self.progress.forget(rank))

    def hand_to(self, rank: Rank, agent: AgentId, by: float) -> Member:
        """`agent` starts the next incarnation of member `rank`, which must train at `by`."""
        absence = self.absences.by_rank[rank]
        absence.state = SeatState.JOINING
        absence.by = by
        self.agents = (*self.agents[:rank], agent, *self.agents[rank + 1 :])
        return self.member(rank)

    def heal(self, rank: Rank, at: float) -> Absence:
        """All members have joined the ring that waited for member `rank`; returns its absence, which is over."""
        self.absences.unproven.pop(rank, None)
        self.progress.resume(at)
        return self.absences.by_rank.pop(rank)

    def vacate(self, rank: Rank, by: float) -> None:
        """The others form a ring without member `rank`, which no agent has; it must have formed at `by`."""
        absence = self.absences.by_rank[rank]
        absence.state = SeatState.VACANT
        absence.reserved = True
        absence.by = by

    def continue_without(self, rank: Rank, at: float) -> Absence:
        """All others have joined the ring without member `rank`; returns its absence, which is no more waited for."""
        self.absences.vacant.add(rank)
        self.absences.shrunk_at = at
        self.attendance.training.discard(rank)
        return self.heal(rank, at)

    def seatings(self, *, joined: bool = False) -> list[tuple[AgentId, Seating]]:
        """What has each member form the newest ring with the others that have a place in it, with its agent; or, once
        all have `joined` it, train on there."""
        ranks = self.ranks
        here = Seating(
            member=self.member(CHIEF),
            ring=self.absences.ring if joined else self.absences.newest_ring,
            places=tuple(self.places[rank] for rank in ranks),
            ranks=ranks if len(ranks) < self.size else (),
            joined=joined,
        )
        called = {rank: absence.called for rank, absence in self.absences.by_rank.items()}
        return [(agent, replace(here, member=member, called=called.get(member.rank))) for agent, member in self.live()]

    def move(self, rank: Rank, place: MemberAddress) -> None:
        """Member `rank` is at another place from now on."""
        self.places = (*self.places[:rank], place, *self.places[rank + 1 :])

    def needs_chief(self) -> tuple[Rank, Failure] | None:
        """A worker that is away, or back without a step: it may need the chief's part in its next one."""
        absences = self.absences
        away = {rank: absence.failure for rank, absence in absences.by_rank.items()} | absences.unproven
        return next(((rank, failure) for rank, failure in away.items() if rank in self.attendance.training), None)

    # ---- its status

    def reserve(self, rank: Rank, port: int) -> bool:
        """Member `rank` holds `port`; returns whether all members hold one now."""
        if self.status is not GangStatus.RESERVING or self.places[rank].port:
            return False
        self.move(rank, replace(self.places[rank], port=port))
        if self.attendance.ended or not all(place.port for place in self.places):
            return False
        self._move(GangStatus.CONNECTING)
        return True

    def enter(self, rank: Rank, at: float, *, trains: bool = False) -> Absence | None:
        """Member `rank` has entered the training function; returns its absence, which is over unless a ring heals.

        `trains`: see `GangAttendance.training`.
        """
        self.attendance.entered.add(rank)
        if trains:
            self.attendance.training.add(rank)
        else:
            self.attendance.training.discard(rank)
        is_starting = self.status in (GangStatus.RESERVING, GangStatus.CONNECTING)
        if len(self.attendance.entered) == self.size and is_starting:
            self._move(GangStatus.RUNNING)
            self.attendance.running_since = at
        absence = self.absences.by_rank.get(rank)
        if absence is None or absence.state is not SeatState.JOINING:
            return None
        return absence if absence.ring else self.absences.by_rank.pop(rank)

    def step(self, rank: Rank, pace: Pace) -> None:
        """Member `rank` has finished steps."""
        self.progress.step(rank, pace)
        self.absences.unproven.pop(rank, None)

    def postpone(self, seconds: float) -> None:
        """The coordinator was suspended for `seconds`: move all deadlines by as much."""
        for part in (self.attendance, self.absences, self.progress, self.stop):
            part.postpone(seconds)
        self.fault.failed_at = later(self.fault.failed_at, seconds)

    def located(self, failure: Failure, rank: Rank) -> Failure:
        """The failure as that of member `rank`."""
        return replace(failure, rank=int(rank), host=self.places[rank].host)

    def fail(self, failure: Failure, at: float, rank: Rank | None = None) -> None:
        """Note the cause, if it is the first."""
        if rank is not None and self.size > 1:
            failure = self.located(failure, rank)
        self.fault.add(failure, at, follows=failure.kind.follows and self.size > 1)

    def explain(self, failure: Failure, rank: Rank) -> None:
        """The cluster has reported why the agent of member `rank` was lost: use that, where the loss is the cause."""
        absence = self.absences.by_rank.get(rank)
        if absence is not None and led_to(absence.failure.kind, absence.failure.rank, rank):
            absence.failure = replace(failure, rank=int(rank), host=absence.failure.host)  # it may be placed elsewhere
        cause = self.fault.first
        if cause is not None and led_to(cause.kind, cause.rank, rank):
            self.fault.cause = failure if self.size == 1 else self.located(failure, rank)

    def end(self, rank: Rank, outcome: Outcome, at: float) -> None:
        """Member `rank` is gone."""
        self.absences.end(rank)
        self.attendance.ended[rank] = outcome
        if outcome.failure is not None and not (self.stop.by is not None and outcome.failure.kind is _STOPPED):
            self.fail(outcome.failure, at, rank)
        if len(self.attendance.ended) == self.size:
            self._move(GangStatus.ENDED)

    @property
    def accomplished(self) -> bool:
        """Every member that trains has returned: parameter servers and the evaluator are no longer needed."""
        # Beside parameter servers a worker may only serve the chief: the gang waits for those that train by themselves,
        # and report it.
        roles = {place.role for place in self.places}
        training = {Role.CHIEF} if Role.PS in roles else {Role.CHIEF, Role.WORKER}
        training_ranks = {rank for rank in self.ranks if self.places[rank].role in training}
        ended = self.attendance.ended
        ranks = training_ranks | self.attendance.training
        return all(rank in ended and ended[rank].failure is None for rank in ranks)

    def verdict(self) -> Outcome:
        """The gang's outcome, once ended: the first cause, else the chief's result."""
        ended = self.attendance.ended
        chief = ended[CHIEF]
        cause = self.fault.first
        if cause is None or self.accomplished:
            return chief
        tails = (outcome.failure.log_tail for outcome in ended.values() if outcome.failure is not None)
        tail = cause.log_tail or next(filter(None, tails), ())  # the coordinator's own causes come without lines
        seconds = max(outcome.seconds for outcome in ended.values())
        return Outcome(seconds, failure=replace(cause, log_tail=tail), notices=chief.notices)

    def _move(self, status: GangStatus) -> None:
        story = [str(self.attendance.ended)]
        self.status = check_move(f"gang of trial {self.trial}", self.status, status, _LEGAL, story)


def led_to(kind: FailureKind, rank: int | None, lost: Rank) -> bool:
    """Whether a failure of `kind` of member `rank` may follow from the loss of member `lost`'s agent."""
    return kind.follows or (kind is FailureKind.LOST and rank in (None, lost))


_STOPPED = FailureKind.STOPPED
"""How a member ends that was stopped: never a cause."""


def settled_parts(gang: Gang, rank: Rank, step: int, decisions: Sequence[PartsDecision]) -> list[do.Command]:
    """What follows for the agents from news of member `rank` about `step`, for the parts of a checkpoint."""
    commands: list[do.Command] = []
    for decision in decisions:
        if decision.commit:
            chief = gang.member(CHIEF)
            commands.append(do.Send(gang.agents[CHIEF], m.CommitParts(chief, step, decision.commit)))
        if decision.given_up is not None:
            news = decision.given_up, decision.problem
            waiting = [entry for entry in gang.live() if not decision.late or entry[1].rank == rank]
            commands += [do.Send(agent, m.GiveUpPart(member, *news)) for agent, member in waiting]
    return commands
