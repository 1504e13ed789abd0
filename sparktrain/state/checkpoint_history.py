"""The checkpoints of one trial: which one a gang resumes from, and which can be deleted. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from msgspec import Struct

from sparktrain.base.ids import Generation
from sparktrain.state.outcome import Failure, FailureKind


class Checkpoint(Struct, frozen=True):
    """A stored checkpoint. Its files are fixed by the digest of its manifest."""

    generation: Generation
    """Generation that wrote it."""
    step: int
    manifest: str
    """Path in the store."""
    digest: str
    """SHA-256 of the manifest, hexadecimal."""
    keep: int = 2
    """How many checkpoints of the trial to keep, not counting the best one."""
    score: float | None = None
    """Larger is better; None where checkpoints are not compared."""


@dataclass(slots=True)
class CheckpointHistory:
    """The acknowledged checkpoints of one trial, oldest first."""

    retained: list[Checkpoint] = field(default_factory=list)
    corrupt: list[tuple[Checkpoint, str]] = field(default_factory=list)
    """Checkpoints that a gang could not read when it resumed, with the reasons."""
    unsaved: str = ""
    """Why the newest snapshot of the trial did not become a checkpoint; empty when it did."""

    @property
    def newest(self) -> Checkpoint | None:
        """The checkpoint to resume from."""
        return self.retained[-1] if self.retained else None

    @property
    def newest_step(self) -> int | None:
        """The step that a gang resumes from; None where it starts from step 0."""
        return self.retained[-1].step if self.retained else None

    @property
    def all_corrupt(self) -> bool:
        """There are checkpoints and none can be read: a restart from step 0 would hide that."""
        return bool(self.corrupt) and not self.retained

    @property
    def best(self) -> Checkpoint | None:
        """The checkpoint with the best score; the newest of equal ones."""
        scored = [checkpoint for checkpoint in self.retained if checkpoint.score is not None]
        return max(reversed(scored), key=lambda candidate: candidate.score or 0.0) if scored else None

    def acknowledge(self, checkpoint: Checkpoint) -> list[Checkpoint]:
        """Add a checkpoint of the current generation; returns those that can be deleted now.

        The newest two and the best one always stay.
        """
        self.unsaved = ""
        self.retained.append(checkpoint)
        # At least two: where the newest cannot be read, a gang resumes from the one before it.
        recent = self.retained[-max(2, checkpoint.keep) :]
        doomed = [candidate for candidate in self.retained if candidate not in recent and candidate != self.best]
        self.retained = [candidate for candidate in self.retained if candidate not in doomed]
        return doomed

    def not_saved(self, step: int, problem: str) -> None:
        """The snapshot after `step` did not become a checkpoint."""
        self.unsaved = f"step {step} was not checkpointed: {problem}"

    def borrow(self, checkpoint: Checkpoint) -> list[Checkpoint]:
        """Continue from a checkpoint of another trial; returns those that no longer count."""
        dropped = [candidate for candidate in self.retained if candidate.manifest != checkpoint.manifest]
        self.retained = [checkpoint]
        self.corrupt = []
        return dropped

    def mark_corrupt(self, manifest: str, reason: str) -> None:
        """The checkpoint cannot be read: its predecessor is the newest now."""
        for checkpoint in [candidate for candidate in self.retained if candidate.manifest == manifest]:
            self.retained.remove(checkpoint)
            self.corrupt.append((checkpoint, reason))

    def drop(self, manifests: Sequence[str]) -> None:
        """These no longer count, corrupt or not."""
        self.retained = [checkpoint for checkpoint in self.retained if checkpoint.manifest not in manifests]
        self.corrupt = [corruption for corruption in self.corrupt if corruption[0].manifest not in manifests]

    def trust_again(self) -> None:
        """Corrupt checkpoints count again: the user may have put copies back."""
        all_of_them = [*(checkpoint for checkpoint, _ in self.corrupt), *self.retained]
        self.retained = sorted(all_of_them, key=lambda candidate: (candidate.generation, candidate.step))
        self.corrupt = []

    def corruption_report(self, last: Failure) -> Failure:
        """The failure of a trial without any checkpoint that can be read; `last` is the newest reason."""
        details = "; ".join(f"{checkpoint.manifest}: {reason}" for checkpoint, reason in self.corrupt)
        summary = (
            f"none of the {len(self.corrupt)} checkpoints can be read ({details}); put a copy back, or start a new run "
            "under another name to start from step 0"
        )
        return Failure(FailureKind.CHECKPOINT, summary, last.traceback, last.log_tail, last.rank, last.host)
