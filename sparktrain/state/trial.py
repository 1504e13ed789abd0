"""A trial's states: queued, running, requeued when its gang is lost, and one final status."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from msgspec.structs import replace

from sparktrain.ids import Generation, TrialId
from sparktrain.state.checkpoint_history import CheckpointHistory
from sparktrain.state.outcome import Failure, Report, Restart
from sparktrain.state.transitions import check_move

NOT_FORMED = Generation(0)
"""The generation of a trial before its first gang."""


class TrialStatus(StrEnum):
    """The value is the word in `results.json`."""

    QUEUED = "queued"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    LOST = "lost"
    STOPPED = "stopped"

    @property
    def final(self) -> bool:
        """A final status is never left."""
        return self not in (TrialStatus.QUEUED, TrialStatus.RUNNING)

    @property
    def observed(self) -> bool:
        """The trial has a result: the sampler learns from it, and a driver that resumes the run keeps it."""
        return self in (TrialStatus.SUCCEEDED, TrialStatus.FAILED)


_LEGAL = frozenset(
    {
        (TrialStatus.QUEUED, TrialStatus.RUNNING),
        (TrialStatus.RUNNING, TrialStatus.QUEUED),
        (TrialStatus.QUEUED, TrialStatus.STOPPED),
        (TrialStatus.QUEUED, TrialStatus.LOST),
        (TrialStatus.RUNNING, TrialStatus.SUCCEEDED),
        (TrialStatus.RUNNING, TrialStatus.FAILED),
        (TrialStatus.RUNNING, TrialStatus.LOST),
        (TrialStatus.RUNNING, TrialStatus.STOPPED),
    }
)


@dataclass(slots=True)
class Trial:
    """One set of hyperparameters, its state and its result."""

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
    """Why its gang restarted, and what that cost; oldest first."""
    forgiven: int = 0
    """Number of restarts under earlier drivers, which do not count against the limit."""
    started_at: float | None = None
    """When the newest generation entered the training function."""
    last_report: Report | None = None

    def restart_of(self, generation: Generation) -> Restart | None:
        """Why another gang followed that of `generation`; None for the last one."""
        return self.restarts[generation - 1] if generation <= len(self.restarts) else None

    def explain(self, generation: Generation, restart: Restart) -> None:
        """More is known now about why the gang of `generation` was lost."""
        if self.failure is not None and generation == len(self.restarts) and not self.status.final:
            who = {} if self.failure.rank is None else {"rank": restart.rank, "host": restart.host}
            known = {"kind": restart.kind, "summary": restart.cause, "loss": restart.loss}
            self.failure = replace(self.failure, **who, **known)
        self.restarts = (*self.restarts[: generation - 1], restart, *self.restarts[generation:])

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
            if number >= self.forgiven:
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
