"""Checkpoints that all members of a gang write: which step has all parts, and which one has none any more. Pure.

Each member stores its part of a step in files of its own, and none of them counts before one manifest names all. At
most one step is open: a member sends the part of its next step only once it has an answer for the one before, so that
a newer step of any member shows that the open one never gets all parts. A step that was given up stays so, also for
parts that come late. A gang has one `CheckpointParts`, so no part of another generation is ever in it.
"""

from dataclasses import dataclass, field

from msgspec import Struct

from sparktrain.base.ids import CHIEF, Rank

MUST_ALL_SAVE = "; members that hold parts of a model must all call ctx.checkpoint.save(), without `if ctx.rank == 0`"
"""What follows a message about a part that does not come."""


class Shard(Struct, frozen=True, omit_defaults=True):
    """One file of a checkpoint."""

    name: str
    size: int
    """In bytes."""
    sha256: str
    data: str = ""
    """Path prefix of the file where another member than the chief wrote it; empty where it is the manifest's."""


class StoredPart(Struct, frozen=True):
    """The files of one member for a checkpoint that all members write; each has been read back."""

    attempt: str
    """What makes the names of these files unique: 32 hexadecimal digits."""
    shards: tuple[Shard, ...]


class PartsDecision(Struct, frozen=True):
    """What follows from news about a part."""

    commit: tuple[StoredPart, ...] = ()
    """The parts by rank, once all are stored: the chief's agent names them in one manifest."""
    given_up: int | None = None
    """This step gets no manifest."""
    problem: str = ""
    """Why it gets none."""
    late: bool = False
    """The part itself came after its step was given up: only its own member needs to know."""


@dataclass(slots=True)
class CheckpointParts:
    """The parts of the newest step of one gang."""

    step: int = -1
    """The newest step that any member has sent news about; -1 before the first."""
    problem: str = ""
    """Why `step` was given up; empty while it was not."""
    committing: int = -1
    """The step with a manifest that the chief's agent writes now; -1 for none."""
    stored: dict[Rank, StoredPart] = field(default_factory=dict)
    """The parts of `step`."""
    is_whole: bool = False
    """All parts of `step` are stored."""
    returned: dict[Rank, tuple[int, str]] = field(default_factory=dict)
    """Of members with a function that has returned: the first step without a part of theirs, and why it has none."""

    def add(self, rank: Rank, step: int, part: StoredPart, size: int) -> list[PartsDecision] | None:
        """Member `rank` of `size` has stored its part of `step`; None where it has sent one, or `step` is negative."""
        if step < 0:
            return None
        if step < self.step or (step == self.step and self.problem):
            problem = self.problem if step == self.step else _replaced_by(self.step)
            return [PartsDecision(given_up=step, problem=problem, late=True)]
        replaced = self._open(step)
        if rank in self.stored:
            return None
        self.stored[rank] = part
        if len(self.stored) < size:
            return [*replaced, *self._lacking()]
        self.is_whole = True
        self.committing = step
        return [*replaced, PartsDecision(commit=tuple(self.stored[Rank(number)] for number in range(size)))]

    def fail(self, rank: Rank, step: int, problem: str) -> list[PartsDecision]:
        """Member `rank` has no part of `step`, or the chief no manifest; empty where that changes nothing."""
        if step == self.committing:
            # A part that is stored stays in the manifest, whatever its member reports later.
            if rank != CHIEF:
                return []
            self.committing = -1
        elif step < self.step or (step == self.step and self.problem):
            return []
        replaced = self._open(step) if step > self.step else []
        if step == self.step:
            self.problem = problem
        return [*replaced, PartsDecision(given_up=step, problem=problem)]

    def end(self, rank: Rank, step: int, subject: str) -> list[PartsDecision]:
        """Member `rank`, `subject` in messages, has returned, and has no part of `step` or of any later one."""
        problem = f"{subject} has returned from the training function and has not saved its part{MUST_ALL_SAVE}"
        self.returned[rank] = step, problem
        return self._lacking()

    def complete(self, step: int) -> bool:
        """The chief's agent has stored a manifest of `step`: whether that names the parts of all members."""
        if step != self.committing:
            return False
        self.committing = -1
        return True

    def _lacking(self) -> list[PartsDecision]:
        """Give up `step` where a member that has returned did not store its part."""
        problems = [why for rank, (step, why) in self.returned.items() if step <= self.step and rank not in self.stored]
        if not (problems and self.stored) or self.problem:
            return []
        self.problem = problems[0]
        return [PartsDecision(given_up=self.step, problem=self.problem)]

    def _open(self, step: int) -> list[PartsDecision]:
        """Turn to `step`; the one before it gets no manifest where a part is still missing."""
        if step == self.step:
            return []
        before = self.step
        lacks_parts = bool(self.stored) and not self.problem and not self.is_whole
        self.step = step
        self.problem = ""
        self.stored = {}
        self.is_whole = False
        return [PartsDecision(given_up=before, problem=_replaced_by(step))] if lacks_parts else []


def _replaced_by(step: int) -> str:
    return f"a member has saved step {step} in its place"
