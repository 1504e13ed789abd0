"""A trial's states: queued, running, requeued when its gang is lost, and one final status."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from sparktrain.base.ids import Generation, TrialId
from sparktrain.state.checkpoint_history import Checkpoint, CheckpointHistory
from sparktrain.state.gangs.step_times import GangTimes
from sparktrain.state.outcome import PLANNED, Failure, Outcome, Report, Restart
from sparktrain.state.restart_history import RestartHistory
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


_LEGAL = {
    TrialStatus.QUEUED: (TrialStatus.RUNNING, TrialStatus.PRUNED, TrialStatus.STOPPED, TrialStatus.LOST),
    TrialStatus.RUNNING: [status for status in TrialStatus if status is not TrialStatus.RUNNING],
    TrialStatus.PAUSED: (TrialStatus.QUEUED, TrialStatus.PRUNED, TrialStatus.STOPPED, TrialStatus.LOST),
}


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


# `gc=False` here and in the parts of a gang: they hold data and no circle. The collector walked over all of them, which
# took 7 % of the coordinator's time with 10,000 trials.
class Attempt(Struct, gc=False):
    """The training of a trial's newest gang."""

    hosts: tuple[str, ...] = ()
    """Hosts of its members, by rank."""
    started_at: float | None = None
    """When it entered the training function."""
    last_report: Report | None = None
    step_times: GangTimes | None = None
    """Where its steps go; None before the journal has that."""
    standby: str = ""
    """The processes that wait for the loss of a member, in one line; empty without any."""


class TrialPause(Struct, gc=False):
    """A pause of a trial until its promotion, which a rule has decided."""

    due: Pruning | None = None
    """Set from the decision until the trial is promoted or has its end."""
    ahead: Pruning | None = None
    """Such a decision, once the training up to it is lost: the trial trains on, and pauses when it is there again."""

    def train_to(self) -> None:
        """A gang starts: it trains up to the step of a pause that was decided before, or `Trial.stopping` would end it
        at its first report, with a partial result."""
        self.ahead = self.due or self.ahead
        self.due = None

    def come_to(self) -> None:
        """The trial is at the step of its pause again."""
        self.due = self.ahead or self.due
        self.ahead = None

    def forget(self) -> None:
        """The trial continues beyond its pause, or has its end."""
        self.due = None
        self.ahead = None


class Takeover(Struct, gc=False):
    """How a trial takes over the state of others, in population based training."""

    exploits: tuple[Exploit, ...] = ()
    """The trials that it has taken over, oldest first."""
    proposed: dict[str, Any] | None = None
    """The parameters that the sampler proposed, where the trial has others now."""
    reason: str = ""
    """From the decision that it takes over another trial until its gang is gone: why."""
    dropped: list[Checkpoint] = []
    """Checkpoints that no longer count since then, and are not deleted yet."""
    advice: str = ""
    """What would have let a rule do more for it."""


@dataclass(slots=True)
class Trial:
    """One training with a set of hyperparameters, its state and its result."""

    id: TrialId
    params: dict[str, Any]
    status: TrialStatus = TrialStatus.QUEUED
    generation: Generation = NOT_FORMED
    """Generation of the newest gang."""
    attempt: Attempt = field(default_factory=Attempt)
    checkpoints: CheckpointHistory = field(default_factory=CheckpointHistory)
    restart_history: RestartHistory = field(default_factory=RestartHistory)
    outcome: Outcome = field(default_factory=lambda: Outcome(0.0))
    """Of the newest gang that ended; once the trial has its final status, its own."""
    pruning: Pruning | None = None
    """Set once a rule has decided that the trial stops: however its gang ends then, the trial is pruned."""
    pause: TrialPause = field(default_factory=TrialPause)
    takeover: Takeover = field(default_factory=Takeover)

    @property
    def metrics(self) -> dict[str, float]:
        """What the training function returned; empty without a result."""
        return self.outcome.metrics or {}

    @property
    def failure(self) -> Failure | None:
        """The root cause of a failed or lost trial; of a running one, why its last gang was lost."""
        return self.outcome.failure

    @property
    def restarts(self) -> tuple[Restart, ...]:
        """Why its gang, or a member of it, restarted, and what that cost; oldest first."""
        return self.restart_history.entries

    @property
    def host(self) -> str | None:
        """Host of the chief of the newest generation."""
        return self.attempt.hosts[0] if self.attempt.hosts else None

    @property
    def stopping(self) -> bool:
        """A rule has decided that its gang ends: for good, until it is promoted, or for another trial's state."""
        return self.pruning is not None or self.pause.due is not None or bool(self.takeover.reason)

    def form(self, generation: Generation, hosts: tuple[str, ...]) -> None:
        """The trial has a gang of a new generation."""
        self.generation = generation
        self.attempt = Attempt(hosts)
        self.pause.train_to()

    def settle(self, **changes: Any) -> None:
        """Change these fields of the outcome."""
        self.outcome = replace(self.outcome, **changes)

    def explain(self, place: int, restart: Restart) -> None:
        """More is known now about the restart at `place`."""
        newest = self.restart_history.of_gang[-1:] == [place]
        if self.failure is not None and newest and not self.status.final:
            origin = {} if self.failure.rank is None else {"rank": restart.rank, "host": restart.host}
            details = {"kind": restart.kind, "summary": restart.cause, "loss": restart.loss}
            self.settle(failure=replace(self.failure, **origin, **details))
        self.restart_history.put(place, restart)

    def spent(self, reached_step: int | None = None) -> tuple[int, int]:
        """Restarts under this driver that count against the limit, and those that are excused. The newest gang has
        reached `reached_step`.

        A gang that commits a checkpoint beyond all earlier ones gives back what was spent until then: a training
        that makes progress may outlast any number of losses. One that only reaches a step beyond all earlier ones gives
        back what is excused: a script may resume from files of its own.
        """
        counted = excused = 0
        saved = reached = -1
        for number, restart in enumerate(self.restarts):
            if _exceeds(restart.resumed_from_step, saved):
                saved = restart.resumed_from_step or 0
                counted = excused = 0
            if _exceeds(restart.reached_step, reached):
                reached = restart.reached_step or 0
                excused = 0
            if number >= self.restart_history.forgiven and restart.how not in PLANNED:
                excused += restart.excused
                counted += not restart.excused
        if _exceeds(self.checkpoints.newest_step, saved):
            return 0, 0
        return counted, 0 if _exceeds(reached_step, reached) else excused

    def move(self, status: TrialStatus) -> None:
        """Change to `status`. Raises IllegalMoveError for a move that is not legal."""
        story = [f"generation {self.generation}, restarted {len(self.restarts)} times", self.failure]
        self.status = check_move(f"trial {self.id}", self.status, status, _LEGAL, story)


def _exceeds(step: int | None, known: int) -> bool:
    return step is not None and step > known
