"""The contract of what a framework knows of the steps of a user's loop, so that a member can repeat one."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from sparktrain.training.checkpoint.tensor_files import Array, TensorFiles
from sparktrain.training.collectives.ring import Ring


class LoopSteps(ABC):
    """What steps change in the objects of one `ctx.memory_checkpoints` block. It belongs to the thread that trains.

    A step computes, has one collective, and changes weights after it. The class keeps what the two newest steps have
    changed before their collectives: a member may be one step ahead of another one.
    """

    is_in_place = True
    """Whether steps change objects of the block. Otherwise they get values, and return others, which the loop has."""

    def start(self) -> None:  # noqa: B027 - values need none
        """The loop starts. Called before its first step is traced."""

    def end(self) -> None:  # noqa: B027 - values need none
        """The loop is over."""

    @property
    def is_quiet(self) -> bool:
        """Whether no collective came before the loop that a process which joins later would call alone."""
        return True

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
    def note(self, values: Mapping[str, Any]) -> None:
        """Note what the loop may change before its next step: a process that joins later starts from here.

        `values` are those that the loop has passed by name.
        """

    def passed(self, arguments: Sequence[Any], options: Mapping[str, Any]) -> tuple[Sequence[Any], Mapping[str, Any]]:
        """What a step gets, in the present ring, for the arguments that the loop has passed."""
        return arguments, options

    def returned(self, result: Any) -> Any:
        """What a step has returned. Blocks until all of it is computed, and raises what that raises."""
        return result

    @abstractmethod
    def check_equal(self, ring: Ring) -> None:
        """Raise OutOfStepError, on all members, where what they train together differs.

        All members call it after the same step; it blocks until they do. Raises RingError.
        """

    def keep(self) -> None:  # noqa: B027 - values need none
        """A step starts: keep what it changes before its collective."""

    def put_back(self, ago: int) -> None:  # noqa: B027 - values need none
        """Undo what steps have changed before their collectives, since the start of the newest one, or (1) of the one
        before."""

    def rebase(self) -> None:  # noqa: B027 - values need none
        """The newest step starts again, from the state that there is now."""

    @abstractmethod
    def is_applied(self) -> bool:
        """Whether the newest step has changed weights; of values, whether the newest steps cannot be called again."""

    def parts(self) -> Sequence[Any]:
        """The objects of the block, with what `note` has noted, for `saver.capture`."""
        return []

    def completed(self, tensors: Mapping[str, Array], ranks: Sequence[int]) -> dict[str, Array]:
        """The `tensors` of `saver.capture`, with what was noted, and with what the lost members `ranks` had of their
        own."""
        return dict(tensors)

    def rejoin(self) -> None:  # noqa: B027 - values need none
        """The ring is another one: connect what averages gradients. Members call it together, new ones construct it."""

    def arrive(self, files: TensorFiles) -> None:  # noqa: B027 - values need none
        """This process has the state of a member that trains, from `files`: take what only the steps need."""

    def present(self) -> Any:
        """A copy of all that a step changes, for `take`."""
        return None

    def take(self, present: Any) -> None:  # noqa: B027 - values need none
        """Return to the state that `present` has copied."""

    def take_over(self, files: TensorFiles) -> None:  # noqa: B027 - values need none
        """Take weights and optimizer from another member, as they were before the newest step of this one."""
