"""The contract of what a framework knows of the steps of a user's loop, so that a member can repeat one."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from sparktrain.training.checkpoint.tensor_files import Array, TensorFiles


class LoopSteps(ABC):
    """What steps change in the objects of one `ctx.memory_checkpoints` block. It belongs to the thread that trains.

    A step computes, has one collective, and changes weights after it. The class keeps what the two newest steps have
    changed before their collectives: a member may be one step ahead of another one.
    """

    @abstractmethod
    def start(self) -> None:
        """The loop starts. Called before its first step is traced."""

    @abstractmethod
    def end(self) -> None:
        """The loop is over."""

    @property
    @abstractmethod
    def is_quiet(self) -> bool:
        """Whether no collective came before the loop that a process which joins later would call alone."""

    @property
    def warms_up(self) -> bool:
        """Whether the first step in another ring differs in its last bits: then all make it once more before."""
        return False

    @property
    def drawn(self) -> int:
        """A digest of the state of the framework's generators; 0 where members have seeds of their own."""
        return 0

    @abstractmethod
    def obstacle(self) -> str:
        """Why a step cannot be repeated, for a notice; empty where it can. Called after the first step."""

    @abstractmethod
    def note(self) -> None:
        """Note what the loop may change before its next step: a process that joins later starts from here."""

    @abstractmethod
    def keep(self) -> None:
        """A step starts: keep what it changes before its collective."""

    @abstractmethod
    def put_back(self, ago: int) -> None:
        """Undo what steps have changed before their collectives, since the start of the newest one, or (1) of the one
        before."""

    @abstractmethod
    def rebase(self) -> None:
        """The newest step starts again, from the state that there is now."""

    @abstractmethod
    def is_applied(self) -> bool:
        """Whether the newest step has changed weights."""

    @abstractmethod
    def parts(self) -> Sequence[Any]:
        """The objects of the block, with what `note` has noted, for `saver.capture`."""

    @abstractmethod
    def completed(self, tensors: Mapping[str, Array], ranks: Sequence[int]) -> dict[str, Array]:
        """The `tensors` of `saver.capture`, with what was noted, and with what the lost members `ranks` had of their
        own."""

    @abstractmethod
    def rejoin(self) -> None:
        """The ring is another one: connect what averages gradients. Members call it together, new ones construct it."""

    @abstractmethod
    def arrive(self, files: TensorFiles) -> None:
        """This process has the state of a member that trains, from `files`: take what only the steps need."""

    @abstractmethod
    def present(self) -> Any:
        """A copy of all that a step changes, for `take`."""

    @abstractmethod
    def take(self, present: Any) -> None:
        """Return to the state that `present` has copied."""

    @abstractmethod
    def take_over(self, files: TensorFiles) -> None:
        """Take weights and optimizer from another member, as they were before the newest step of this one."""
