"""The contract of a training that continues in the same process when its gang gets another ring."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path

from sparktrain.state.agent_messages import Seating
from sparktrain.training.elastic.state_source import RingAgreement, RingStanding


class ElasticTraining(ABC):
    """What a `Transaction` asks of the training of one member, in the thread that trains.

    `in_step` is whether the member is in a step, before its collective has ended, or between two steps.
    """

    compares_calls = False
    """Whether code of the user calls collectives between steps: then members of another ring compare their next one."""

    def make_room(self) -> None:  # noqa: B027 - most need none
        """This process waits for its first step in a ring: get the memory that the step needs, in a thread."""

    @abstractmethod
    def accepts(self, offer: Seating) -> bool:
        """Whether this member can change its ring for the process that is offered."""

    @abstractmethod
    def can_continue(self, *, in_step: bool) -> bool:
        """Whether this member can continue, after the loss of another one, from the state that it has now."""

    @abstractmethod
    def standing(self, *, in_step: bool) -> RingStanding:
        """How far this member has come."""

    @abstractmethod
    def undo(self, *, in_step: bool) -> None:
        """The ring is another one: undo what the open step has changed, and connect what averages gradients."""

    @abstractmethod
    def send(self, folder: Path, ranks: Sequence[int], *, in_step: bool) -> None:
        """Write the state of this member for the new processes of `ranks`. Raises OSError, CheckpointError."""

    @abstractmethod
    def take_over(self, agreement: RingAgreement, *, in_step: bool) -> bool:
        """Come to the state that the members have agreed on, and report that to the coordinator.

        Returns whether the open step is repeated; if not, this member has the state after it. Raises RingError,
        and RingRefusalError where no other ring would help.
        """
