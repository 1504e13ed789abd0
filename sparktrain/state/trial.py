"""A trial's states: queued, running, requeued when its gang is lost, and one final status."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from sparktrain.ids import Generation, Member, TrialId
from sparktrain.state.checkpoint_history import Checkpoint, CheckpointHistory
from sparktrain.state.outcome import Failure, Report, Restart
from sparktrain.state.transitions import check_move

NOT_FORMED = Generation(0)
"""The generation of a trial before its first gang."""


class TrialStatus(StrEnum):
    """The value is the word in `results.json`."""

    QUEUED = "queued"
    RUNNING = "running"
    PAUSED = "paused"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    PRUNED = "pruned"
    LOST = "lost"
    STOPPED = "stopped"

    @property
    def final(self) -> bool:
        """A final status is never left."""
        return self not in (TrialStatus.QUEUED, TrialStatus.RUNNING, TrialStatus.PAUSED)

    @property
    def observed(self) -> bool:
        """The trial has a result: the sampler learns from it, and a driver that resumes the run keeps it."""
        return self in (TrialStatus.SUCCEEDED, TrialStatus.FAILED, TrialStatus.PRUNED)


_LEGAL = frozenset(
    {
        (TrialStatus.QUEUED, TrialStatus.RUNNING),
        (TrialStatus.RUNNING, TrialStatus.QUEUED),
        (TrialStatus.RUNNING, TrialStatus.PAUSED),
        (TrialStatus.PAUSED, TrialStatus.QUEUED),
        (TrialStatus.PAUSED, TrialStatus.PRUNED),
        (TrialStatus.PAUSED, TrialStatus.STOPPED),
        (TrialStatus.PAUSED, TrialStatus.LOST),
        (TrialStatus.QUEUED, TrialStatus.PRUNED),
        (TrialStatus.QUEUED, TrialStatus.STOPPED),
        (TrialStatus.QUEUED, TrialStatus.LOST),
        (TrialStatus.RUNNING, TrialStatus.SUCCEEDED),
        (TrialStatus.RUNNING, TrialStatus.FAILED),
        (TrialStatus.RUNNING, TrialStatus.PRUNED),
        (TrialStatus.RUNNING, TrialStatus.LOST),
        (TrialStatus.RUNNING, TrialStatus.STOPPED),
    }
)


class Pruning(NamedTuple):
    """A rule has found that the trial, or the case that it is part of, cannot win."""

    step: int
    """The step of the report that it was judged by; -1 where no report of its own was."""
    value: float | None
    """The metric there; None where it was not finite."""
    reason: str
    """The rule and what it compared, in one line."""


class Exploit(Struct, frozen=True):
    """A trial has taken over another one, in population based training."""

    step: int
    """The step of the report that it was compared by."""
    donor: TrialId
    donor_step: int
    """The step of the checkpoint from which it continues."""
    params: dict[str, Any]
    """Its parameters from there on."""


@dataclass(slots=True)
class Trial:
    """One training with a set of hyperparameters, its state and its result."""

    id: TrialId
    params: dict[str, Any]
    status: TrialStatus = TrialStatus.QUEUED
    generation: Generation = NOT_FORMED
    """Generation of the newest gang."""
    checkpoints: CheckpointHistory = field(default_factory=CheckpointHistory)
    unsaved: str = ""
    """Why the newest of its snapshots did not become a checkpoint; empty when it did."""
    failed_at: float | None = None
    """When the last gang failed; None once the next one is running."""
    metrics: dict[str, float] = field(default_factory=dict)
    extra: dict[str, Any] = field(default_factory=dict)
    """What the function returned beside numbers, in JSON's own types."""
    failure: Failure | None = None
    """The root cause of a failed or lost trial; of a running one, why its last gang was lost."""
    seconds: float = 0.0
    """Duration of the newest generation's training function."""
    notices: tuple[str, ...] = ()
    """Notices of the chief of the newest generation that ended."""
    host: str | None = None
    """Host of the chief of the newest generation."""
    hosts: tuple[str, ...] = ()
    """Hosts of the newest generation's members, by rank."""
    restarts: tuple[Restart, ...] = ()
    """Why its gang, or a member of it, restarted, and what that cost; oldest first."""
    alone: dict[Member, int] = field(default_factory=dict)
    """Members that were lost under this driver and restarted alone, with their places in `restarts`."""
    forgiven: int = 0
    """Number of restarts under earlier drivers, which do not count against the limit."""
    started_at: float | None = None
    """When the newest generation entered the training function."""
    last_report: Report | None = None
    pruning: Pruning | None = None
    """Set once a rule has decided that the trial stops: however its gang ends then, the trial is pruned."""
    pausing: Pruning | None = None
    """Set from the decision of a rule that the trial pauses until it is promoted."""
    pauses_at: Pruning | None = None
    """Such a decision, once the training up to it is lost: the trial trains on, and pauses when it is there again."""
    exploits: tuple[Exploit, ...] = ()
    """The trials that it has taken over, oldest first."""
    proposed: dict[str, Any] | None = None
    """The parameters that the sampler proposed, where it has others now."""
    taking_over: str = ""
    """From the decision that it takes over another trial until its gang is gone: why."""
    dropped: list[Checkpoint] = field(default_factory=list)
    """Checkpoints that no longer count since then, and are not deleted yet."""
    advice: str = ""
    """What would have let a rule do more for it."""

    @property
    def stopping(self) -> bool:
        """A rule has decided that its gang ends: for good, until it is promoted, or for another trial's state."""
        return self.pruning is not None or self.pausing is not None or bool(self.taking_over)

    def train_to_pause(self) -> None:
        """A gang starts: it trains up to the step of a pause that was decided before, or `stopping` would end it at
        its first report, with a partial result."""
        if self.pausing is not None:
            self.pauses_at = self.pausing
        self.pausing = None

    def come_to_pause(self) -> None:
        """The trial is at the step of its pause again."""
        if self.pauses_at is not None:
            self.pausing = self.pauses_at
        self.pauses_at = None

    def forget_pause(self) -> None:
        """The trial continues beyond its pause, or has its end."""
        self.pausing = self.pauses_at = None

    @property
    def gang_restarts(self) -> list[int]:
        """The places in `restarts` of those of the whole gang: after generation 1, after generation 2, and so on."""
        return [place for place, restart in enumerate(self.restarts) if not restart.alone]

    @property
    def losses(self) -> int:
        """Restarts after a loss: without those after a pause."""
        return sum(not restart.paused for restart in self.restarts)

    def place_of(self, generation: Generation) -> int | None:
        """The place in `restarts` of the restart that ended `generation`; None for the last generation."""
        past_restarts = self.gang_restarts
        return past_restarts[generation - 1] if generation <= len(past_restarts) else None

    def incarnation(self, rank: int) -> int:
        """How often member `rank` of the newest gang has restarted alone, and trained again."""
        newest = self.restarts[max(self.gang_restarts, default=-1) + 1 :]
        return sum(restart.rank == rank for restart in newest)

    def return_alone(self, member: Member, restart: Restart) -> None:
        """`member` was lost, and its next incarnation trains beside the others."""
        self.alone[member] = len(self.restarts)
        self.restarts = (*self.restarts, restart)

    def explain(self, place: int, restart: Restart) -> None:
        """More is known now about the restart at `place`."""
        newest = self.gang_restarts[-1:] == [place]
        if self.failure is not None and newest and not self.status.final:
            origin = {} if self.failure.rank is None else {"rank": restart.rank, "host": restart.host}
            details = {"kind": restart.kind, "summary": restart.cause, "loss": restart.loss}
            self.failure = replace(self.failure, **origin, **details)
        self.restarts = (*self.restarts[:place], restart, *self.restarts[place + 1 :])

    def spent(self) -> tuple[int, int]:
        """Restarts under this driver that count against the limit, and those that are excused.

        A gang that commits a checkpoint beyond all earlier ones gives back what was spent until then: a training
        that makes progress may outlast any number of losses.
        """
        mine: list[Restart] = []
        reached = -1
        for number, restart in enumerate(self.restarts):
            if restart.resumed_from_step is not None and restart.resumed_from_step > reached:
                reached = restart.resumed_from_step
                mine.clear()
            if number >= self.forgiven and not restart.paused:
                mine.append(restart)
        if self.checkpoints.newest is not None and self.checkpoints.newest.step > reached:
            mine.clear()
        excused = sum(restart.excused for restart in mine)
        return len(mine) - excused, excused

    def not_saved(self, step: int, problem: str) -> None:
        """The snapshot after `step` did not become a checkpoint."""
        self.unsaved = f"step {step} was not checkpointed: {problem}"

    def move(self, status: TrialStatus) -> None:
        """Change to `status`. Raises IllegalMoveError for a move that is not legal."""
        story = [f"generation {self.generation}, restarted {len(self.restarts)} times", self.failure]
        self.status = check_move(f"trial {self.id}", self.status, status, _LEGAL, story)
