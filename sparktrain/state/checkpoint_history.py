"""The checkpoints of one trial: which one a gang resumes from, and which may be deleted. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from msgspec import Struct

from sparktrain.ids import Generation
from sparktrain.state.outcome import Failure, FailureKind


class Checkpoint(Struct, frozen=True):
    """A published checkpoint. Its files are fixed by the digest of its manifest."""

    generation: Generation
    """That wrote it."""
    step: int
    manifest: str
    """Path in the store."""
    digest: str
    """SHA-256 of the manifest, hexadecimal."""
    keep: int = 2
    """How many checkpoints of the trial shall be kept, the best one not counted."""
    score: float | None = None
    """Larger is better; None where checkpoints are not compared."""


@dataclass(slots=True)
class CheckpointHistory:
    """The acknowledged checkpoints of one trial, oldest first."""

    kept: list[Checkpoint] = field(default_factory=list)
    damaged: list[tuple[Checkpoint, str]] = field(default_factory=list)
    """Checkpoints that could not be read when a gang was to resume from them, with the reasons."""

    @property
    def newest(self) -> Checkpoint | None:
        """The one to resume from."""
        return self.kept[-1] if self.kept else None

    @property
    def all_damaged(self) -> bool:
        """There were checkpoints, and none can be read: to start again from step 0 would hide that."""
        return bool(self.damaged) and not self.kept

    @property
    def best(self) -> Checkpoint | None:
        """The one with the best score; of equals the newest."""
        scored = [each for each in self.kept if each.score is not None]
        return max(reversed(scored), key=lambda each: each.score or 0.0) if scored else None

    def acknowledge(self, checkpoint: Checkpoint) -> list[Checkpoint]:
        """Add a checkpoint of the current generation; those that are not needed any more, to be deleted.

        The newest two always stay, and the best one.
        """
        self.kept.append(checkpoint)
        recent = self.kept[-max(2, checkpoint.keep) :]
        doomed = [each for each in self.kept if each not in recent and each != self.best]
        self.kept = [each for each in self.kept if each not in doomed]
        return doomed

    def damage(self, manifest: str, reason: str) -> None:
        """The checkpoint cannot be read: the one before it is the newest now."""
        for checkpoint in [each for each in self.kept if each.manifest == manifest]:
            self.kept.remove(checkpoint)
            self.damaged.append((checkpoint, reason))

    def drop(self, manifests: Sequence[str]) -> None:
        """These count no more, damaged or not."""
        self.kept = [each for each in self.kept if each.manifest not in manifests]
        self.damaged = [each for each in self.damaged if each[0].manifest not in manifests]

    def try_again(self) -> None:
        """Those that could not be read count again: somebody may have put copies back."""
        all_of_them = [*(checkpoint for checkpoint, _ in self.damaged), *self.kept]
        self.kept, self.damaged = sorted(all_of_them, key=lambda each: (each.generation, each.step)), []

    def damage_report(self, last: Failure) -> Failure:
        """The failure of a trial of which no checkpoint can be read; `last` is the newest reason."""
        each = "; ".join(f"{checkpoint.manifest}: {reason}" for checkpoint, reason in self.damaged)
        summary = (
            f"none of the {len(self.damaged)} checkpoints can be read ({each}); put a copy back, or begin a new run "
            "under another name to start from step 0"
        )
        return Failure(FailureKind.CHECKPOINT, summary, last.traceback, last.log_tail, last.rank, last.host)
